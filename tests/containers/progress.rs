//! `yardmaster run` shows the pull of an image.

use std::fs::File;
use std::io::Read as _;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use nix::pty::{OpenptyResult, Winsize, openpty};
use vt100::Parser;

use super::binary::{self, Background};
use super::commands::yardmaster;
use super::{engine, registry};

#[test]
fn a_pull_has_a_bar_on_a_terminal_until_it_has_ended() {
    let Some(address) = engine::address() else { return };
    let size = Winsize { ws_row: 24, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
    let OpenptyResult { master, slave } = openpty(&size, None).unwrap();
    let image = registry::image(registry::SLOW);
    let mut command = yardmaster(address, &["run", "--image", &image, "--", "true"]);
    command.env("TERM", "xterm").stderr(Stdio::from(slave.try_clone().unwrap()));
    let mut program = Background::start(&mut command);
    let screen = Arc::new(Mutex::new(Parser::new(24, 120, 0)));
    let (mut output, shown) = (File::from(master), screen.clone());
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        // Fails when the terminal is closed.
        while let Ok(length @ 1..) = output.read(&mut bytes) {
            shown.lock().unwrap().process(&bytes[..length]);
        }
    });
    let text = || screen.lock().unwrap().screen().contents();
    let bar = format!("pulling {image} [");
    // The rows of a terminal that are full are one line.
    binary::until("the bar is there", || {
        let text = text();
        text.contains(&bar) && text.contains(" MiB (")
    });
    // Each bar is there once.
    assert_eq!(
        (text().matches("pulling").count(), text().matches("/1 succeeded").count()),
        (1, 1),
        "{}",
        text()
    );
    registry::release();
    assert_eq!(program.exit_code(), Some(0), "{}", text());
    binary::until("the Job is complete", || text().contains("Complete"));
    assert!(!text().contains("pulling"), "{}", text());
}

#[test]
fn a_pull_is_a_line_elsewhere() {
    let Some(address) = engine::address() else { return };
    let image = registry::image(registry::PLAIN);
    let args = ["run", "--image", &image, "--logs", "--", "cat", "/data/name"];
    let output = yardmaster(address, &args).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "plain\n");
    let line = format!("pulling {image}");
    assert_eq!(told.lines().filter(|told| *told == line).count(), 1, "{told}");
}

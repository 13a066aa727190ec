//! `yardmaster status --watch` on a terminal: keys, and how the terminal is left behind.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use nix::pty::{OpenptyResult, Winsize, openpty};
use nix::sys::signal::Signal;
use nix::sys::termios::{LocalFlags, tcgetattr};
use serde_json::json;
use tempfile::TempDir;
use vt100::Parser;

use crate::binary::{Background, until, yardmaster};
use crate::cluster::Cluster;

/// `status --watch` on a terminal of its own.
struct Terminal {
    keyboard: File,
    /// The side of the program, to look at the modes of the terminal.
    line: OwnedFd,
    screen: Arc<Mutex<Parser>>,
    program: Background,
}

impl Terminal {
    fn start(kubeconfig: &std::path::Path, arguments: &[&str]) -> Self {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let OpenptyResult { master, slave } = openpty(&size, None).unwrap();
        let mut command = yardmaster();
        command.args(["status", "--watch", "--kubeconfig"]).arg(kubeconfig).args(arguments);
        command
            .stdin(Stdio::from(slave.try_clone().unwrap()))
            .stdout(Stdio::from(slave.try_clone().unwrap()));
        let program = Background::start(&mut command);
        let screen = Arc::new(Mutex::new(Parser::new(24, 80, 0)));
        let (mut output, shown) = (File::from(master.try_clone().unwrap()), screen.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Fails when the terminal is closed.
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().process(&bytes[..length]);
            }
        });
        Self { keyboard: File::from(master), line: slave, screen, program }
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    fn shows(&self, what: &str, holds: impl Fn(&str) -> bool) {
        until(&format!("{what}: {}", self.text()), || holds(&self.text()));
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Changes the size of the terminal, as its window does.
    fn resize(&self, rows: u16, columns: u16) {
        self.screen.lock().unwrap().screen_mut().set_size(rows, columns);
        let (rows, columns) = (rows.to_string(), columns.to_string());
        let mut stty = Command::new("stty");
        stty.args(["rows", &rows, "cols", &columns]).stdin(Stdio::from(self.line.try_clone().unwrap()));
        assert!(stty.status().unwrap().success());
        // The terminal is not the controlling one, so the kernel does not send it.
        self.program.signal(Signal::SIGWINCH);
    }

    /// Whether the terminal is as a shell expects it.
    fn is_restored(&self) -> bool {
        let modes = tcgetattr(&self.line).unwrap().local_flags;
        let parser = self.screen.lock().unwrap();
        let screen = parser.screen();
        modes.contains(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG)
            && !screen.alternate_screen()
            && !screen.hide_cursor()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_work_and_the_terminal_is_restored_on_every_way_out() {
    let cluster = Cluster::start().await;
    let directory = TempDir::new().unwrap();
    let kubeconfig = cluster.write_kubeconfig(directory.path());
    for name in ["apple", "banana"] {
        cluster.create(name, json!({"suspend": true}), "10ms").await;
    }
    let session = tokio::task::spawn_blocking(move || {
        let mut terminal = Terminal::start(&kubeconfig, &[]);
        terminal.shows("both Jobs", |text| text.contains("apple") && text.contains("banana"));
        assert!(!terminal.is_restored(), "the view has the terminal for itself");
        terminal.press("/ban");
        terminal.shows("the filter", |text| text.contains("/ban_") && !text.contains("apple"));
        terminal.press("\r");
        terminal.shows("the hints", |text| text.contains("filter: ban") && text.contains("q quit"));
        terminal.press("s");
        terminal.shows("the order", |text| text.contains("sorted by name"));
        terminal.resize(10, 40);
        terminal.shows("the smaller size", |text| {
            text.contains("banana") && text.lines().next().is_some_and(|title| title.ends_with('…'))
        });
        terminal.resize(24, 80);
        terminal.shows("the larger size", |text| {
            text.contains("banana")
                && text.lines().next().is_some_and(|title| title.trim_end().ends_with("filter: ban"))
        });
        terminal.press("\r");
        terminal.shows("everything about the marked Job", |text| {
            text.contains("Job:") && text.contains("default/banana") && text.contains("Esc back")
        });
        terminal.press("\u{1b}");
        terminal.shows("the list", |text| text.contains("q quit") && !text.contains("Job:"));
        terminal.press("?");
        terminal.shows("the help", |text| text.contains("this help"));
        terminal.press("?");
        terminal.shows("the Job", |text| text.contains("banana"));
        terminal.press("q");
        assert_eq!(terminal.program.exit_code(), Some(0));
        until("the terminal is restored", || terminal.is_restored());

        for way_out in ["\u{3}", "\u{1b}"] {
            let mut terminal = Terminal::start(&kubeconfig, &[]);
            terminal.shows("a Job", |text| text.contains("apple"));
            terminal.press(way_out);
            assert_eq!(terminal.program.exit_code(), Some(0));
            until("the terminal is restored", || terminal.is_restored());
        }
        let mut terminal = Terminal::start(&kubeconfig, &["apple", "-n", "default"]);
        terminal.shows("everything about a Job", |text| {
            text.contains("Suspended") && text.contains("Trace:") && !text.contains("banana")
        });
        terminal.program.signal(Signal::SIGTERM);
        assert_eq!(terminal.program.exit_code(), Some(0));
        until("the terminal is restored", || terminal.is_restored());

        let mut terminal = Terminal::start(&kubeconfig, &["absent"]);
        assert_eq!(terminal.program.exit_code(), Some(3));
        until("the terminal is restored", || terminal.is_restored());
    });
    session.await.unwrap();
    cluster.end().await;
}

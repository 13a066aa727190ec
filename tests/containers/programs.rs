//! Programs for images: scripts, and programs of this machine with the files that they read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use tar::{Builder, EntryType, Header};

/// The layer with an executable script.
pub(crate) fn script(path: &str, body: &str) -> Vec<u8> {
    let text = format!("#!/bin/sh\n{body}\n");
    let mut layer = Builder::new(Vec::new());
    let mut header = Header::new_gnu();
    header.set_size(text.len() as u64);
    header.set_mode(0o755);
    layer.append_data(&mut header, path, text.as_bytes()).unwrap();
    layer.into_inner().unwrap()
}

/// The layer with this machine's Bash.
pub(crate) fn bash() -> Vec<u8> {
    let bash = which::which("bash").unwrap().canonicalize().unwrap();
    layer(&[("bin/bash", &bash)], BTreeSet::new())
}

/// The layer with this machine's Python, and the modules that it loads for small scripts.
pub(crate) fn python() -> Vec<u8> {
    let listing = "import encodings.ascii, encodings.latin_1, os, sys, time\n\
        print(os.path.realpath(sys.executable))\n\
        for module in list(sys.modules.values()):\n  print(getattr(module, '__file__', None) or '')";
    let listed = output(Command::new("python3").args(["-I", "-c", listing]));
    let mut lines = listed.lines();
    let python = PathBuf::from(lines.next().unwrap());
    // Modules of packages that were installed later are loaded only where they are.
    let modules = lines.filter(|file| file.starts_with('/') && !file.contains("-packages/"));
    layer(&[("bin/python3", &python), ("bin/python", &python)], modules.map(PathBuf::from).collect())
}

/// A layer with programs under these names, the libraries that they are linked with, and further files.
fn layer(programs: &[(&str, &Path)], mut files: BTreeSet<PathBuf>) -> Vec<u8> {
    let mut layer = Builder::new(Vec::new());
    for (name, program) in programs {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Symlink);
        header.set_size(0);
        header.set_mode(0o777);
        // Programs find their files by their own place.
        if Path::new("/").join(name) != *program {
            layer.append_link(&mut header, name, program).unwrap();
        }
        files.insert(program.to_path_buf());
        files.extend(libraries(program));
    }
    for file in files {
        layer.append_path_with_name(&file, file.strip_prefix("/").unwrap()).unwrap();
    }
    layer.into_inner().unwrap()
}

/// The libraries of a program, with the loader.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let listed = output(Command::new("ldd").arg(program));
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    listed.lines().filter_map(path).collect()
}

fn output(command: &mut Command) -> String {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

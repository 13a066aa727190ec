//! The program of a sandbox: it does nothing, and takes no memory to speak of.
//!
//! It ignores SIGCHLD, so that the kernel reaps the processes of a pod that shares its process namespace, and sleeps for ever.
//! With so little to do it needs no compiler and no C library: a few instructions behind the header of an executable file.

use std::io;

/// Where the program is in its image.
pub(super) const PATH: &str = "/pause";
/// The address at which it is loaded.
const ADDRESS: u64 = 0x40_0000;
/// Bytes of the header of an executable file, and of that of its one segment.
const HEADERS: (u16, u16) = (64, 56);

/// A processor, as an executable file names it, and the program's instructions, with the argument of `rt_sigaction` behind them.
type Program = (u16, &'static [u8]);

#[rustfmt::skip]
const AMD64: Program = (62, &[
    0xb8, 0x0d, 0, 0, 0,                // mov  $13, %eax (rt_sigaction)
    0xbf, 0x11, 0, 0, 0,                // mov  $17, %edi (SIGCHLD)
    0x48, 0x8d, 0x35, 0x17, 0, 0, 0,    // lea  action(%rip), %rsi
    0x31, 0xd2,                         // xor  %edx, %edx
    0x41, 0xba, 0x08, 0, 0, 0,          // mov  $8, %r10d
    0x0f, 0x05,                         // syscall
    0xb8, 0x22, 0, 0, 0,                // mov  $34, %eax (pause)
    0x0f, 0x05,                         // syscall
    0xeb, 0xf7,                         // jmp  to the previous mov
    0x0f, 0x1f, 0x40, 0,                // nop
    1, 0, 0, 0, 0, 0, 0, 0,             // action: SIG_IGN, no flags, no restorer, no mask
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
]);

#[rustfmt::skip]
const ARM64: Program = (183, &[
    0xc8, 0x10, 0x80, 0xd2,             // mov  x8, #134 (rt_sigaction)
    0x20, 0x02, 0x80, 0xd2,             // mov  x0, #17 (SIGCHLD)
    0x81, 0x01, 0x00, 0x10,             // adr  x1, action
    0x02, 0x00, 0x80, 0xd2,             // mov  x2, #0
    0x03, 0x01, 0x80, 0xd2,             // mov  x3, #8
    0x01, 0x00, 0x00, 0xd4,             // svc  #0
    0x28, 0x09, 0x80, 0xd2,             // mov  x8, #73 (ppoll)
    0x00, 0x00, 0x80, 0xd2,             // mov  x0, #0
    0x01, 0x00, 0x80, 0xd2,             // mov  x1, #0
    0x02, 0x00, 0x80, 0xd2,             // mov  x2, #0
    0x03, 0x00, 0x80, 0xd2,             // mov  x3, #0
    0x01, 0x00, 0x00, 0xd4,             // svc  #0
    0xfa, 0xff, 0xff, 0x17,             // b    to the mov of ppoll
    0x1f, 0x20, 0x03, 0xd5,             // nop
    1, 0, 0, 0, 0, 0, 0, 0,             // action: SIG_IGN, no flags, no mask
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
]);

/// The files of the image, as an archive.
///
/// # Errors
/// A text, if there is no program for this architecture, by its name in Go.
pub(super) fn files(architecture: &str) -> Result<Vec<u8>, String> {
    let program = match architecture {
        "amd64" => AMD64,
        "arm64" => ARM64,
        other => return Err(format!("there is no program for processors of the kind {other:?}")),
    };
    archive(&executable(program)).map_err(|error| error.to_string())
}

fn archive(program: &[u8]) -> io::Result<Vec<u8>> {
    let mut header = tar::Header::new_ustar();
    header.set_size(program.len() as u64);
    header.set_mode(0o755);
    let mut archive = tar::Builder::new(Vec::new());
    archive.append_data(&mut header, PATH.trim_start_matches('/'), program)?;
    archive.into_inner()
}

/// An executable file of one segment with these instructions, as elf(5) describes it.
fn executable((machine, instructions): Program) -> Vec<u8> {
    let (header, segment) = HEADERS;
    let size = u64::from(header + segment) + instructions.len() as u64;
    let entry = ADDRESS + u64::from(header + segment);
    let short = |values: &[u16]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
    let word = |values: &[u32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
    let long = |values: &[u64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
    [
        // The magic number; 64 bits, little-endian, version 1 of the format; the rest is padding.
        &[0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0][..],
        // An executable for this machine, version 1 of the format.
        &short(&[2, machine]),
        &word(&[1]),
        // Where it begins, where the headers of segments are, and that there are none of sections.
        &long(&[entry, u64::from(header), 0]),
        &word(&[0]),
        &short(&[header, segment, 1, 0, 0, 0]),
        // A segment to be loaded, which may be read and executed: the whole file.
        &word(&[1, 5]),
        &long(&[0, ADDRESS, ADDRESS, size, size, 0x1000]),
        instructions,
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_program_of_this_machine_runs_until_it_is_killed() {
        let program = match std::env::consts::ARCH {
            "x86_64" => AMD64,
            "aarch64" => ARM64,
            _ => return,
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pause");
        std::fs::write(&path, executable(program)).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        let mut child = Command::new(&path).stdin(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(child.try_wait().unwrap(), None);
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
        let sigchld = 1_u64 << 16;
        assert_ne!(u64::from_str_radix(ignored, 16).unwrap() & sigchld, 0, "{ignored}");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn other_processors_have_no_program() {
        assert!(files("amd64").is_ok() && files("arm64").is_ok());
        assert!(files("riscv64").unwrap_err().contains("riscv64"));
    }
}

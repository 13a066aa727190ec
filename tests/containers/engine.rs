//! Podman, as a service with a storage of its own, and its images: made from scratch, since tests reach no registry.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::registry;

/// An image with a shell, under a name that Kubernetes' own tests use.
pub(crate) const BUSYBOX: &str = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1";
/// An image with a command, a user and a working directory.
pub(crate) const GREETER: &str = "docker.io/library/greeter:1";
/// Seconds without a connection after which the service ends.
const IDLE: &str = "300";

/// The address of the service, or why there is none.
pub(crate) fn address() -> Option<&'static str> {
    static SERVICE: OnceLock<Result<String, String>> = OnceLock::new();
    match SERVICE.get_or_init(start) {
        Ok(address) => Some(address),
        Err(why) => {
            assert!(std::env::var_os("CI").is_none(), "{why}");
            eprintln!("skipped: {why}");
            None
        }
    }
}

fn start() -> Result<String, String> {
    let busybox = busybox().ok_or("no busybox here: install busybox-static")?;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("podman");
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let podman = Podman::configured(&folder);
    podman.import(BUSYBOX, busybox, &["ENV PATH=/bin"])?;
    let greeter = ["ENV PATH=/bin", "ENV GREETING=hello", "USER 1234:1234", "WORKDIR /tmp"];
    let says = ["ENTRYPOINT [\"echo\", \"from the image:\"]", "CMD [\"nothing\"]"];
    podman.import(GREETER, busybox, &[&greeter[..], &says[..]].concat())?;
    let socket = podman.folder.join(format!("{}.sock", std::process::id()));
    podman.serve(&socket, IDLE)?;
    Ok(format!("unix://{}", socket.display()))
}

fn busybox() -> Option<&'static str> {
    ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists())
}

/// The files of an image with a shell.
pub(crate) fn busybox_archive() -> Vec<u8> {
    busybox().map(archive).unwrap_or_default()
}

/// The configuration with the registry of this process.
fn registries(folder: &Path) -> PathBuf {
    folder.join(format!("{}-registries.conf", std::process::id()))
}

/// Podman with its configuration in a folder.
struct Podman {
    folder: PathBuf,
}

impl Podman {
    /// The engine of the tests, which is configured.
    fn here() -> Self {
        Self { folder: Path::new(env!("CARGO_TARGET_TMPDIR")).join("podman") }
    }

    fn configured(folder: &Path) -> Self {
        let place = |name: &str| folder.join(name).display().to_string();
        let storage = format!(
            "[storage]\ndriver = \"overlay\"\ngraphroot = {:?}\nrunroot = {:?}\n",
            place("root"),
            place("run")
        );
        let engine = "[engine]\nruntime = \"runc\"\n";
        // A build machine may allow fewer than the defaults.
        let limits = "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=4096:4096\"]\n";
        let at = |location: &str, prefix: &str| {
            let port = registry::port();
            format!(
                "[[registry]]\nprefix = {prefix:?}\nlocation = \"127.0.0.1:{port}{location}\"\ninsecure = true\n"
            )
        };
        let own = at("", &format!("127.0.0.1:{}", registry::port()));
        let locked =
            format!("[[registry]]\nlocation = \"127.0.0.1:{}\"\ninsecure = true\n", registry::locked_port());
        let mirrored = registry::MIRRORED.map(|host| at(&format!("/{host}"), host));
        let registry = format!("{own}{locked}{}", mirrored.concat());
        std::fs::write(folder.join("storage.conf"), storage).unwrap();
        std::fs::write(registries(folder), registry).unwrap();
        std::fs::write(folder.join("containers.conf"), format!("{engine}{limits}")).unwrap();
        Self { folder: folder.to_owned() }
    }

    fn command(&self) -> Command {
        let mut command = Command::new("podman");
        command
            .env("CONTAINERS_STORAGE_CONF", self.folder.join("storage.conf"))
            .env("CONTAINERS_REGISTRIES_CONF", registries(&self.folder))
            .env("CONTAINERS_CONF", self.folder.join("containers.conf"));
        command
    }

    /// Makes an image of busybox alone, unless it is there.
    fn import(&self, name: &str, busybox: &str, changes: &[&str]) -> Result<(), String> {
        let known = self.command().args(["image", "exists", name]).status();
        if known.map_err(|error| format!("no podman here: {error}"))?.success() {
            return Ok(());
        }
        let changes = changes.iter().flat_map(|change| ["--change", change]);
        let mut import = self.command();
        import.args(["import", "--quiet"]).args(changes).args(["-", name]).stdin(Stdio::piped());
        let mut import = import.stdout(Stdio::null()).spawn().map_err(|error| error.to_string())?;
        import.stdin.take().unwrap().write_all(&archive(busybox)).unwrap();
        let done = import.wait().unwrap();
        if done.success() { Ok(()) } else { Err(format!("podman import {name}: {done}")) }
    }

    /// Starts a service on a socket. It ends after `idle` seconds without a connection.
    fn serve(&self, socket: &Path, idle: &str) -> Result<Child, String> {
        let address = format!("unix://{}", socket.display());
        let _absent = std::fs::remove_file(socket);
        let mut service = self.command();
        service.args(["system", "service", "--time", idle, &address]).stdin(Stdio::null());
        // The monitor of a container writes a file there if that runs out of memory.
        service.current_dir(&self.folder).stdout(Stdio::null()).stderr(Stdio::null());
        let service = service.spawn().map_err(|error| error.to_string())?;
        let deadline = Instant::now() + Duration::from_secs(20);
        while std::os::unix::net::UnixStream::connect(socket).is_err() {
            if Instant::now() > deadline {
                return Err(format!("podman does not serve {address}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(service)
    }
}

/// A second service of the engine, which a test may kill.
pub(crate) struct Mortal {
    podman: Podman,
    socket: PathBuf,
    service: Child,
}

impl Mortal {
    /// The service, if there is an engine.
    pub(crate) fn start(name: &str) -> Option<Self> {
        address()?;
        let podman = Podman::here();
        let socket = podman.folder.join(format!("{}-{name}.sock", std::process::id()));
        let service = podman.serve(&socket, "0").unwrap();
        Some(Self { podman, socket, service })
    }

    pub(crate) fn address(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    pub(crate) fn kill(&mut self) {
        self.service.kill().unwrap();
        self.service.wait().unwrap();
    }

    pub(crate) fn restart(&mut self) {
        self.service = self.podman.serve(&self.socket, "0").unwrap();
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        // It has ended already if the test failed.
        let _ended = self.service.kill();
        let _reaped = self.service.wait();
    }
}

/// The output of a command of the engine.
pub(crate) fn podman(args: &[&str]) -> String {
    let done = Podman::here().command().args(args).output().unwrap();
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim_end().to_owned()
}

/// The files of an image: busybox under the names of all that it can do.
fn archive(busybox: &str) -> Vec<u8> {
    let program = std::fs::read(busybox).unwrap();
    let mut archive = tar::Builder::new(Vec::new());
    let entry = |size: usize, kind: tar::EntryType, mode: u32| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size as u64);
        header.set_mode(mode);
        header
    };
    archive
        .append_data(&mut entry(program.len(), tar::EntryType::Regular, 0o755), "bin/busybox", &program[..])
        .unwrap();
    let applets = Command::new(busybox).arg("--list").output().unwrap().stdout;
    for applet in String::from_utf8(applets).unwrap().lines().filter(|applet| *applet != "busybox") {
        let mut header = entry(0, tar::EntryType::Symlink, 0o777);
        archive.append_link(&mut header, format!("bin/{applet}"), "busybox").unwrap();
    }
    for folder in ["tmp", "etc"] {
        archive.append_data(&mut entry(0, tar::EntryType::Directory, 0o1777), folder, &[][..]).unwrap();
    }
    let users = b"root:x:0:0::/:/bin/sh\nbuilder:x:1234:1234::/tmp:/bin/sh\n";
    archive
        .append_data(&mut entry(users.len(), tar::EntryType::Regular, 0o644), "etc/passwd", &users[..])
        .unwrap();
    archive.into_inner().unwrap()
}

/// The owners of the containers with this label, running or not.
pub(crate) fn owners(label: &str) -> Vec<String> {
    let (filter, owner) = (format!("label={label}"), "{{index .Labels \"dev.yardmaster.owner\"}}");
    podman(&["ps", "--all", "--filter", &filter, "--format", owner]).lines().map(str::to_owned).collect()
}

/// The names of the networks with this label.
pub(crate) fn networks(label: &str) -> Vec<String> {
    let filter = format!("label={label}");
    podman(&["network", "ls", "--filter", &filter, "--format", "{{.Name}}"])
        .lines()
        .map(str::to_owned)
        .collect()
}

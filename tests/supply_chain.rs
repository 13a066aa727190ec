//! Releases that others can trust: versions agree, the changelog has its form, and nothing that builds a release can change
//! under it. `.ci/release` is the program that the workflow of releases runs.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use regex::Regex;
use tempfile::TempDir;
use walkdir::WalkDir;

/// The files that `.ci/release check` and `notes` read.
const FILES: [&str; 4] = ["Cargo.toml", "CHANGELOG.md", "Dockerfile", "charts/yardmaster/Chart.yaml"];
const VERSION: &str = env!("CARGO_PKG_VERSION");

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Without Python there is nothing to test, except in CI.
fn has_python() -> bool {
    let found = which::which("python3").is_ok();
    assert!(found || std::env::var_os("CI").is_none_or(|ci| ci.is_empty()), "python3 is not found");
    if !found {
        eprintln!("skipped: python3 is not found");
    }
    found
}

fn release(sources: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(root().join(".ci/release"));
    command.arg("--root").arg(sources).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The sources as they are, with one text of one file replaced by another.
fn sources_with(file: &str, old: &str, new: &str) -> TempDir {
    let sources = TempDir::new().unwrap();
    for name in FILES {
        let copy = sources.path().join(name);
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        let mut content = fs::read_to_string(root().join(name)).unwrap();
        if name == file {
            assert!(content.contains(old), "{file} has no {old:?}");
            content = content.replacen(old, new, 1);
        }
        fs::write(copy, content).unwrap();
    }
    sources
}

/// The CHANGELOG with this below its heading, in place of what it says.
fn sources_with_changelog(sections: &str) -> TempDir {
    let sources = sources_with("", "", "");
    fs::write(sources.path().join("CHANGELOG.md"), format!("# Changelog\n\n{sections}")).unwrap();
    sources
}

#[test]
fn all_files_name_one_version_and_the_changelog_has_its_form() {
    if has_python() {
        let output = release(root(), &["check"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout).trim(), VERSION);
    }
}

#[test]
fn files_that_disagree_are_refused_in_one_line() {
    if !has_python() {
        return;
    }
    let tag = format!("v{VERSION}");
    let (chart, image) = (format!("version: {VERSION}"), format!("ARG VERSION={VERSION}"));
    let application = format!("appVersion: \"{VERSION}\"");
    let cases = [
        ("charts/yardmaster/Chart.yaml", &*chart, "version: 9.9.9", "Chart.yaml: version is 9.9.9"),
        (
            "charts/yardmaster/Chart.yaml",
            &*application,
            "appVersion: \"9.9.9\"",
            "Chart.yaml: appVersion is 9.9.9",
        ),
        ("Dockerfile", &*image, "ARG VERSION=9.9.9", "Dockerfile: ARG VERSION is 9.9.9"),
        ("CHANGELOG.md", "## [Unreleased]", "## Unreleased", "begin with '## [Unreleased]'"),
        ("CHANGELOG.md", "### Added", "### Improved", "'### Improved' is none of Added, Changed"),
        ("CHANGELOG.md", "### Added", "### Changed", "'### Changed' stands there 2 times"),
        ("CHANGELOG.md", "### Fixed", "## [0.0.1]\n\n### Fixed", "'## [0.0.1]' is not of the form"),
        ("CHANGELOG.md", "### Fixed", "## [0.0.1] - 2026-02-30\n\n### Fixed", "'## [0.0.1] - 2026-02-30'"),
        ("CHANGELOG.md", "### Fixed", "## [99.0.0] - 2026-02-03\n\n### Fixed", "is older than 99.0.0"),
    ];
    for (file, old, new, wanted) in cases {
        let sources = sources_with(file, old, new);
        let output = release(sources.path(), &["check"]);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{new}: {said}");
        assert!(said.contains(wanted), "{new}: {said}");
    }
    let sorted = |sections: &str, tag: &str| {
        let sources = sources_with_changelog(sections);
        let output = release(sources.path(), &["check", "--tag", tag]);
        (output.status.success(), text(&output.stderr).trim().to_owned())
    };
    let dated = format!("## [Unreleased]\n\n## [{VERSION}] - 2026-12-01\n\n## [0.0.2] - 2026-11-30\n");
    assert_eq!(sorted(&dated, &tag), (true, String::new()));
    for (sections, tag, wanted) in [
        (&*dated, "v0.0.2", "or change the version"),
        (&dated, VERSION, "or change the version"),
        ("## [Unreleased]\n\n## [0.0.2] - 2026-11-30\n", &tag, "date what is released"),
        ("## [Unreleased]\n\n## [0.0.1] - 2026-11-30\n\n## [0.0.2] - 2026-11-29\n", &tag, "newest first"),
        ("## [Unreleased]\n\n## [0.0.2] - 2026-11-29\n\n## [0.0.1] - 2026-11-30\n", &tag, "newest first"),
        (
            "## [Unreleased]\n\n## [0.0.10-rc.2] - 2026-11-29\n\n## [0.0.10-rc.10] - 2026-11-28\n",
            &tag,
            "newest first",
        ),
    ] {
        let (succeeds, said) = sorted(sections, tag);
        assert!(!succeeds && said.contains(wanted), "{tag} of {sections}: {said}");
    }
}

#[test]
fn notes_are_those_of_the_version() {
    if !has_python() {
        return;
    }
    let sections = format!(
        "## [Unreleased]\n\n### Added\n\n- Later.\n\n## [{VERSION}] - 2026-12-01\n\n### Fixed\n\n- This.\n\n\
         ## [0.0.1] - 2026-11-30\n\n- Before.\n\n[Unreleased]: https://example.com\n"
    );
    let sources = sources_with_changelog(&sections);
    let output = release(sources.path(), &["notes"]);
    assert_eq!(text(&output.stdout), "### Fixed\n\n- This.\n", "{}", text(&output.stderr));
    let sources =
        sources_with_changelog("## [Unreleased]\n\n- Later.\n\n[Unreleased]: https://example.com\n");
    assert_eq!(
        text(&release(sources.path(), &["notes"]).stdout),
        "- Later.\n",
        "before a release, what is to come"
    );
}

fn files_below(folder: &str) -> Vec<(PathBuf, String)> {
    let entries = WalkDir::new(root().join(folder)).into_iter().map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_type().is_file());
    files.map(|file| (file.path().to_owned(), fs::read_to_string(file.path()).unwrap())).collect()
}

/// A tag or branch can be moved to other code, a commit or digest cannot.
#[test]
fn workflows_use_commits_and_digests() {
    let action = Regex::new(r"^uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$").unwrap();
    let own = Regex::new(r"^uses: \./\.github/workflows/\S+").unwrap();
    let image = Regex::new(r"^(image|NODE_IMAGE): \S+@sha256:[0-9a-f]{64}$").unwrap();
    let workflows = files_below(".github/workflows");
    assert!(workflows.len() >= 3);
    let mut pinned = 0;
    for (path, content) in &workflows {
        assert!(
            content.contains("\npermissions: {}\n"),
            "{}: jobs may only what they ask for",
            path.display()
        );
        let fields = content.lines().map(|line| line.trim().trim_start_matches("- "));
        for field in fields
            .filter(|field| ["uses: ", "image: ", "NODE_IMAGE: "].iter().any(|name| field.starts_with(name)))
        {
            let is_pinned = [&action, &own, &image].iter().any(|form| form.is_match(field));
            assert!(is_pinned, "{}: {field}: name a commit with its version, or a digest", path.display());
            pinned += 1;
        }
    }
    assert!(pinned > 10, "only {pinned} fields are looked at");
}

/// Tools come through apt, pip and npm, which know their registries and mirrors, and are pinned by checksum.
#[test]
fn the_gate_has_no_address_of_a_registry() {
    let address = Regex::new(
        r"(?i)\b(https?|ftp)://|pypi\.org|pythonhosted|npmjs|deb\.debian|snapshot\.debian|crates\.io",
    )
    .unwrap();
    for (path, content) in files_below(".ci") {
        for (number, line) in content.lines().enumerate() {
            assert!(!address.is_match(line), "{}:{}: {line}", path.display(), number + 1);
        }
    }
    let tools = fs::read_to_string(root().join(".ci/tools.txt")).unwrap().replace("\\\n", "");
    for package in tools.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        assert!(
            package.contains("==") && package.contains("--hash=sha256:"),
            "{package}: pin it by version and checksum"
        );
    }
}

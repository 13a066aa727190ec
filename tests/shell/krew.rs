//! The manifest of the plugin, as krew and the reviewers of its index check it.

use std::path::Path;

use serde_json::Value;

const ADDED: &str = "{{addURIAndSha \"";
/// The longest short description that the index takes.
const SHORT: usize = 50;

/// The manifest of a release with this tag, whose archives all have the same checksum.
fn manifest(tag: &str) -> (String, Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/krew/.krew.yaml");
    let template = std::fs::read_to_string(path).unwrap().replace("{{ .TagName }}", tag);
    let lines = template.lines().map(|line| match line.trim_start().strip_prefix(ADDED) {
        Some(rest) => {
            let indent = &line[..line.len() - line.trim_start().len()];
            let (address, end) = rest.split_once('"').unwrap();
            assert_eq!(end, " .TagName }}");
            format!("{indent}uri: {address}\n{indent}sha256: {}", "a".repeat(64))
        }
        None => line.to_owned(),
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    let manifest = serde_saphyr::from_str(&text).unwrap();
    (text, manifest)
}

#[test]
fn the_manifest_follows_the_rules_of_the_index() {
    let (text, manifest) = manifest("v1.2.3");
    assert!(!text.contains("{{"), "{text}");
    assert_eq!(manifest["apiVersion"], "krew.googlecontainertools.github.com/v1alpha2");
    assert_eq!((&manifest["kind"], &manifest["metadata"]["name"]), (&"Plugin".into(), &"yardmaster".into()));
    let spec = &manifest["spec"];
    assert_eq!(spec["version"], "v1.2.3");
    let short = spec["shortDescription"].as_str().unwrap();
    assert!(
        short.len() <= SHORT && !short.ends_with('.') && !short.to_lowercase().contains("kubectl"),
        "{short}"
    );
    assert!(spec["description"].as_str().unwrap().lines().all(|line| line.len() <= 80));
    assert!(spec["homepage"].as_str().unwrap().starts_with(env!("CARGO_PKG_REPOSITORY")));
}

#[test]
fn each_platform_has_an_archive_with_the_program() {
    let (_, manifest) = manifest("v1.2.3");
    let platforms = manifest["spec"]["platforms"].as_array().unwrap();
    let mut architectures = Vec::new();
    for platform in platforms {
        let labels = &platform["selector"]["matchLabels"];
        let architecture = labels["arch"].as_str().unwrap();
        assert_eq!(labels["os"], "linux", "the kubelet of the embedded cluster is made for Linux");
        let archive = format!("/v1.2.3/yardmaster-v1.2.3-linux-{architecture}.tar.gz");
        assert!(platform["uri"].as_str().unwrap().ends_with(&archive));
        assert_eq!(platform["sha256"].as_str().unwrap().len(), 64);
        let mut files = platform["files"].as_array().unwrap().iter().map(|file| &file["from"]);
        assert!(files.any(|file| *file == platform["bin"]), "{platform}");
        // Krew refuses a plugin without its licence.
        assert!(platform["files"].as_array().unwrap().iter().any(|file| file["from"] == "LICENSE"));
        architectures.push(architecture);
    }
    assert_eq!(architectures, ["amd64", "arm64"]);
}

//! Manifests, as `yardmaster run` reads them from standard input.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rand::Rng as _;
use rand::rngs::SmallRng;

use crate::driver::{Target, fuzz};
use crate::mutate;

struct Manifests {
    kubeconfig: tempfile::NamedTempFile,
}

/// A cluster that nothing serves: a manifest without faults gets no further.
const KUBECONFIG: &str = "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: \
    {cluster: c, user: u}}], clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u, user: {}}]}";

impl Target for Manifests {
    const NAME: &str = "manifests";

    fn mutate(&self, input: &[u8], others: &[Vec<u8>], random: &mut SmallRng) -> Vec<u8> {
        if random.random_ratio(1, 2) {
            mutate::json_text(input, others, random)
        } else {
            mutate::bytes(input, others, random)
        }
    }

    fn run(&self, input: &[u8]) -> Result<(), String> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_yardmaster"))
            .args(["run", "--kubeconfig"])
            .arg(self.kubeconfig.path())
            .arg("-")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The program may refuse to read all of it.
        let _ = child.stdin.take().unwrap().write_all(input);
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            // Bad input, or no cluster.
            Some(2 | 3) if !errors.contains("panicked") => Ok(()),
            _ => Err(format!("{}: {errors}", output.status)),
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let text = std::fs::read_to_string(path).unwrap();
            let values: Vec<serde_json::Value> = serde_saphyr::from_multiple(&text).unwrap();
            seeds.extend(values.iter().map(|value| value.to_string().into_bytes()));
            seeds.push(text.into_bytes());
        }
    }
    seeds
}

#[test]
fn manifests() {
    let mut kubeconfig = tempfile::NamedTempFile::new().unwrap();
    kubeconfig.write_all(KUBECONFIG.as_bytes()).unwrap();
    fuzz(&Manifests { kubeconfig }, seeds());
}

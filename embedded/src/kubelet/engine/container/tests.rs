#![allow(clippy::unwrap_used)]
use std::os::unix::fs::symlink;
use std::path::Path;

use super::super::test_engine::{reply, serve};
use super::*;
use crate::kubelet::pod::VolumeMount;
use crate::kubelet::sub_path;

/// The outcome of the start of a container with a `subPath`. As soon as it runs, its program does this to the
/// volume.
async fn start(program: impl Fn(&Path) + Send + 'static) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let volume = folder.path().join("volume");
    std::fs::create_dir(&volume).unwrap();
    let mount = VolumeMount { name: "v".into(), ..VolumeMount::default() };
    let source = sub_path::provide(&mount, &volume, "own").unwrap();
    let engine = serve(&folder.path().join("engine"), move |request| {
        Some(if request.contains("/create?") {
            reply("201 Created", r#"{"Id": "abc", "Warnings": []}"#)
        } else if request.contains("/attach?") {
            "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n".into()
        } else {
            if request.contains("/start") {
                program(&volume);
            }
            reply("204 No Content", "")
        })
    });
    let recipe = Recipe {
        name: "c".into(),
        body: bollard::models::ContainerCreateBody::default(),
        stop_signal: "SIGTERM".into(),
        sources: vec![source],
        image_id: String::new(),
        variables: BTreeMap::new(),
    };
    engine.start(recipe).await.map(drop).map_err(|error| error.to_string())
}

/// Podman 4.3 takes some containers that end at once for ones that were only created.
#[tokio::test]
async fn a_code_that_may_be_wrong_is_asked_for_again() {
    let folder = tempfile::tempdir().unwrap();
    let cases =
        [(0, "created", "7", 7), (1, "created", "-1", 0), (2, "created", "no", 0), (3, "exited", "7", 0)];
    for (number, status, kept, expected) in cases {
        let engine = serve(&folder.path().join(format!("engine-{number}")), move |request| {
            Some(if request.contains("/libpod/") {
                reply("200 OK", kept)
            } else if request.contains("/wait") {
                reply("200 OK", r#"{"StatusCode": -1, "Error": null}"#)
            } else {
                let end =
                    format!(r#""ExitCode": 0, "FinishedAt": "2026-01-01T00:00:00Z", "Status": "{status}""#);
                reply("200 OK", &format!(r#"{{"State": {{"Running": false, {end}}}}}"#))
            })
        });
        let container = Container { engine, id: "abc".into(), stop_signal: "SIGTERM".into() };
        assert_eq!(container.ended().await, expected, "{status} {kept}");
    }
}

#[tokio::test]
async fn a_program_may_replace_its_own_part_of_a_volume_but_not_by_a_link_out_of_it() {
    let own = |volume: &Path| volume.join("own");
    let renamed = start(move |volume| std::fs::rename(own(volume), volume.join("old")).unwrap()).await;
    assert_eq!(renamed, Ok(()));
    let replaced = start(move |volume| {
        std::fs::rename(own(volume), volume.join("old")).unwrap();
        std::fs::create_dir(own(volume)).unwrap();
    });
    assert_eq!(replaced.await, Ok(()));
    let linked = start(move |volume| {
        std::fs::remove_dir(own(volume)).unwrap();
        symlink("/etc", own(volume)).unwrap();
    });
    let refused = linked.await.unwrap_err();
    assert!(refused.contains("led out of its volume"), "{refused}");
}

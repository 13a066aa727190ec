#![allow(clippy::unwrap_used)]
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

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

/// Podman prepares a container that has ended for another start if a client attaches to it, and forgets its exit code.
#[tokio::test]
async fn output_that_breaks_off_is_followed_again_only_while_the_container_runs() {
    for is_running in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let attached = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&attached);
        let engine = serve(&folder.path().join("engine"), move |request| {
            Some(if request.contains("/attach?") {
                counted.fetch_add(1, Ordering::Relaxed);
                "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n".into()
            } else {
                reply("200 OK", &format!(r#"{{"State": {{"Running": {is_running}}}}}"#))
            })
        });
        let container = Container { engine, id: "abc".into(), stop_signal: "SIGTERM".into() };
        let output = container.attach_again().await.unwrap();
        assert_eq!((output.is_some(), attached.load(Ordering::Relaxed)), (is_running, u32::from(is_running)));
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

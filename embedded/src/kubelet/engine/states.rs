//! Containers in states that Podman has and Docker has not. The client refuses answers with a state such as `stopped`, so they are
//! read without it. A container that was removed by half, as when Podman is killed meanwhile, hides all others until it is gone.

use bollard::errors::Error;
use bollard::models::{ContainerInspectResponse, ContainerSummary};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Engine;

/// Containers that are removed, at most, before a list.
const MOST_REMOVED_BY_HALF: usize = 1000;

impl Engine {
    /// The containers with this label, running or not. A container that was removed by half is removed.
    pub(super) async fn labelled(&self, label: &str) -> Result<Vec<ContainerSummary>, Error> {
        for _ in 0..MOST_REMOVED_BY_HALF {
            let listed = self.list(label).await;
            let Err(Error::DockerResponseServerError { message, .. }) = &listed else { return listed };
            let Some(id) = removed_by_half(message) else { return listed };
            if self.try_to_remove(id).await.is_err() {
                return listed;
            }
        }
        self.list(label).await
    }

    async fn list(&self, label: &str) -> Result<Vec<ContainerSummary>, Error> {
        let filters = std::collections::HashMap::from([("label", vec![label])]);
        let options = bollard::query_parameters::ListContainersOptionsBuilder::default();
        let options = options.all(true).filters(&filters).build();
        without_state(self.0.docker.list_containers(Some(options)).await, |containers| {
            for container in containers.as_array_mut().into_iter().flatten() {
                forget(container, "State");
            }
        })
    }

    /// The state of a container, and how it was made.
    pub(super) async fn inspect_container(&self, id: &str) -> Result<ContainerInspectResponse, Error> {
        without_state(self.0.docker.inspect_container(id, None).await, |container| {
            forget(&mut container["State"], "Status");
        })
    }
}

/// The container of which Podman says that it was removed by half.
fn removed_by_half(said: &str) -> Option<&str> {
    let rest = said.trim().strip_prefix("getting container from store \"")?;
    rest.strip_suffix("\": container not known")
}

fn forget(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

/// An answer; if it was refused for what it contains, without the state.
fn without_state<T: DeserializeOwned>(
    read: Result<T, Error>,
    forget_state: impl FnOnce(&mut Value),
) -> Result<T, Error> {
    let Err(Error::JsonDataError { contents, .. }) = &read else { return read };
    let Ok(mut answer) = serde_json::from_str(contents) else { return read };
    forget_state(&mut answer);
    serde_json::from_value(answer).or(read)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_container_that_was_removed_by_half_is_known_by_its_id() {
        let said = "getting container from store \"b0834f\": container not known\n";
        assert_eq!(removed_by_half(said), Some("b0834f"));
        assert_eq!(removed_by_half("no such container"), None);
    }

    #[test]
    fn a_state_that_docker_has_not_hides_no_container() {
        let contents = r#"[{"Id": "a", "State": "running"}, {"Id": "b", "State": "stopped"}]"#;
        let refused = serde_json::from_str::<Vec<ContainerSummary>>(contents).unwrap_err();
        let refused =
            Error::JsonDataError { message: refused.to_string(), contents: contents.into(), column: 0 };
        let read: Vec<ContainerSummary> = without_state(Err(refused), |containers| {
            for container in containers.as_array_mut().unwrap() {
                forget(container, "State");
            }
        })
        .unwrap();
        let ids: Vec<_> = read.into_iter().filter_map(|container| container.id).collect();
        assert_eq!(ids, ["a", "b"]);
    }
}

//! Kubernetes' e2e tests of Jobs, with pods in containers.

use super::e2e::conversation::{self, Runtime};
use super::engine;

#[test]
fn what_the_e2e_tests_of_jobs_ask_of_a_cluster_of_containers_is_so() {
    let Some(address) = engine::address() else { return };
    conversation::play(Runtime::Containers, |command| {
        command.env("DOCKER_HOST", address).env_remove("KUBECONFIG");
    });
}

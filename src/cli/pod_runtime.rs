//! What runs the pods of an embedded cluster: a container engine, or this host.

use clap::{Args, ValueEnum};

use super::Failure;

/// The flags that say what runs pods.
#[derive(Args, Clone, Debug)]
pub(super) struct RuntimeArgs {
    /// What runs the containers of pods: the container engine that DOCKER_HOST, a Docker context or a usual socket of
    /// Docker or Podman leads to (containers), this host (processes), or an engine if one answers, else this host (auto).
    #[arg(long, value_name = "RUNTIME", default_value = "auto")]
    pub(super) runtime: RuntimeChoice,
    /// A label of the node of the embedded cluster, for Jobs that select their nodes [default: its name, system and
    /// architecture].
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_label)]
    pub(super) node_label: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum RuntimeChoice {
    Auto,
    Containers,
    Processes,
}

fn parse_label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(feature = "embedded")]
pub(super) use self::available::PodRuntime;

/// None: this build has no embedded cluster.
#[cfg(not(feature = "embedded"))]
#[derive(Debug)]
pub(super) enum PodRuntime {}

#[cfg(not(feature = "embedded"))]
impl PodRuntime {
    pub(super) async fn choose(_args: &RuntimeArgs, _here: bool) -> Result<Self, Failure> {
        Err(Failure::bad_input("this build has no embedded cluster: use --kubeconfig or --context"))
    }
}

#[cfg(feature = "embedded")]
mod available {
    use super::{Failure, RuntimeArgs, RuntimeChoice};
    use yardmaster_embedded::kubelet::engine::Engine;
    use yardmaster_embedded::kubelet::preflight::{Machine, Runtime};
    use yardmaster_embedded::kubelet::{KubeletConfig, KubeletMode, NODE, Workspace};

    /// What runs pods, on a node with these labels.
    #[derive(Clone, Debug)]
    pub(in crate::cli) struct PodRuntime {
        kind: Kind,
        labels: Vec<(String, String)>,
    }

    #[derive(Clone, Debug)]
    enum Kind {
        /// This host, in these folders.
        Processes(Workspace),
        /// An engine.
        Containers(Engine),
    }

    impl PodRuntime {
        /// Finds what runs pods. `here` runs them in the current directory, which only processes can.
        pub(in crate::cli) async fn choose(args: &RuntimeArgs, here: bool) -> Result<Self, Failure> {
            let processes = Kind::Processes(if here { Workspace::OfHost } else { Workspace::OfPod });
            let kind = match args.runtime {
                RuntimeChoice::Containers if here => {
                    return Err(Failure::bad_input(
                        "--here runs pods in the current directory, which only processes can: use --runtime processes",
                    ));
                }
                RuntimeChoice::Auto if here => processes,
                RuntimeChoice::Processes => processes,
                RuntimeChoice::Auto => Engine::find().await.map_or(processes, Kind::Containers),
                RuntimeChoice::Containers => Engine::find().await.map(Kind::Containers).map_err(|error| {
                    Failure::bad_input(format!(
                        "--runtime containers: {error}: start Docker, or `podman system service --time 0`, or set DOCKER_HOST"
                    ))
                })?,
            };
            Ok(Self { kind, labels: args.node_label.clone() })
        }

        /// What pods are.
        pub(in crate::cli) fn describe(&self) -> String {
            match &self.kind {
                Kind::Processes(_) => "processes of this host; images are not pulled".to_owned(),
                Kind::Containers(engine) => format!("containers of {}", engine.name()),
            }
        }

        /// A line that says where pods run.
        pub(in crate::cli) fn announcement(&self) -> String {
            match &self.kind {
                Kind::Processes(_) => {
                    "Embedded cluster: containers run as processes of this host; images are not pulled."
                        .to_owned()
                }
                Kind::Containers(engine) => format!("Embedded cluster: containers run on {}.", engine.name()),
            }
        }

        /// What there may be in the way of pods.
        pub(in crate::cli) fn machine(&self) -> Machine {
            let runtime = match &self.kind {
                Kind::Processes(workspace) => Runtime::Processes(*workspace),
                Kind::Containers(_) => Runtime::Containers,
            };
            Machine::new(NODE, runtime, &self.labels)
        }

        /// A kubelet that runs pods so.
        pub(in crate::cli) fn kubelet(&self) -> KubeletConfig {
            let node_labels = self.labels.iter().cloned().collect();
            let (mode, workspace) = match &self.kind {
                Kind::Processes(workspace) => (KubeletMode::Process, *workspace),
                Kind::Containers(engine) => (KubeletMode::Containers(engine.clone()), Workspace::OfPod),
            };
            KubeletConfig { mode, workspace, node_labels, ..KubeletConfig::default() }
        }
    }
}

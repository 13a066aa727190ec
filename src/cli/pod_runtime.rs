//! The runtime of an embedded cluster's pods: a container engine, or this host.

use clap::{Args, ValueEnum};

use super::Failure;

/// The flags that say what runs pods.
#[derive(Args, Clone, Debug)]
pub(super) struct RuntimeArgs {
    /// What runs the containers of pods: the container engine that DOCKER_HOST, a Docker context or a usual socket of
    /// Docker or Podman leads to (containers), this host (processes), or an engine if one answers, else this host (auto).
    #[arg(long, value_name = "RUNTIME", default_value = "auto")]
    pub(super) runtime: RuntimeChoice,
    /// Where processes find their volumes: at their paths (paths), in folders that variables name
    /// (variables), or at their paths if the kernel allows it (auto).
    #[arg(long, value_name = "WHERE", default_value = "auto")]
    pub(super) volumes: VolumeChoice,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum VolumeChoice {
    Auto,
    Paths,
    Variables,
}

fn parse_label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(feature = "embedded")]
pub(super) use self::available::PodRuntime;

/// Without variants: this build has no embedded cluster.
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
    use super::{Failure, RuntimeArgs, RuntimeChoice, VolumeChoice};
    use yardmaster_embedded::kubelet::engine::Engine;
    use yardmaster_embedded::kubelet::preflight::{Machine, Runtime};
    use yardmaster_embedded::kubelet::{KubeletConfig, KubeletMode, Mounting, NODE, Workspace};

    /// The runtime of pods, on a node with these labels.
    #[derive(Clone, Debug)]
    pub(in crate::cli) struct PodRuntime {
        kind: Kind,
        labels: Vec<(String, String)>,
    }

    #[derive(Clone, Debug)]
    enum Kind {
        /// This host, in these folders, with the volumes there.
        Processes(Workspace, Mounting),
        /// An engine.
        Containers(Engine),
    }

    impl PodRuntime {
        /// Finds what runs pods. `here` runs them in the current directory, which only processes can.
        pub(in crate::cli) async fn choose(args: &RuntimeArgs, here: bool) -> Result<Self, Failure> {
            let workspace = if here { Workspace::OfHost } else { Workspace::OfPod };
            let processes =
                async || Ok::<_, Failure>(Kind::Processes(workspace, mounting(args.volumes).await?));
            let kind = match args.runtime {
                RuntimeChoice::Containers if here => {
                    return Err(Failure::bad_input(
                        "--here runs pods in the current directory, which only processes can: use --runtime processes",
                    ));
                }
                RuntimeChoice::Auto if here => processes().await?,
                RuntimeChoice::Processes => processes().await?,
                RuntimeChoice::Auto => match Engine::find().await {
                    Ok(engine) => Kind::Containers(engine),
                    Err(_) => processes().await?,
                },
                RuntimeChoice::Containers => Engine::find().await.map(Kind::Containers).map_err(|error| {
                    Failure::bad_input(format!(
                        "--runtime containers: {error}: start Docker, or `podman system service --time 0`, or set DOCKER_HOST"
                    ))
                })?,
            };
            Ok(Self { kind, labels: args.node_label.clone() })
        }

        /// The nature of pods: processes or containers.
        pub(in crate::cli) fn describe(&self) -> String {
            match &self.kind {
                Kind::Processes(..) => "processes of this host; images are not pulled".to_owned(),
                Kind::Containers(engine) => format!("containers of {}", engine.name()),
            }
        }

        /// A line that says where pods run.
        pub(in crate::cli) fn announcement(&self) -> String {
            match &self.kind {
                Kind::Processes(..) => {
                    "Embedded cluster: containers run as processes of this host; images are not pulled."
                        .to_owned()
                }
                Kind::Containers(engine) => format!("Embedded cluster: containers run on {}.", engine.name()),
            }
        }

        /// The machine on which pods run.
        pub(in crate::cli) fn machine(&self) -> Machine {
            let runtime = match &self.kind {
                Kind::Processes(workspace, mounting) => Runtime::Processes(*workspace, mounting.clone()),
                Kind::Containers(_) => Runtime::Containers,
            };
            Machine::new(NODE, runtime, &self.labels)
        }

        /// A kubelet that runs pods so.
        pub(in crate::cli) fn kubelet(&self) -> KubeletConfig {
            let node_labels = self.labels.iter().cloned().collect();
            let config = KubeletConfig { node_labels, ..KubeletConfig::default() };
            match &self.kind {
                Kind::Processes(workspace, mounting) => KubeletConfig {
                    mode: KubeletMode::Process,
                    workspace: *workspace,
                    mounting: Some(mounting.clone()),
                    ..config
                },
                Kind::Containers(engine) => {
                    KubeletConfig { mode: KubeletMode::Containers(engine.clone()), ..config }
                }
            }
        }
    }

    /// Where processes find their volumes.
    async fn mounting(choice: VolumeChoice) -> Result<Mounting, Failure> {
        if choice == VolumeChoice::Variables {
            return Ok(Mounting::ByVariable { why: "--volumes variables".into() });
        }
        match Mounting::of_this_host(None).await {
            Mounting::ByVariable { why } if choice == VolumeChoice::Paths => Err(Failure::bad_input(
                format!("--volumes paths: {why}: use --volumes variables, or --runtime containers"),
            )),
            mounting => Ok(mounting),
        }
    }
}

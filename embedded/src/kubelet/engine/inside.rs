//! Commands within a container that runs.

use bollard::exec::{StartExecOptions, StartExecResults};
use bollard::models::ExecConfig;
use futures::StreamExt as _;

use super::{Engine, said};

/// A container in which commands can be run as long as it runs.
#[derive(Clone, Debug)]
pub(in crate::kubelet) struct Inside {
    pub(super) engine: Engine,
    pub(super) id: String,
}

impl Inside {
    /// Runs a command in the container, and returns its exit code with the beginning of its output.
    ///
    /// # Errors
    /// What the engine says if it does not run it.
    pub(in crate::kubelet) async fn exec(
        &self,
        command: &[String],
        most: usize,
    ) -> Result<(i64, Vec<u8>), String> {
        let docker = &self.engine.0.docker;
        let config = ExecConfig {
            cmd: Some(command.to_vec()),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            ..ExecConfig::default()
        };
        let made = docker.create_exec(&self.id, config).await.map_err(|error| said(&error))?;
        let started = docker.start_exec(&made.id, None::<StartExecOptions>).await;
        let mut printed = Vec::new();
        if let StartExecResults::Attached { mut output, .. } = started.map_err(|error| said(&error))? {
            while let Some(Ok(piece)) = output.next().await {
                let bytes = piece.as_ref();
                printed.extend_from_slice(&bytes[..bytes.len().min(most - printed.len())]);
            }
        }
        let ended = docker.inspect_exec(&made.id).await.map_err(|error| said(&error))?;
        let code = ended.exit_code.ok_or("the engine does not know how the command ended")?;
        Ok((code, printed))
    }
}

//! The embedded API server in its own process. It reads faults as lines of JSON from standard input and
//! writes its audit record to a file. It ends when its input ends, or when its data directory refuses a write.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use nix::libc::SIGXFSZ;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use yardmaster_embedded::{ApiServer, ApiServerConfig, AuditRecord, Rbac, User};

use crate::audit::Line;
use crate::faults::TimedFault;

/// Flags of the API server's process.
#[derive(Debug, Args)]
pub(crate) struct ApiServerArgs {
    /// File for a kubeconfig, written once the server is reachable.
    #[arg(long)]
    pub(crate) kubeconfig: PathBuf,
    /// File for the record of writes, which is continued. A pipe is a file, too: /dev/stdout.
    #[arg(long)]
    pub(crate) audit: PathBuf,
    /// Listen address; port 0 picks a free one.
    #[arg(long, default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))]
    pub(crate) listen: SocketAddr,
    /// Directory that keeps objects across restarts [default: in memory only].
    #[arg(long)]
    pub(crate) data_dir: Option<PathBuf>,
    /// Control access by roles, and know this user by a token equal to the name.
    #[arg(long)]
    pub(crate) user: Option<String>,
}

/// Serves until standard input ends.
///
/// # Errors
///
/// If it cannot start, and once the data directory refuses a write.
pub(crate) async fn serve(args: ApiServerArgs) -> Result<()> {
    // A limit of file sizes plays the full disk. With a handler, a write beyond it fails as one to a full disk
    // does; without one, the signal would kill the process.
    let _too_large = signal(SignalKind::from_raw(SIGXFSZ))?;
    let (audit, records) = mpsc::unbounded_channel();
    let file = std::fs::File::options().create(true).append(true).open(&args.audit);
    let file = file.with_context(|| args.audit.display().to_string())?;
    let writer = std::thread::spawn(move || write_records(records, file));
    let config = ApiServerConfig {
        listen: args.listen,
        data_dir: args.data_dir,
        rbac: args
            .user
            .map(|name| Rbac { users: [(name.clone(), User::new(&name, &[]))].into(), denials: None }),
        api_only: true,
        audit: Some(audit),
        ..ApiServerConfig::default()
    };
    let server = Arc::new(ApiServer::start(config).await?);
    let text = serde_saphyr::to_string(&server.kubeconfig())?;
    let part = args.kubeconfig.with_extension("part");
    std::fs::write(&part, text)?;
    // Renamed when complete: a process that waits for the file never reads a part of it.
    std::fs::rename(&part, &args.kubeconfig)?;
    // A thread that waits for standard input would keep the process from ending by itself.
    let input = pipe::Receiver::from_owned_fd(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut lines = BufReader::new(input.context("standard input is no pipe")?).lines();
    let mut faults = tokio::task::JoinSet::new();
    loop {
        let line = tokio::select! {
            line = lines.next_line() => line?,
            why = server.broken() => bail!("data directory: {why}"),
        };
        let Some(line) = line else { break };
        let fault: TimedFault = serde_json::from_str(&line).with_context(|| line.clone())?;
        let server = Arc::clone(&server);
        faults.spawn(async move { fault.play(server.faults()).await });
    }
    faults.shutdown().await;
    if let Some(server) = Arc::into_inner(server) {
        server.shutdown().await;
    }
    // The server has ended, so the channel is closed and the writer ends.
    tokio::task::spawn_blocking(move || writer.join())
        .await?
        .map_err(|_| anyhow::anyhow!("record of writes"))?
}

fn write_records(mut records: mpsc::UnboundedReceiver<AuditRecord>, file: std::fs::File) -> Result<()> {
    let mut out = std::io::BufWriter::with_capacity(1 << 20, file);
    while let Some(first) = records.blocking_recv() {
        let waiting = std::iter::from_fn(|| records.try_recv().ok());
        for record in std::iter::once(first).chain(waiting) {
            serde_json::to_writer(&mut out, &Line::of(record))?;
            out.write_all(b"\n")?;
        }
        // Nothing is kept back while nothing happens: a process that is killed loses no record.
        out.flush()?;
    }
    Ok(())
}

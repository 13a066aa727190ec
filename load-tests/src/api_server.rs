//! The embedded API server in its own process. It reads faults as lines of JSON from standard input and
//! writes its audit record to a file. It ends when its input ends.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::mpsc;
use yardmaster_embedded::{ApiServer, ApiServerConfig, AuditRecord};

use crate::audit::Line;
use crate::faults::TimedFault;

/// Flags of the API server's process.
#[derive(Debug, Args)]
pub(crate) struct ApiServerArgs {
    /// File for a kubeconfig, written once the server is reachable.
    #[arg(long)]
    pub(crate) kubeconfig: PathBuf,
    /// File for the record of writes.
    #[arg(long)]
    pub(crate) audit: PathBuf,
}

/// Serves until standard input ends.
pub(crate) async fn serve(args: ApiServerArgs) -> Result<()> {
    let (audit, records) = mpsc::unbounded_channel();
    let file = std::fs::File::create(&args.audit).with_context(|| args.audit.display().to_string())?;
    let writer = std::thread::spawn(move || write_records(records, file));
    let config = ApiServerConfig { api_only: true, audit: Some(audit), ..ApiServerConfig::default() };
    let server = Arc::new(ApiServer::start(config).await?);
    let text = serde_saphyr::to_string(&server.kubeconfig())?;
    let part = args.kubeconfig.with_extension("part");
    std::fs::write(&part, text)?;
    // Renamed when complete: a process that waits for the file never reads a part of it.
    std::fs::rename(&part, &args.kubeconfig)?;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut faults = tokio::task::JoinSet::new();
    while let Some(line) = lines.next_line().await? {
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
    while let Some(record) = records.blocking_recv() {
        serde_json::to_writer(&mut out, &Line::of(record))?;
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(())
}

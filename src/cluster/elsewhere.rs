//! Requests from other threads, on those of the network.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

use super::transport::{ByteStream, Transport, TransportError};

/// A transport for callers on another runtime. Connections belong to the runtime on which
/// they are opened, and all requests share them, so they are opened on the runtime of the
/// network.
pub struct Elsewhere {
    transport: Arc<dyn Transport>,
    network: Handle,
}

impl Elsewhere {
    /// Runs this transport on this runtime.
    pub fn new(transport: Arc<dyn Transport>, network: Handle) -> Self {
        Self { transport, network }
    }
}

impl Transport for Elsewhere {
    fn open(
        &self,
        request: Request<Bytes>,
    ) -> BoxFuture<'static, Result<Response<ByteStream>, TransportError>> {
        let answer = AbortOnDropHandle::new(self.network.spawn(self.transport.open(request)));
        Box::pin(async move { answer.await.map_err(|_| TransportError("the replica ends".into()))? })
    }
}

//! Measures the requests of kube's own client, as the transport does with all others.

use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use tower::{Layer, Service};

use crate::telemetry::metrics::rest_client::HostMetrics;

/// Wraps a client so that its requests are measured.
#[derive(Clone, Debug)]
pub(super) struct MeasuredLayer(pub(super) HostMetrics);

/// A client whose requests are measured.
#[derive(Clone, Debug)]
pub(super) struct Measured<S> {
    inner: S,
    metrics: HostMetrics,
}

impl<S> Layer<S> for MeasuredLayer {
    type Service = Measured<S>;

    fn layer(&self, inner: S) -> Measured<S> {
        Measured { inner, metrics: self.0.clone() }
    }
}

impl<S, B, R> Service<Request<B>> for Measured<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, task: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(task)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let sent = self.metrics.send(request.method());
        let answered = self.inner.call(request);
        answered.inspect(move |answer| sent.answered(answer.as_ref().ok().map(Response::status))).boxed()
    }
}

//! `rest_client_*`: all requests to the API server, under the names of client-go.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use http::{Method, StatusCode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::labels::{ResponseCode, RestCallLabels, RestRequestLabels, defined_code};
use super::{Buckets, DurationFamily, Group};

/// The metrics of all clients of a process.
#[derive(Clone, Debug)]
pub struct RestClientMetrics {
    requests: Family<RestRequestLabels, Counter>,
    duration: DurationFamily<RestCallLabels>,
}

impl RestClientMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let mut group = Group { registry, prefix: "rest_client" };
        Self {
            requests: group
                .add("requests", "Number of HTTP requests, partitioned by status code, method, and host"),
            duration: group.add_as(
                Family::new_with_constructor(Buckets::REST_CLIENT),
                "request_duration_seconds",
                "Request latency in seconds. Broken down by verb, and host",
            ),
        }
    }

    /// The metrics of requests to one host: `name:port`, without credentials.
    pub fn of_host(&self, host: &str) -> HostMetrics {
        let methods = METHODS.map(|method| MethodSeries { method, ..MethodSeries::default() });
        HostMetrics(Arc::new(Host { all: self.clone(), host: host.into(), methods }))
    }
}

/// The methods of Kubernetes' API. Others share the last entry.
const METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "OTHER"];

/// Codes that are looked up only once.
const FREQUENT: [u16; 6] = [200, 201, 404, 409, 429, 500];

/// The metrics of requests to one host. Clones share everything.
#[derive(Clone, Debug)]
pub struct HostMetrics(Arc<Host>);

#[derive(Debug)]
struct Host {
    all: RestClientMetrics,
    host: Arc<str>,
    methods: [MethodSeries; METHODS.len()],
}

#[derive(Debug, Default)]
struct MethodSeries {
    method: &'static str,
    duration: OnceLock<Histogram>,
    codes: [OnceLock<Counter>; FREQUENT.len()],
}

/// A request that has been sent. It counts when it is dropped: given up, it counts as one without response.
#[derive(Debug)]
pub struct RestRequest {
    host: HostMetrics,
    method: usize,
    sent: Instant,
    code: Option<u16>,
}

impl HostMetrics {
    /// A request with this method is sent now.
    pub fn send(&self, method: &Method) -> RestRequest {
        let known = METHODS.iter().position(|known| *known == method.as_str());
        let method = known.unwrap_or(METHODS.len() - 1);
        RestRequest { host: self.clone(), method, sent: Instant::now(), code: None }
    }
}

impl RestRequest {
    /// The headers of the response have arrived; `None` if there is no response.
    pub fn answered(mut self, status: Option<StatusCode>) {
        self.code = status.map(|status| defined_code(status.as_u16()));
    }
}

impl Drop for RestRequest {
    fn drop(&mut self) {
        let code = self.code;
        let Host { all, host, methods } = &*self.host.0;
        let MethodSeries { method, duration, codes } = &methods[self.method];
        let duration = duration.get_or_init(|| {
            all.duration.get_or_create_owned(&RestCallLabels { verb: method, host: host.clone() })
        });
        duration.observe(self.sent.elapsed().as_secs_f64());
        let series = |code| {
            let code = ResponseCode(code);
            all.requests.get_or_create_owned(&RestRequestLabels { code, method, host: host.clone() })
        };
        match FREQUENT.iter().position(|frequent| Some(*frequent) == code) {
            Some(frequent) => codes[frequent].get_or_init(|| series(code)).inc(),
            None => series(code).inc(),
        };
    }
}

//! The content of `/metrics`, as a reader sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// The labels of a series.
pub(crate) type Labels = BTreeMap<String, String>;

/// The series of one or more replicas.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scrape {
    /// The type of each family.
    pub(crate) types: BTreeMap<String, String>,
    /// The value of each series.
    pub(crate) series: BTreeMap<(String, Labels), f64>,
}

impl Scrape {
    /// Reads Prometheus' text format, or OpenMetrics without its exemplars.
    pub(crate) fn of(text: &str) -> Self {
        let mut scrape = Self::default();
        for line in text.lines() {
            if let Some(family) = line.strip_prefix("# TYPE ") {
                let (name, kind) = family.split_once(' ').unwrap();
                scrape.types.insert(name.to_owned(), kind.to_owned());
            } else if !line.starts_with('#') {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
                let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
                let key = (name.to_owned(), labels_of(labels.strip_suffix('}').unwrap()));
                assert!(scrape.series.insert(key, value).is_none(), "twice: {line}");
            }
        }
        scrape
    }

    /// The sum of both, series by series.
    pub(crate) fn plus(mut self, other: &Self) -> Self {
        self.types.extend(other.types.clone());
        for (series, value) in &other.series {
            *self.series.entry(series.clone()).or_default() += value;
        }
        self
    }

    /// The value of a series: `name`, or `name{label=value,...}`; zero if there is none.
    pub(crate) fn value(&self, series: &str) -> f64 {
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let pairs = labels.strip_suffix('}').unwrap().split(',').filter(|pair| !pair.is_empty());
        let labels = pairs.map(|pair| pair.split_once('=').unwrap());
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        self.series.get(&(name.to_owned(), labels)).copied().unwrap_or(0.0)
    }

    /// The sum of all series of this name.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        self.series.iter().filter(|((series, _), _)| series == name).map(|(_, value)| value).sum()
    }

    /// The names of the labels of a family's series, without `le`.
    pub(crate) fn labels_of(&self, family: &str) -> BTreeSet<String> {
        let of_family = |name: &str| {
            name == family
                || ["_bucket", "_sum", "_count"].iter().any(|end| name.strip_suffix(end) == Some(family))
        };
        let series = self.series.keys().filter(|(name, _)| of_family(name));
        series.flat_map(|(_, labels)| labels.keys()).filter(|label| *label != "le").cloned().collect()
    }
}

/// The labels of `a="1",b="2"`. No value here contains a quote.
fn labels_of(text: &str) -> Labels {
    let mut labels = Labels::new();
    let mut rest = text;
    while let Some((name, more)) = rest.split_once("=\"") {
        let (value, more) = more.split_once('"').unwrap();
        labels.insert(name.to_owned(), value.to_owned());
        rest = more.strip_prefix(',').unwrap_or(more);
    }
    labels
}

/// An address of this host on which no process listens.
pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The content type and the text of `/metrics`. Returns `None` if no process listens.
pub(crate) fn get_metrics(address: SocketAddr, accept: &str) -> Option<(String, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    let request =
        format!("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    let content_type = head.lines().find_map(|line| line.strip_prefix("content-type: "));
    Some((content_type.unwrap().to_owned(), body.to_owned()))
}

//! Scrapes controllers.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use futures::future::join_all;
use http::{Request, Uri};
use jiff::Timestamp;

use super::recording;

/// Scrapes all addresses together, again and again. Returns the recording. If an address does not answer until the
/// next scrape, the scrape is recorded without its series.
///
/// # Errors
///
/// If an address is no URL, or no scrape succeeds.
pub(super) async fn record(addresses: &[Uri], lasting: Duration, every: Duration) -> Result<String> {
    ensure!(!every.is_zero() && lasting >= every, "--every must be above zero, and not above --for");
    let pages = addresses.iter().map(MetricsPage::of).collect::<Result<Vec<_>>>()?;
    let begun = Timestamp::now();
    let mut ticks = tokio::time::interval(every);
    let mut text = String::new();
    for number in 0..=lasting.div_duration_f64(every) as u32 {
        ticks.tick().await;
        // The times are regular, and the same for all addresses, as promtool needs them.
        let time = begun.checked_add(every * number)?;
        let scrapes = pages.iter().map(|page| tokio::time::timeout(every, page.scrape()));
        for (page, scrape) in pages.iter().zip(join_all(scrapes).await) {
            match scrape.unwrap_or_else(|_| Err(anyhow!("no answer in {every:?}"))) {
                Ok(scrape) => recording::append(&mut text, &scrape, &page.instance, time),
                Err(error) => eprintln!("{time}: no scrape of {}: {error:#}", page.instance),
            }
        }
    }
    ensure!(!text.is_empty(), "no scrape has succeeded");
    text.push_str(recording::END);
    Ok(text)
}

/// The metrics of a controller.
struct MetricsPage {
    /// `host:port`, the name that Prometheus gives it.
    instance: String,
    path: String,
    client: kube::Client,
}

impl MetricsPage {
    fn of(address: &Uri) -> Result<Self> {
        let instance = address.authority().with_context(|| format!("no host: {address}"))?.to_string();
        let scheme = address.scheme_str().unwrap_or("http");
        let path = address.path().trim_end_matches('/');
        let path = if path.is_empty() { "/metrics" } else { path }.to_owned();
        let client = kube::Client::try_from(kube::Config::new(format!("{scheme}://{instance}").parse()?))?;
        Ok(Self { instance, path, client })
    }

    async fn scrape(&self) -> Result<String> {
        Ok(self.client.request_text(Request::get(&self.path).body(Vec::new())?).await?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// The address of a server that answers every request with this text.
    fn serve(text: &'static str) -> Uri {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let head: Vec<String> = BufReader::new(&stream)
                    .lines()
                    .map_while(Result::ok)
                    .take_while(|line| !line.is_empty())
                    .collect();
                assert_eq!(head[0], "GET /metrics HTTP/1.1");
                let length = text.len();
                let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length:";
                write!(stream, "{answer} {length}\r\n\r\n{text}").unwrap();
            }
        });
        format!("http://{address}").parse().unwrap()
    }

    /// An address on which no process listens.
    fn dead() -> Uri {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        format!("http://{address}/metrics").parse().unwrap()
    }

    #[tokio::test]
    async fn every_address_that_answers_is_in_each_scrape() {
        let (one, two, dead) = (serve("# TYPE a gauge\na 1\n"), serve("a{x=\"1\"} 2\n"), dead());
        let every = Duration::from_millis(200);
        let text = record(&[one.clone(), two.clone(), dead.clone()], every * 2, every).await.unwrap();
        let of = |address: &Uri| text.matches(address.authority().unwrap().as_str()).count();
        assert_eq!((of(&one), of(&two), of(&dead)), (3, 3, 0), "{text}");
        let recording = recording::Recording::parse(&text).unwrap();
        assert_eq!((recording.scrapes, recording.every), (3, every));
        assert!(text.ends_with(recording::END) && !text.contains("TYPE"), "{text}");
        assert!(record(&[dead], every, every).await.is_err(), "nothing was recorded");
    }
}

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

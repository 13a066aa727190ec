//! Metrics: every one moves when it should and no further, by labels of bounded sets, and the dashboard, the
//! alerts and the documentation speak of what is served.

mod counts;
mod exemplars;
mod labels;
mod load;
mod names;
mod queries;
mod scrape;

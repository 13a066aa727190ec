//! Metrics: every one moves when it should and no further, with labels of bounded sets. The dashboard, the
//! alerts and the documentation name only served metrics.

mod counts;
mod exemplars;
mod labels;
mod load;
mod names;
mod panels;
mod queries;
mod scrape;

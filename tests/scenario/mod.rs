//! Replays recorded scenarios: reads them, plays their steps and compares the resulting states.

pub(crate) mod arena;
pub(crate) mod client;
pub(crate) mod compare;
pub(crate) mod deviation;
pub(crate) mod file;
pub(crate) mod indexes;
pub(crate) mod kubelet;
pub(crate) mod mode;
pub(crate) mod names;
pub(crate) mod observe;
pub(crate) mod play;
pub(crate) mod pod;
pub(crate) mod progress;
pub(crate) mod watch;

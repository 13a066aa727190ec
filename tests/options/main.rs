//! Options that Jobs set by annotation, and the reasons shown for waiting Jobs.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod annotations;
mod leftovers;
mod order;
mod retries;
mod stage;
mod waits;

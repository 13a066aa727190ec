//! What Jobs may ask for by annotation, and what those wait for that do not go on.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod annotations;
mod stage;
mod waits;

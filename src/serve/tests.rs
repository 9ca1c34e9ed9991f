//! The shell on real sockets with real TLS.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod bodies;
mod lifecycle;
mod peer;
mod requests;
mod stage;

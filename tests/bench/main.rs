//! What a decision costs: printed as ratios to a reference of the same run, since milliseconds are a machine's.
//!
//! `cargo bench`: the decision in process, then a write through a real API server. With `-- --core` the first alone.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a benchmark ends where it fails"
)]

#[path = "../cluster/mod.rs"]
mod cluster;
mod decision;
#[path = "../stack/mod.rs"]
mod stack;
mod write;

fn main() {
    decision::run();
    if !std::env::args().any(|argument| argument == "--core") {
        tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(write::run());
    }
}

/// Median and 99th percentile, in microseconds.
fn percentiles(samples: &mut [f64]) -> (f64, f64) {
    samples.sort_by(f64::total_cmp);
    let at = |share: f64| samples[((samples.len() - 1) as f64 * share) as usize];
    (at(0.5), at(0.99))
}

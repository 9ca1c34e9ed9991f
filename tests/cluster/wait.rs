//! Waiting for a condition, never for a time.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How long to wait for something that takes seconds when all is well, on a machine that does much else.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Asks again and again until there is an answer; the error names `what` was waited for.
pub async fn eventually<T>(
    what: &str,
    limit: Duration,
    mut ask: impl AsyncFnMut() -> Option<T>,
) -> Result<T> {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(5);
    loop {
        // A question that is never answered must not outlast the limit either.
        let left = limit.saturating_sub(begun.elapsed());
        if let Ok(Some(answer)) = tokio::time::timeout(left, ask()).await {
            return Ok(answer);
        }
        if begun.elapsed() >= limit {
            bail!("not within {} s: {what}", limit.as_secs());
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

//! The bound on the bytes that all requests in hand take at one time: their bodies, and what reading them takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::metrics::gauge::Gauge;

/// The bytes that all bodies together may take, and how many are taken.
///
/// Taken before a byte is read: the length that the head declares, or, for a chunked body, the buffer as it grows.
/// Nobody waits for a share: a waiting body would hold its connection and its caller's time, and an answer in words is
/// worth more than a late one.
#[derive(Debug)]
pub struct InFlight {
    limit: u64,
    taken: AtomicU64,
    bodies: Gauge,
    bytes: Gauge,
}

/// The share of one body; given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    of: Arc<InFlight>,
    bytes: u64,
}

impl InFlight {
    /// A bound of `limit` bytes that reports into the two gauges.
    pub fn new(limit: u64, bodies: Gauge, bytes: Gauge) -> Arc<Self> {
        Arc::new(Self {
            limit,
            taken: AtomicU64::new(0),
            bodies,
            bytes,
        })
    }

    /// The bytes that all together may take.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// A share of `bytes`, or `None` when it does not fit beside what is taken.
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> Option<Reservation> {
        self.take(bytes)?;
        self.bodies.inc();
        Some(Reservation {
            of: Arc::clone(self),
            bytes,
        })
    }

    fn take(&self, bytes: u64) -> Option<()> {
        self.taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                taken.checked_add(bytes).filter(|sum| *sum <= self.limit)
            })
            .ok()?;
        self.bytes.inc_by(i64::try_from(bytes).unwrap_or(i64::MAX));
        Some(())
    }
}

impl Reservation {
    /// Makes the share at least `bytes`; `None` when that does not fit, and the share stays as it is.
    pub fn grow_to(&mut self, bytes: u64) -> Option<()> {
        let more = bytes.saturating_sub(self.bytes);
        self.of.take(more)?;
        self.bytes += more;
        Some(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.of.taken.fetch_sub(self.bytes, Ordering::Relaxed);
        self.of.bodies.dec();
        self.of
            .bytes
            .dec_by(i64::try_from(self.bytes).unwrap_or(i64::MAX));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn shares_never_exceed_the_bound_and_come_back() {
        let (bodies, bytes) = (Gauge::default(), Gauge::default());
        let all = InFlight::new(100, bodies.clone(), bytes.clone());
        let mut first = all.reserve(60).unwrap();
        assert!(all.reserve(41).is_none());
        let second = all.reserve(30).unwrap();
        assert!(first.grow_to(71).is_none());
        assert_eq!(first.bytes, 60);
        first.grow_to(70).unwrap();
        assert_eq!((bodies.get(), bytes.get()), (2, 100));
        drop(first);
        drop(second);
        assert_eq!((bodies.get(), bytes.get()), (0, 0));
        assert!(all.reserve(100).is_some());
    }

    #[test]
    fn a_length_that_overflows_does_not_fit() {
        let all = InFlight::new(u64::MAX - 1, Gauge::default(), Gauge::default());
        let _one = all.reserve(2).unwrap();
        assert!(all.reserve(u64::MAX).is_none());
    }
}

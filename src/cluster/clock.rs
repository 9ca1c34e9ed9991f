//! What time it is, as the API server has it.
//!
//! Each answer's `Date` (RFC 9110: whole seconds, cut off) bounds the offset of the local clock from both sides; the bounds of the last
//! answers are intersected. Within the bounds the offset nearest to zero is taken, so a good clock is left alone.

use std::{
    collections::VecDeque,
    sync::Mutex,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use http::{Request, Response, header::DATE};
use jiff::{SignedDuration, Timestamp, fmt::rfc2822};
use tower::{Layer, Service};

/// Further off than this, nothing is decided.
pub const MAX_OFFSET: SignedDuration = SignedDuration::from_secs(2);
/// Answers slower than this say too little.
const MAX_ROUND_TRIP: Duration = Duration::from_millis(500);
/// How many answers are kept.
const KEPT: usize = 16;

/// The local clock and what is known of its offset.
#[derive(Debug, Default)]
pub struct Clock {
    samples: Mutex<VecDeque<Bounds>>,
}

/// Local clock minus server clock lies between these, in milliseconds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Bounds {
    low: i64,
    high: i64,
}

/// Why the clock cannot be trusted.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ClockError {
    /// No answer of an API server was seen yet.
    #[error("no answer of the API server was seen yet, so its time is not known")]
    Unknown,
    /// The local clock is off.
    #[error("the local clock is {0} ms off the API server's")]
    Off(i64),
    /// API servers disagree.
    #[error("the API servers' clocks are more than 2 s apart")]
    Apart,
}

impl Clock {
    /// The local clock, uncorrected.
    pub fn local() -> Timestamp {
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place that reads the time"
        )]
        Timestamp::now()
    }

    /// The server's time.
    pub fn now(&self) -> Result<Timestamp, ClockError> {
        let offset = self.offset()?;
        let now = Self::local();
        Ok(now.checked_sub(offset).unwrap_or(now))
    }

    /// Local clock minus server clock.
    pub fn offset(&self) -> Result<SignedDuration, ClockError> {
        let samples = self
            .samples
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let offset = combine(samples.iter().copied())?;
        if offset.abs() > MAX_OFFSET {
            Err(ClockError::Off(millis(offset)))
        } else {
            Ok(offset)
        }
    }

    fn observe(&self, sent: Timestamp, round_trip: Duration, date: Timestamp) {
        if round_trip > MAX_ROUND_TRIP {
            return;
        }
        let since_date = millis(sent.duration_since(date));
        let round_trip = i64::try_from(round_trip.as_millis()).unwrap_or(i64::MAX);
        // The server wrote Date between `sent` and `sent + round_trip`, at a time in [Date, Date + 1 s).
        let bounds = Bounds {
            low: since_date.saturating_sub(1000),
            high: since_date.saturating_add(round_trip),
        };
        let mut samples = self
            .samples
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        samples.push_back(bounds);
        if samples.len() > KEPT {
            samples.pop_front();
        }
    }
}

fn millis(duration: SignedDuration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn combine(samples: impl Iterator<Item = Bounds>) -> Result<SignedDuration, ClockError> {
    let all: Vec<Bounds> = samples.collect();
    let low = all
        .iter()
        .map(|bounds| bounds.low)
        .max()
        .ok_or(ClockError::Unknown)?;
    let high = all
        .iter()
        .map(|bounds| bounds.high)
        .min()
        .ok_or(ClockError::Unknown)?;
    if low.saturating_sub(high) > millis(MAX_OFFSET) {
        return Err(ClockError::Apart);
    }
    // Bounds that miss each other by less are jitter: of what lies between them the offset nearest to zero is taken.
    let (low, high) = if low <= high {
        (low, high)
    } else {
        (high, low)
    };
    Ok(SignedDuration::from_millis(0.clamp(low, high)))
}

/// A client layer that shows every answer's `Date` to a clock.
#[derive(Clone)]
pub struct ObserveDate(pub std::sync::Arc<Clock>);

impl<S> Layer<S> for ObserveDate {
    type Service = Observed<S>;

    fn layer(&self, inner: S) -> Observed<S> {
        Observed {
            inner,
            clock: self.0.clone(),
        }
    }
}

/// See [`ObserveDate`].
#[derive(Clone)]
pub struct Observed<S> {
    inner: S,
    clock: std::sync::Arc<Clock>,
}

impl<S, A, B> Service<Request<A>> for Observed<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: 'static,
    B: 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<B>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let clock = self.clock.clone();
        let sent = Clock::local();
        let started = Instant::now();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let response = answer.await?;
            let date = response
                .headers()
                .get(DATE)
                .and_then(|value| value.to_str().ok());
            if let Some(date) = date.and_then(|text| rfc2822::parse(text).ok()) {
                clock.observe(sent, started.elapsed(), date.timestamp());
            }
            Ok(response)
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn clock(samples: &[(i64, i64)]) -> Result<i64, ClockError> {
        combine(samples.iter().map(|(low, high)| Bounds {
            low: *low,
            high: *high,
        }))
        .map(millis)
    }

    #[test]
    fn a_good_clock_is_left_alone_and_a_bad_one_measured() {
        assert_eq!(clock(&[]), Err(ClockError::Unknown));
        assert_eq!(clock(&[(-900, 110), (-200, 800)]), Ok(0));
        assert_eq!(clock(&[(5000, 6000), (5300, 6300)]), Ok(5300));
        assert_eq!(clock(&[(-7000, -6000)]), Ok(-6000));
    }

    #[test]
    fn servers_more_than_two_seconds_apart_are_noticed() {
        assert_eq!(clock(&[(-500, 500), (3000, 4000)]), Err(ClockError::Apart));
        assert!(clock(&[(-500, 500), (600, 1600)]).is_ok());
    }

    #[test]
    fn an_offset_of_ten_minutes_is_refused() {
        let known = Clock::default();
        let sent: Timestamp = "2026-01-01T10:10:00.5Z".parse().unwrap();
        let date: Timestamp = "2026-01-01T10:00:00Z".parse().unwrap();
        known.observe(sent, Duration::from_millis(3), date);
        assert!(matches!(known.offset(), Err(ClockError::Off(_))));
        assert!(known.now().is_err());
    }
}

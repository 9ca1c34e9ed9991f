//! What the transport and the admission logic say to each other.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::Instant;

use super::inflight::Reservation;

/// The margin kept back from the API server's `?timeout=`, so that the answer is ours and not its time-out.
const MARGIN: Duration = Duration::from_secs(1);

/// The budget where a call names no time-out: the installed five seconds less the margin.
const UNNAMED: Duration = Duration::from_secs(4);

/// The longest `timeoutSeconds` that the API server accepts in a webhook configuration.
const LONGEST: Duration = Duration::from_secs(30);

/// The admission logic behind the transport.
///
/// The future is dropped the moment the API server hangs up (hyper drops the handler with its connection), at any
/// `await` in it. So whatever must be finished once it was begun, a use above all, runs in a task of its own that the
/// implementor spawns, and that holds what it needs by `Arc`. The transport waits for connections when it drains, not
/// for such tasks: the implementor waits for them before the process ends.
///
/// A panic is caught at the request's edge and answered as a denial. Shared state must therefore stay usable when a
/// call unwinds half way.
pub trait Admit: Send + Sync + 'static {
    /// Decides one review. `body` is valid UTF-8, not yet known to be JSON.
    fn admit(
        self: Arc<Self>,
        path: AdmissionPath,
        body: Arc<Body>,
        budget: Budget,
    ) -> BoxFuture<'static, Answer>;
}

/// The three admission endpoints.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AdmissionPath {
    /// `POST /gate/DIGEST`: what agents do; the digest is that of the configuration entry which sent it here.
    Gate {
        /// The path's last segment as sent: not percent-decoded, at most 128 bytes, never empty.
        digest: String,
    },
    /// `POST /guard`: people's writes to our own kinds.
    Guard,
    /// `POST /stamp`: fills in the author of a decision.
    Stamp,
}

impl AdmissionPath {
    /// The word for this endpoint in metrics and logs; it never holds anything of the request.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Gate { .. } => "gate",
            Self::Guard => "guard",
            Self::Stamp => "stamp",
        }
    }
}

/// A request body, whole, with its share of the bound on all bodies in flight.
///
/// The share is given back when the last holder drops it, so a spawned task that keeps the body keeps it counted.
#[derive(Debug)]
pub struct Body {
    text: String,
    _share: Reservation,
}

impl Body {
    pub(super) fn new(text: String, share: Reservation) -> Self {
        Self {
            text,
            _share: share,
        }
    }
}

impl Deref for Body {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

/// How long a call may take.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// When the request's head had arrived.
    pub received: Instant,
    /// When the answer has to be on its way: the API server's time-out less one second.
    pub deadline: Instant,
}

impl Budget {
    /// The budget of a call whose head arrived at `received`, from the query the API server sends (`timeout=5s`).
    ///
    /// The API server rounds the value up to whole seconds; a text that is no duration counts as absent.
    pub fn of_query(received: Instant, query: Option<&str>) -> Self {
        let named = query
            .into_iter()
            .flat_map(|query| query.split('&'))
            .find_map(|pair| pair.strip_prefix("timeout="))
            .and_then(go_duration);
        let span = match named {
            Some(named) => named.min(LONGEST).saturating_sub(MARGIN),
            None => UNNAMED,
        };
        Self {
            received,
            deadline: received + span,
        }
    }
}

/// What the admission logic answers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    /// A complete `admission.k8s.io/v1` AdmissionReview with a response, as JSON. Sent with HTTP 200.
    Review(String),
    /// No uid could be read, so there is nothing to answer to. Sent with HTTP 400 and these words.
    BadRequest(String),
    /// Nothing could be said about a review, not even a denial. Sent with HTTP 500 and these words; the API server
    /// does not repeat the call (no `Retry-After` is ever sent).
    Failed(String),
}

/// Go's text form of a duration (`5s`, `1m30s`, `500ms`), the form in which the API server writes `timeout`.
fn go_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut whole = Duration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let unit_len = tail
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_len);
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
        whole = whole.checked_add(part)?;
        rest = tail;
    }
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(query: Option<&str>) -> Duration {
        let now = Instant::now();
        Budget::of_query(now, query).deadline - now
    }

    #[test]
    fn the_budget_is_the_servers_timeout_less_a_second() {
        assert_eq!(span(Some("timeout=5s")), Duration::from_secs(4));
        assert_eq!(span(Some("dry=1&timeout=10s")), Duration::from_secs(9));
        assert_eq!(span(Some("timeout=1m0s")), Duration::from_secs(29));
        assert_eq!(span(Some("timeout=1500ms")), Duration::from_millis(500));
    }

    #[test]
    fn without_a_readable_timeout_four_seconds_are_taken() {
        for query in [
            None,
            Some(""),
            Some("timeout="),
            Some("timeout=s"),
            Some("timeout=5"),
            Some("timeout=-3s"),
        ] {
            assert_eq!(span(query), Duration::from_secs(4), "{query:?}");
        }
    }

    #[test]
    fn a_time_that_no_clock_holds_is_no_timeout() {
        assert_eq!(
            span(Some("timeout=99999999999999999999999999999h")),
            Duration::from_secs(4)
        );
        assert_eq!(span(Some("timeout=1.2.3s")), Duration::from_secs(4));
    }
}

//! Every metric of the process, with its help text.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

/// The media type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds in seconds. An answer from memory takes well under a millisecond and a use a few; the API server's
/// own histogram starts at 5 ms and cannot see either.
const LATENCY: [f64; 13] = [
    0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0,
];

/// What a decision was. Only words of ours stand in labels, never anything of a request: `&'static str` sees to it.
#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
pub struct Decided {
    /// `gate`, `guard` or `stamp`.
    pub endpoint: &'static str,
    /// `Allow`, `Ask`, `Deny` or `Unready`.
    pub verdict: &'static str,
    /// The word for why: of a denial the `reason` of the answer or its detail word, of an allow what let it through.
    pub reason: &'static str,
}

/// One endpoint of the webhook.
#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
pub struct Endpoint {
    /// `gate`, `guard` or `stamp`.
    pub endpoint: &'static str,
}

/// Why something was refused or cut before a decision.
#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
pub struct Cause {
    /// A word of ours.
    pub cause: &'static str,
}

/// The metrics, shared by all parts of the process. Cloning what is inside shares the values.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Decisions by endpoint, verdict and reason.
    pub decisions: Family<Decided, Counter>,
    /// Seconds from a request's head to its answer.
    pub latency: Family<Endpoint, Histogram, fn() -> Histogram>,
    /// Requests that ended without a decision, by cause.
    pub refused: Family<Cause, Counter>,
    /// Connections that were closed by us, by cause.
    pub cut: Family<Cause, Counter>,
    /// Connections that are open.
    pub connections: Gauge,
    /// Request bodies that are in memory.
    pub bodies_in_flight: Gauge,
    /// Bytes reserved for them.
    pub bytes_in_flight: Gauge,
    /// Panics caught at the edge of a request.
    pub panics: Counter,
    /// End of the serving certificate's validity, seconds since 1970; 0 while there is none.
    pub certificate_not_after: Gauge,
    /// Certificates that were offered to us and could not be used.
    pub certificate_failures: Counter,
    snapshot_age: SnapshotAge,
}

/// Reads the age when it is scraped, so that an age whose writer died keeps rising.
#[derive(Clone, Default)]
struct SnapshotAge(Arc<OnceLock<Age>>);

type Age = Box<dyn Fn() -> Option<Duration> + Send + Sync>;

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All metrics at zero, registered under the prefix `grantgate`.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("grantgate");
        let decisions = Family::default();
        registry.register(
            "decisions",
            "Decisions by endpoint, verdict and reason",
            decisions.clone(),
        );
        let latency: Family<Endpoint, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(LATENCY));
        registry.register_with_unit(
            "answer_duration",
            "From the arrival of a request's head to its answer",
            Unit::Seconds,
            latency.clone(),
        );
        let refused = Family::default();
        registry.register(
            "requests_refused",
            "Requests that ended without a decision, by cause",
            refused.clone(),
        );
        let cut = Family::default();
        registry.register(
            "connections_cut",
            "Connections that were closed on our side, by cause",
            cut.clone(),
        );
        let connections = Gauge::default();
        registry.register(
            "connections",
            "Connections that are open",
            connections.clone(),
        );
        let bodies_in_flight = Gauge::default();
        registry.register(
            "bodies_in_flight",
            "Request bodies in memory",
            bodies_in_flight.clone(),
        );
        let bytes_in_flight = Gauge::default();
        registry.register_with_unit(
            "in_flight",
            "Bytes reserved for request bodies in memory",
            Unit::Bytes,
            bytes_in_flight.clone(),
        );
        let panics = Counter::default();
        registry.register(
            "panics",
            "Panics caught at the edge of a request",
            panics.clone(),
        );
        let certificate_not_after = Gauge::default();
        registry.register_with_unit(
            "certificate_not_after_timestamp",
            "End of the serving certificate's validity since 1970, 0 while there is none",
            Unit::Seconds,
            certificate_not_after.clone(),
        );
        let certificate_failures = Counter::default();
        registry.register(
            "certificate_failures",
            "Certificates that were offered and could not be used",
            certificate_failures.clone(),
        );
        registry.register(
            "build",
            "What is running",
            Info::new([("version", env!("CARGO_PKG_VERSION"))]),
        );
        let snapshot_age = SnapshotAge::default();
        registry.register_collector(Box::new(snapshot_age.clone()));
        Self {
            registry,
            decisions,
            latency,
            refused,
            cut,
            connections,
            bodies_in_flight,
            bytes_in_flight,
            panics,
            certificate_not_after,
            certificate_failures,
            snapshot_age,
        }
    }

    /// Counts one decision.
    pub fn decided(&self, endpoint: &'static str, verdict: &'static str, reason: &'static str) {
        self.decisions
            .get_or_create(&Decided {
                endpoint,
                verdict,
                reason,
            })
            .inc();
    }

    /// Where `grantgate_snapshot_age_seconds` comes from; `None` is "no snapshot yet" and prints nothing. The first
    /// source given stays.
    pub fn read_snapshot_age_from(
        &self,
        age: impl Fn() -> Option<Duration> + Send + Sync + 'static,
    ) {
        let _kept = self.snapshot_age.0.set(Box::new(age));
    }

    /// The OpenMetrics text of all metrics.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl fmt::Debug for SnapshotAge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SnapshotAge")
            .field(&self.0.get().is_some())
            .finish()
    }
}

impl Collector for SnapshotAge {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(age) = self.0.get().and_then(|age| age()) else {
            return Ok(());
        };
        let gauge = ConstGauge::<f64>::new(age.as_secs_f64());
        let metric = encoder.encode_descriptor(
            "snapshot_age",
            "Age of the oldest watch that decisions are made from",
            Some(&Unit::Seconds),
            gauge.metric_type(),
        )?;
        gauge.encode(metric)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn every_metric_has_a_help_text_and_the_text_ends_in_order() {
        let metrics = Metrics::new();
        metrics.decided("gate", "Deny", "ApprovalPending");
        metrics.read_snapshot_age_from(|| Some(Duration::from_millis(1500)));
        metrics
            .latency
            .get_or_create(&Endpoint { endpoint: "gate" })
            .observe(0.0004);
        let text = metrics.text().unwrap();
        for line in text.lines().filter(|line| line.starts_with("# TYPE ")) {
            let name = line.split(' ').nth(2).unwrap();
            let help = text
                .lines()
                .find_map(|l| l.strip_prefix(&format!("# HELP {name} ")));
            assert!(help.is_some_and(|help| help.len() > 10), "{name}");
        }
        assert!(text.contains("grantgate_decisions_total{endpoint=\"gate\",verdict=\"Deny\",reason=\"ApprovalPending\"} 1"), "{text}");
        assert!(
            text.contains("grantgate_snapshot_age_seconds 1.5"),
            "{text}"
        );
        assert!(
            text.contains("le=\"0.0005\"")
                && text.contains("grantgate_answer_duration_seconds_bucket"),
            "{text}"
        );
        assert!(text.contains("grantgate_build_info{version="), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn a_snapshot_that_never_was_has_no_age() {
        let metrics = Metrics::new();
        assert!(!metrics.text().unwrap().contains("snapshot_age"));
        metrics.read_snapshot_age_from(|| None);
        assert!(!metrics.text().unwrap().contains("snapshot_age"));
    }
}

//! Leases of webhook replicas that are long gone.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Preconditions},
};
use tokio::time::Instant;

use crate::cluster::{
    client::within,
    lease::{COMPONENT_LABEL, Replica, WEBHOOK_COMPONENT},
};

/// Leases of replicas that are gone for so long are removed.
const STALE: SignedDuration = SignedDuration::from_secs(600);
/// They are looked for so often.
const EVERY: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(10);

/// Removes them, from time to time.
#[derive(Default)]
pub struct Replicas {
    looked: Option<Instant>,
}

impl Replicas {
    /// Removes what is stale, unless that was done lately.
    pub async fn tidy(&mut self, client: &Client, namespace: &str, now: Timestamp) {
        let moment = Instant::now();
        if self
            .looked
            .is_some_and(|at| moment.duration_since(at) < EVERY)
        {
            return;
        }
        self.looked = Some(moment);
        let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
        let labelled =
            ListParams::default().labels(&format!("{COMPONENT_LABEL}={WEBHOOK_COMPONENT}"));
        let leases = match within(LIMIT, api.list(&labelled)).await {
            Ok(leases) => leases,
            Err(error) => {
                tracing::warn!(%error, "cannot list Leases");
                return;
            }
        };
        for lease in leases.items.iter().filter(|lease| is_stale(lease, now)) {
            let name = Replica::of(lease, now).name;
            let only_this = DeleteParams {
                preconditions: Some(Preconditions {
                    resource_version: lease.resource_version(),
                    uid: lease.uid(),
                }),
                ..DeleteParams::default()
            };
            tracing::info!(lease = name, "removing the Lease of a replica that is gone");
            if let Err(error) = within(LIMIT, api.delete(&name, &only_this)).await {
                tracing::warn!(%error, lease = name, "it could not be removed");
            }
        }
    }
}

/// Whether a replica's Lease ran out long ago.
fn is_stale(lease: &Lease, now: Timestamp) -> bool {
    let spec = lease.spec.as_ref();
    let renewed = spec.and_then(|spec| spec.renew_time.as_ref());
    let last = renewed
        .map(|time| time.0)
        .or_else(|| lease.meta().creation_timestamp.as_ref().map(|time| time.0));
    last.is_some_and(|last| now.duration_since(last) > STALE)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn only_leases_that_ran_out_long_ago_are_removed() {
        let lease: Lease = serde_json::from_value(json!({
            "metadata": {"name": "r"},
            "spec": {"renewTime": "2026-01-01T10:00:00.000000Z"},
        }))
        .unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        assert!(!is_stale(&lease, at("2026-01-01T10:00:20Z")));
        assert!(is_stale(&lease, at("2026-01-01T10:11:00Z")));
        assert!(!is_stale(&Lease::default(), at("2026-01-01T10:11:00Z")));
    }
}

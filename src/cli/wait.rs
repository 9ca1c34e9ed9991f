//! `wait`: for scripts, and for agents that were told to wait.

use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use serde_json::json;

use super::{
    exit::Failure,
    kinds::REQUESTS,
    output::Printed,
    seen::{Seen, state},
    server::{Patience, Server},
};
use crate::decide::ended::{EndReason, Finish};

/// Arguments of `wait`.
#[derive(Args, Debug)]
pub struct WaitArgs {
    /// NAME or NAMESPACE/NAME of an ApprovalRequest.
    pub request: String,
    /// How long to wait, e.g. 10m.
    #[arg(long, default_value = "10m", value_parser = super::span)]
    pub timeout: Duration,
}

/// Waits until a request is decided: 0 approved, also when the grant is spent by now; 5 denied or expired, or its grant is over, revoked
/// or lost; 7 superseded or its grant stale; 4 when the time is over.
pub async fn run(server: &Server, args: WaitArgs) -> Result<Printed, Failure> {
    let patience = Patience::of(args.timeout);
    loop {
        let seen = Seen::read(server, &args.request).await?;
        let now = server.now();
        if let Some(outcome) = outcome(&seen, now) {
            return outcome;
        }
        let left = patience.left();
        if left.is_zero() {
            return Err(Failure::Pending {
                what: format!("{} is still {}", seen.type_name(), state(&seen, now)),
                next: vec![format!(
                    "kubectl grantgate wait {} {}",
                    seen.name,
                    seen.flag()
                )],
            });
        }
        let until_deadline = seen.request.spec.deadline.0.duration_since(now);
        let limit = Duration::try_from(until_deadline)
            .unwrap_or_default()
            .max(Duration::from_secs(1))
            .min(left);
        let revision = seen
            .request
            .metadata
            .resource_version
            .clone()
            .unwrap_or_default();
        server
            .changed(REQUESTS, &seen.namespace, &seen.name, &revision, limit)
            .await;
    }
}

/// The result once there is one.
fn outcome(seen: &Seen, now: Timestamp) -> Option<Result<Printed, Failure>> {
    let named = format!("{} {}", seen.type_name(), state(seen, now));
    let next = vec![format!(
        "kubectl grantgate show {} {}",
        seen.name,
        seen.flag()
    )];
    let done = || {
        Ok(Printed {
            table: format!("{named}\n"),
            document: json!({"request": seen.document}),
            names: vec![seen.type_name()],
            ..Printed::default()
        })
    };
    match seen.finished(now) {
        Some(Finish::GrantEnded(EndReason::Spent)) => Some(done()),
        Some(
            Finish::Denied
            | Finish::Expired
            | Finish::Lost
            | Finish::GrantEnded(EndReason::Expired | EndReason::Revoked),
        ) => Some(Err(Failure::Ended { what: named, next })),
        Some(Finish::Unreadable | Finish::GrantEnded(EndReason::Unreadable)) => {
            Some(Err(Failure::Refused { what: named, next }))
        }
        Some(Finish::Superseded | Finish::GrantEnded(EndReason::Stale)) => {
            Some(Err(Failure::Stale { what: named, next }))
        }
        None => {
            let grant = seen
                .request
                .status
                .as_ref()
                .and_then(|status| status.grant.as_ref());
            let usable = seen.approved() && grant.is_some_and(|grant| grant.uid.is_some());
            usable.then(done)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests"
    )]

    use super::*;
    use crate::cli::fixtures::{grant, seen};

    fn code(status: serde_json::Value, now: &str) -> Option<u8> {
        let seen = seen(json!({}), status);
        outcome(&seen, now.parse().unwrap()).map(|outcome| {
            outcome.map_or_else(
                |failure| failure.exit().code(),
                |printed| printed.exit().code(),
            )
        })
    }

    #[test]
    fn waiting_ends_with_the_code_of_what_came_of_it() {
        let during = "2026-01-01T10:06:00Z";
        assert_eq!(code(json!({}), during), None);
        assert_eq!(code(json!({}), "2026-01-01T10:30:00Z"), Some(5));
        assert_eq!(code(json!({"phase": "Denied"}), during), Some(5));
        assert_eq!(code(json!({"phase": "Superseded"}), during), Some(7));
        assert_eq!(
            code(
                json!({"phase": "Approved", "grant": {"name": "gr-a"}}),
                during
            ),
            None
        );
        assert_eq!(
            code(
                json!({"phase": "Approved", "grant": {"name": "gr-a", "uid": "g1"}}),
                during
            ),
            Some(0)
        );
    }

    #[test]
    fn the_ends_of_a_grant_are_told_apart() {
        let code = |spec: serde_json::Value, status: serde_json::Value, now: &str| {
            let approved = json!({"phase": "Approved", "grant": {"name": "gr-a", "uid": "g1"}});
            let mut seen = seen(json!({}), approved);
            let mut grant = grant("gr-a", spec, status);
            grant["metadata"]["uid"] = json!("g1");
            seen.grant = Some(serde_json::from_value(grant).unwrap());
            let outcome = outcome(&seen, now.parse().unwrap()).unwrap();
            outcome.map_or_else(
                |failure| failure.exit().code(),
                |printed| printed.exit().code(),
            )
        };
        let during = "2026-01-01T10:06:00Z";
        assert_eq!(code(json!({}), json!({"phase": "Exhausted"}), during), 0);
        assert_eq!(code(json!({"uses": 1}), json!({"used": 1}), during), 0);
        assert_eq!(code(json!({"revoked": true}), json!({}), during), 5);
        assert_eq!(code(json!({}), json!({"phase": "Stale"}), during), 7);
        assert_eq!(code(json!({}), json!({}), "2026-01-02T10:00:00Z"), 5);
    }
}

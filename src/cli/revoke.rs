//! `revoke`: ends grants, and says which uses may still land.

use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    exit::Failure,
    kinds::GRANTS,
    output::{Printed, time},
    server::{Refusal, Server, unreadable},
    target,
};
use crate::{
    api::{Grant, grant::UseEffect},
    decide::{spend::WINDOW, visible::visible},
};

/// Arguments of `revoke`.
#[derive(Args, Debug)]
pub struct RevokeArgs {
    /// NAME or NAMESPACE/NAME of Grants.
    #[arg(required = true)]
    pub grants: Vec<String>,
    /// Why; kept in annotation grantgate.dev/revoked-because.
    #[arg(long)]
    pub reason: Option<String>,
}

/// Revokes each grant on its own.
pub async fn run(server: &Server, args: RevokeArgs) -> Result<Printed, Failure> {
    let mut printed = Printed::default();
    let mut documents = Vec::new();
    for argument in &args.grants {
        match one(server, argument, args.reason.as_deref()).await {
            Ok((grant, document)) => {
                let name = format!(
                    "{}/{}",
                    GRANTS.singular,
                    visible(grant.metadata.name.as_deref().unwrap_or_default())
                );
                printed.table.push_str(&format!("{name} revoked\n"));
                printed.table.push_str(&open_uses(&grant, server.now()));
                printed.names.push(name);
                documents.push(document);
            }
            Err(failure) => {
                documents.push(failure.document());
                printed.failures.push(failure);
            }
        }
    }
    printed.document = json!({"items": documents});
    Ok(printed)
}

async fn one(
    server: &Server,
    argument: &str,
    reason: Option<&str>,
) -> Result<(Grant, Value), Failure> {
    let (namespace, name) = server.locate(GRANTS, argument)?;
    let what = format!("revoke grant {namespace}/{name}");
    let text = match server.get(GRANTS, Some(&namespace), &name).await {
        Ok(text) => text,
        Err(Refusal::Status(status)) if status.code == 404 && !status.reason.is_empty() => {
            return Err(Failure::NotFound {
                what: format!("{}/{name} in namespace {namespace}", GRANTS.singular),
                next: vec!["kubectl grantgate grants -A".to_owned()],
            });
        }
        Err(refusal) => {
            return Err(server
                .explain(refusal, "get", GRANTS, Some(&namespace), Some(&name), &what)
                .await);
        }
    };
    let before: Grant = serde_json::from_str(&text).map_err(|error| unreadable(&error))?;
    if before.spec.revoked == Some(true) {
        return Err(Failure::NothingChanged(format!(
            "grant {namespace}/{name} is revoked already"
        )));
    }
    let mut patch = json!({"spec": {"revoked": true}});
    if let Some(reason) = reason {
        patch["metadata"] = json!({"annotations": {"grantgate.dev/revoked-because": reason}});
    }
    let path = format!(
        "{}/{name}?fieldManager=kubectl-grantgate",
        GRANTS.path(Some(&namespace))
    );
    match server.call(http::Method::PATCH, &path, Some(&patch)).await {
        Ok(text) => {
            let grant = serde_json::from_str(&text).map_err(|error| unreadable(&error))?;
            let document = serde_json::from_str(&text).map_err(|error| unreadable(&error))?;
            Ok((grant, document))
        }
        Err(refusal) => Err(server
            .explain(
                refusal,
                "patch",
                GRANTS,
                Some(&namespace),
                Some(&name),
                &what,
            )
            .await),
    }
}

/// Uses that were recorded before and are not settled. Ended or not, what they admitted may still be stored.
fn open_uses(grant: &Grant, now: Timestamp) -> String {
    let uses = grant
        .status
        .iter()
        .flat_map(|status| status.uses.values())
        .filter(|used| used.effect == UseEffect::Pending);
    let mut text = String::new();
    for used in uses {
        let until = used.at.0.saturating_add(WINDOW).unwrap_or(used.at.0);
        let lands = if now < until {
            format!("may still land until {}", time(until))
        } else {
            "has landed or never will; whether it did is not settled yet".to_owned()
        };
        text.push_str(&format!(
            "  use {} of {} recorded at {}: {lands}\n",
            visible(&used.operation_id),
            target::phrase(&grant.spec.action),
            time(used.at.0)
        ));
    }
    if !text.is_empty() {
        let seconds = WINDOW.as_secs();
        text.insert_str(
            0,
            &format!("  a use recorded before may still land within {seconds} s:\n"),
        );
    }
    text
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

    fn used(operation_id: &str, at: &str, effect: &str) -> Value {
        json!({
            "operation": "UPDATE", "operationID": operation_id, "targetUID": "t", "version": "v1", "contentDigest": "c",
            "optionsDigest": "o", "policySetHash": "p", "at": at, "replica": "r", "effect": effect,
        })
    }

    #[test]
    fn open_uses_are_listed_and_settled_ones_are_not() {
        let uses = json!({
            "uses": {
                "a": used("op-old", "2026-01-01T10:00:00Z", "Pending"),
                "b": used("op-new", "2026-01-01T10:00:50Z", "Pending"),
                "c": used("op-done", "2026-01-01T10:00:50Z", "Confirmed"),
            },
        });
        let grant: Grant =
            serde_json::from_value(crate::cli::fixtures::grant("gr-a", json!({}), uses)).unwrap();
        let text = open_uses(&grant, "2026-01-01T10:01:00Z".parse().unwrap());
        assert_eq!(
            text,
            "  a use recorded before may still land within 34 s:\n  \
             use op-old of deployments.apps/scale web/api recorded at 2026-01-01T10:00:00Z: \
             has landed or never will; whether it did is not settled yet\n  \
             use op-new of deployments.apps/scale web/api recorded at 2026-01-01T10:00:50Z: \
             may still land until 2026-01-01T10:01:24Z\n"
        );
    }
}

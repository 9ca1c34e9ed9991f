//! What became of a vote: the controller counts it, or says why it does not count.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::{
    eligible,
    exit::Failure,
    kinds::{DECISIONS, REQUESTS},
    output::Printed,
    seen::{Seen, state},
    server::{Patience, Server, unreadable},
};
use crate::{
    api::{ApprovalDecision, Verdict, approval_request::Vote},
    decide::{
        conditions::{self, COUNTED},
        ended::Finish,
        visible::visible,
    },
};

/// Waits until the controller has counted the vote, or said why it does not count.
pub async fn counted(
    server: &Server,
    mut seen: Seen,
    verdict: Verdict,
    mut decision: ApprovalDecision,
    limit: Duration,
) -> Result<Printed, Failure> {
    let patience = Patience::of(limit);
    let decision_name = decision.metadata.name.clone().unwrap_or_default();
    let argument = format!("{}/{}", seen.namespace, seen.name);
    loop {
        if let Some(outcome) = outcome(&seen, verdict, &decision, server.now()) {
            return outcome;
        }
        let left = patience.left();
        if left.is_zero() {
            return Err(Failure::Pending {
                what: format!(
                    "vote {} on {} is stored, but nobody has counted it within {} s: the controller does that. It is not lost",
                    visible(&decision_name),
                    seen.type_name(),
                    limit.as_secs()
                ),
                next: vec![
                    format!("kubectl grantgate wait {} {}", seen.name, seen.flag()),
                    "kubectl get leases -A -l app.kubernetes.io/name=grantgate".to_owned(),
                ],
            });
        }
        let of_request = seen
            .request
            .metadata
            .resource_version
            .clone()
            .unwrap_or_default();
        let of_decision = decision
            .metadata
            .resource_version
            .clone()
            .unwrap_or_default();
        futures::future::select(
            Box::pin(server.changed(REQUESTS, &seen.namespace, &seen.name, &of_request, left)),
            Box::pin(server.changed(
                DECISIONS,
                &seen.namespace,
                &decision_name,
                &of_decision,
                left,
            )),
        )
        .await;
        seen = Seen::read(server, &argument).await?;
        // Whoever may vote need not be allowed to read votes; the request then says enough.
        if let Ok(text) = server
            .get(DECISIONS, Some(&seen.namespace), &decision_name)
            .await
        {
            decision = serde_json::from_str(&text).map_err(|error| unreadable(&error))?;
        }
    }
}

/// What became of a vote, once something did.
pub fn outcome(
    seen: &Seen,
    verdict: Verdict,
    decision: &ApprovalDecision,
    now: Timestamp,
) -> Option<Result<Printed, Failure>> {
    let uid = decision.metadata.uid.as_deref();
    let votes = seen
        .request
        .status
        .as_ref()
        .map(|status| status.votes.as_slice())
        .unwrap_or_default();
    if let Some(vote) = votes
        .iter()
        .find(|vote| Some(vote.decision.uid.as_str()) == uid)
    {
        if vote.counted && verdict == Verdict::Approve && is_being_minted(seen) {
            return None;
        }
        return Some(if vote.counted {
            Ok(said(seen, &tally(seen, verdict), decision))
        } else {
            Err(not_counted(seen, vote))
        });
    }
    let recorded = decision
        .status
        .as_ref()
        .map(|status| status.conditions.as_slice())
        .unwrap_or_default();
    let refused = conditions::get(recorded, COUNTED)
        .filter(|condition| condition.status == conditions::FALSE);
    if let Some(refused) = refused {
        return Some(Err(lost_vote(seen, &refused.message)));
    }
    let next = vec![format!(
        "kubectl grantgate show {} {}",
        seen.name,
        seen.flag()
    )];
    let named = format!(
        "{} is {}; your vote came too late",
        seen.type_name(),
        state(seen, now)
    );
    match seen.finished(now) {
        Some(Finish::Superseded) => Some(Err(Failure::Stale { what: named, next })),
        Some(Finish::Denied) if verdict == Verdict::Approve => {
            Some(Err(Failure::Ended { what: named, next }))
        }
        Some(Finish::Expired) => Some(Err(Failure::Ended { what: named, next })),
        _ => None,
    }
}

/// Whether the grant is named and not made yet: the agent's call would still be refused, so nobody is told yet that it may come.
fn is_being_minted(seen: &Seen) -> bool {
    let status = seen.request.status.as_ref();
    status
        .and_then(|status| status.grant.as_ref())
        .is_some_and(|grant| grant.uid.is_none())
}

fn not_counted(seen: &Seen, vote: &Vote) -> Failure {
    lost_vote(
        seen,
        vote.why_not.as_deref().unwrap_or("no reason is given"),
    )
}

fn lost_vote(seen: &Seen, why: &str) -> Failure {
    Failure::NotAllowed {
        what: format!(
            "your vote on {} is stored but does not count",
            seen.type_name()
        ),
        missing: vec![visible(why)],
        next: vec![format!(
            "kubectl grantgate show {} {}",
            seen.name,
            seen.flag()
        )],
    }
}

/// What is said of a vote that worked: `approved` or `denied`.
pub fn past(verdict: Verdict) -> &'static str {
    if verdict == Verdict::Approve {
        "approved"
    } else {
        "denied"
    }
}

/// `approved (1 of 2; waiting for …)`.
fn tally(seen: &Seen, verdict: Verdict) -> String {
    if verdict != Verdict::Approve {
        let late = if seen.approved() {
            " after it was approved: its grant ends unused"
        } else {
            ""
        };
        return format!("{}{late}", past(verdict));
    }
    let progress = eligible::progress(&seen.request.spec, seen.request.status.as_ref());
    let counts = format!("{} of {}", progress.have, progress.need);
    let grant = seen
        .request
        .status
        .as_ref()
        .and_then(|status| status.grant.as_ref());
    match (waiting(seen), grant) {
        (_, Some(grant)) if seen.approved() => {
            format!("approved ({counts}; grant {})", visible(&grant.name))
        }
        (Some(waiting), _) if !seen.approved() => format!("approved ({counts}; {waiting})"),
        _ => format!("approved ({counts})"),
    }
}

/// Who is still awaited.
pub fn waiting(seen: &Seen) -> Option<String> {
    let progress = eligible::progress(&seen.request.spec, seen.request.status.as_ref());
    (!progress.waiting.is_empty())
        .then(|| format!("waiting for {}", progress.waiting.join(", and for ")))
}

/// The result of a vote in every format.
pub fn said(seen: &Seen, words: &str, decision: &ApprovalDecision) -> Printed {
    Printed {
        table: format!("{} {words}\n", seen.type_name()),
        names: vec![seen.type_name()],
        document: json!({"request": seen.document, "decision": decision, "result": words}),
        ..Printed::default()
    }
}

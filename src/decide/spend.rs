//! Spending a grant: a new use, an open use served again, or a refusal.
//!
//! One write of a client can call the webhook many times, each with a new admission uid, so "once" cannot mean one admission. It
//! means at most one effect: the API server commits only onto the exact revision it showed, one revision is committed onto once, a
//! uid's generation never falls, and a uid is deleted once. An open use is therefore served again exactly where a second commit
//! is impossible or is the first one's retry.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use crate::{
    api::{
        Grant, Operation,
        approval_request::Base,
        grant::{GrantPhase, GrantStatus, Use, UseEffect},
    },
    decide::{
        conditions,
        live::{self, GrantView, Misfit, StaleReason},
        name,
        proposal::Proposal,
        revision,
    },
};

mod turn;

pub use turn::{Known, Turn, turn};

/// How long an open use may be served again: the API server gives up a request after 34 s.
pub const WINDOW: SignedDuration = SignedDuration::from_secs(34);
/// How many uses of one grant may be open.
pub const MAX_OPEN: usize = 32;
/// How often the witness may move one use.
pub const MAX_WITNESS_MOVES: i32 = 10;

/// What to do with one grant for one proposal.
#[derive(Clone, Debug, PartialEq)]
pub enum Spend {
    /// Write this status with the grant's resourceVersion; admit only if that write succeeds.
    Consume {
        /// The status with the new use.
        status: Box<GrantStatus>,
        /// Id of the new use's operation.
        operation_id: String,
    },
    /// The same review again: the same answer.
    Already {
        /// Id of the use's operation.
        operation_id: String,
    },
    /// An open use serves again; nothing is written. Only valid on a grant that was read live.
    Readmit {
        /// Admission uid of the open use.
        use_uid: String,
        /// Id of the use's operation.
        operation_id: String,
        /// The rule that holds.
        rule: ReadmitRule,
    },
    /// Only a look at every revision in between can tell.
    AskWitness {
        /// Admission uid of the open use.
        use_uid: String,
        /// The revision that the use stands at.
        from: Base,
        /// The revision shown now.
        to: Base,
    },
    /// Nothing can be consumed just now.
    Busy(&'static str),
    /// The grant does not serve.
    Refused(Misfit),
}

/// Why an open use serves again.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ReadmitRule {
    /// The object shown has the resourceVersion of the use.
    SameRevision,
    /// The write raises the generation and the object shown has the generation of the use.
    SameGeneration,
    /// The same object is deleted with the same propagation and no shorter grace.
    SameDeletion,
    /// No revision in between holds the change.
    Witness,
}

/// Decides. `replica` is recorded with a new use. `gone` are admission uids of open uses that the witness found, or could not exclude,
/// to be committed: they serve nobody again, and what the grant has left beside them still does.
pub fn spend(
    view: &GrantView<'_>,
    proposal: &Proposal,
    now: Timestamp,
    replica: &str,
    gone: &[String],
) -> Spend {
    let grant = view.grant;
    let status = grant.status.clone().unwrap_or_default();
    if let Some(known) = status.uses.get(&proposal.admission_uid) {
        return Spend::Already {
            operation_id: known.operation_id.clone(),
        };
    }
    let ended = live::alive(view, now);
    // An open use outlives the last use and the end of the window, but nothing that took the permission away.
    // The phase says only the first end: what had expired, or was spent, may have been revoked since.
    let may_readmit = grant.spec.revoked != Some(true)
        && matches!(ended, Ok(()) | Err(Misfit::Spent | Misfit::Expired { .. }));
    // The newest one only: it was consumed by whoever had found the older ones committed, or could not exclude it.
    let newest = status
        .uses
        .iter()
        .filter(|(_, open)| may_readmit && same_write(open, proposal, now))
        .max_by_key(|(uid, open)| (open.at.0, *uid));
    if let Some((use_uid, open)) = newest.filter(|(uid, _)| !gone.contains(uid)) {
        match live::fits(view, proposal) {
            Ok(()) => {
                if let Some(again) = again(use_uid, open, proposal) {
                    return again;
                }
            }
            Err(stale @ Misfit::Stale { .. }) => return Spend::Refused(stale),
            // Another's write, on behalf of another or under another key: a use serves nobody but whom it was counted for.
            Err(_) => {}
        }
    }
    if let Err(misfit) = ended {
        return Spend::Refused(live::with_fields(misfit, grant, proposal));
    }
    if let Err(misfit) = live::fits(view, proposal) {
        return Spend::Refused(misfit);
    }
    if status
        .uses
        .values()
        .filter(|open| open.effect == UseEffect::Pending)
        .count()
        >= MAX_OPEN
    {
        return Spend::Busy("32 uses of this grant are still open; wait until they are settled");
    }
    consume(grant, status, proposal, now, replica)
}

fn consume(
    grant: &Grant,
    mut status: GrantStatus,
    proposal: &Proposal,
    now: Timestamp,
    replica: &str,
) -> Spend {
    let operation_id = name::operation_id(
        grant.metadata.uid.as_deref().unwrap_or_default(),
        &proposal.admission_uid,
    );
    let used = status.used.unwrap_or(0).saturating_add(1);
    status.used = Some(used);
    status.phase = Some(GrantPhase::Active);
    status.uses.insert(
        proposal.admission_uid.clone(),
        Use {
            operation: proposal.action.operation,
            operation_id: operation_id.clone(),
            target_uid: proposal.object_uid.clone(),
            version: proposal.action.version.clone(),
            subresource: proposal.action.subresource.clone(),
            content_digest: proposal.bound.content_digest.clone(),
            options_digest: proposal.options.digest.clone(),
            grace_seconds: proposal.options.grace_seconds,
            first: proposal.base.clone(),
            shown: proposal.base.clone(),
            witness_moves: 0,
            policy_set_hash: proposal.rules.policy_set_hash.clone(),
            at: MicroTime(now),
            replica: replica.to_owned(),
            effect: UseEffect::Pending,
            settled_at: None,
            evidence: None,
        },
    );
    Spend::Consume {
        status: Box::new(status),
        operation_id,
    }
}

/// Whether an open use is one of this very write, whatever revision it stands at.
fn same_write(open: &Use, proposal: &Proposal, now: Timestamp) -> bool {
    open.effect == UseEffect::Pending
        && now.duration_since(open.at.0) < WINDOW
        && open.operation == proposal.action.operation
        && open.target_uid == proposal.object_uid
        && open.subresource == proposal.action.subresource
        && open.version == proposal.action.version
        && open.content_digest == proposal.bound.content_digest
        && open.options_digest == proposal.options.digest
}

/// How an open use of this write serves again, `None` if it cannot.
fn again(use_uid: &str, open: &Use, proposal: &Proposal) -> Option<Spend> {
    let readmit = |rule| {
        Some(Spend::Readmit {
            use_uid: use_uid.to_owned(),
            operation_id: open.operation_id.clone(),
            rule,
        })
    };
    match proposal.action.operation {
        Operation::Update => {
            let (shown, now_shown) = (open.shown.as_ref()?, proposal.base.as_ref()?);
            if shown.resource_version == now_shown.resource_version {
                return readmit(ReadmitRule::SameRevision);
            }
            // A generation that both sides have and the write raises: committing leaves a higher one, so equal means not committed.
            if proposal.raises_generation
                && shown.generation.is_some()
                && shown.generation == now_shown.generation
            {
                return readmit(ReadmitRule::SameGeneration);
            }
            if !revision::order(&now_shown.resource_version, &shown.resource_version)?.is_gt() {
                return None;
            }
            if open.witness_moves >= MAX_WITNESS_MOVES {
                return Some(Spend::Busy(
                    "the target is written faster than this write can be stored; try when it is quieter",
                ));
            }
            Some(Spend::AskWitness {
                use_uid: use_uid.to_owned(),
                from: shown.clone(),
                to: now_shown.clone(),
            })
        }
        Operation::Delete => match (open.grace_seconds, proposal.options.grace_seconds) {
            (Some(used), Some(asked)) if asked < used => None,
            (Some(_), None) | (None, Some(_)) => None,
            _ => readmit(ReadmitRule::SameDeletion),
        },
        Operation::Create | Operation::Connect | Operation::Unknown => None,
    }
}

/// The status with an open use moved to the revision shown, after the witness saw no revision in between that holds the change.
pub fn moved(grant: &Grant, use_uid: &str, to: &Base) -> Option<GrantStatus> {
    let mut status = grant.status.clone()?;
    let open = status.uses.get_mut(use_uid)?;
    open.shown = Some(to.clone());
    open.witness_moves = open.witness_moves.checked_add(1)?;
    Some(status)
}

/// The status of a grant that went stale.
pub fn stale(grant: &Grant, reason: StaleReason, message: &str, now: Timestamp) -> GrantStatus {
    let mut status = grant.status.clone().unwrap_or_default();
    status.phase = Some(GrantPhase::Stale);
    conditions::set(
        &mut status.conditions,
        conditions::Observed {
            kind: conditions::ENDED,
            status: conditions::TRUE,
            reason: reason.as_str(),
            message,
        },
        grant.metadata.generation,
        now,
    );
    status
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

//! Whether a grant serves a proposal now, and if not, why: one reason for each thing that a grant binds.

use std::{cmp::Ordering, fmt};

use jiff::Timestamp;

use crate::{
    api::{ApprovalRequest, Grant, Operation, PolicyRef, grant::GrantPhase},
    decide::{
        conditions,
        ended::{self, EndReason},
        json, mismatch, options,
        proposal::Proposal,
        revision,
    },
};

/// Why a grant went stale.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum StaleReason {
    /// A touched or declared field of the target changed.
    StateMoved,
    /// The target was deleted and created again.
    TargetReplaced,
    /// A policy began or ceased to match.
    BoundaryCrossed,
    /// A policy that matched says something else now.
    PolicyChanged,
    /// Mount, tool, identity or right was taken away.
    AccessRemoved,
    /// The requester's account was created again.
    RequesterReplaced,
    /// An approver may no longer decide.
    ApproverLost,
    /// The key under which Secret values were fingerprinted is gone.
    KeyLost,
    /// Recorded under a word that is not known here.
    Other,
}

impl StaleReason {
    /// The condition reason.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::StateMoved => "StateMoved",
            Self::TargetReplaced => "TargetReplaced",
            Self::BoundaryCrossed => "BoundaryCrossed",
            Self::PolicyChanged => "PolicyChanged",
            Self::AccessRemoved => "AccessRemoved",
            Self::RequesterReplaced => "RequesterReplaced",
            Self::ApproverLost => "ApproverLost",
            Self::KeyLost => "KeyLost",
            Self::Other => "Stale",
        }
    }

    /// What happened, in words that complete "the permission is stale: …".
    pub fn words(self) -> &'static str {
        match self {
            Self::StateMoved => "the target changed since it was approved",
            Self::TargetReplaced => "the target was deleted and created again",
            Self::BoundaryCrossed => "other policies apply now than when it was approved",
            Self::PolicyChanged => "a policy changed since it was approved",
            Self::AccessRemoved => "access was taken away",
            Self::RequesterReplaced => "the requester's account was created again",
            Self::ApproverLost => "an approver lost the right to decide",
            Self::KeyLost => "the fingerprint key of Secret values was replaced",
            Self::Other => "something that it was bound to changed",
        }
    }

    fn recorded(grant: &Grant) -> Self {
        let reason = grant
            .status
            .as_ref()
            .and_then(|status| conditions::get(&status.conditions, conditions::ENDED))
            .map(|condition| condition.reason.as_str());
        [
            Self::StateMoved,
            Self::TargetReplaced,
            Self::BoundaryCrossed,
            Self::PolicyChanged,
            Self::AccessRemoved,
            Self::RequesterReplaced,
            Self::ApproverLost,
            Self::KeyLost,
        ]
        .into_iter()
        .find(|known| Some(known.as_str()) == reason)
        .unwrap_or(Self::Other)
    }
}

impl fmt::Display for StaleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a grant does not serve a proposal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Misfit {
    /// Something that it was bound to changed; it never serves again.
    Stale {
        /// What.
        reason: StaleReason,
        /// Paths or members that differ, where there are some.
        fields: Vec<String>,
        /// Whether the grant already says so.
        recorded: bool,
    },
    /// A person ended it.
    Revoked,
    /// Its time is over.
    Expired {
        /// End of its time.
        at: Timestamp,
    },
    /// Every use is consumed.
    Spent,
    /// Its time has not come.
    NotYet {
        /// Begin of its time.
        from: Timestamp,
    },
    /// It permits something else.
    Mismatch {
        /// Paths or members that differ.
        fields: Vec<String>,
    },
    /// It holds a word that this version does not know.
    Unreadable,
    /// Its request does not name it: a restored or forged copy.
    Unbacked,
}

/// A grant with what else must be known of it.
#[derive(Clone, Copy, Debug)]
pub struct GrantView<'g> {
    /// The grant.
    pub grant: &'g Grant,
    /// Uid that its request names, `None` while the request is unknown or names none.
    pub backed_by_request: Option<&'g str>,
    /// The change that was approved, from its request, to name differing fields.
    pub approved_change: Option<&'g str>,
}

impl<'g> GrantView<'g> {
    /// A grant among the requests of its action. Both references must agree: the grant names its request by name and uid, and the
    /// request the grant's uid. So a restored or re-created copy of either never works.
    pub fn of(grant: &'g Grant, requests: impl IntoIterator<Item = &'g ApprovalRequest>) -> Self {
        let named = &grant.spec.request_ref;
        let request = requests.into_iter().find(|request| {
            request.metadata.uid.as_deref() == Some(named.uid.as_str())
                && request.metadata.name.as_deref() == Some(named.name.as_str())
        });
        Self {
            grant,
            backed_by_request: request
                .and_then(|request| request.status.as_ref())
                .and_then(|status| status.grant.as_ref())
                .and_then(|named| named.uid.as_deref()),
            approved_change: request.map(|request| request.spec.change.as_str()),
        }
    }
}

/// Whether the grant's own life allows a use now, whatever is proposed.
pub fn alive(view: &GrantView<'_>, now: Timestamp) -> Result<(), Misfit> {
    let grant = view.grant;
    if unreadable(grant) {
        return Err(Misfit::Unreadable);
    }
    let phase = grant.status.as_ref().and_then(|status| status.phase);
    if phase == Some(GrantPhase::Stale) {
        return Err(Misfit::Stale {
            reason: StaleReason::recorded(grant),
            fields: Vec::new(),
            recorded: true,
        });
    }
    if view.backed_by_request != grant.metadata.uid.as_deref() || grant.metadata.uid.is_none() {
        return Err(Misfit::Unbacked);
    }
    match ended::ended(&grant.spec, grant.status.as_ref(), now) {
        Some(EndReason::Revoked) => return Err(Misfit::Revoked),
        Some(EndReason::Expired) => {
            return Err(Misfit::Expired {
                at: grant.spec.not_after.0,
            });
        }
        Some(EndReason::Spent) => return Err(Misfit::Spent),
        Some(EndReason::Stale) => {
            return Err(Misfit::Stale {
                reason: StaleReason::Other,
                fields: Vec::new(),
                recorded: true,
            });
        }
        Some(EndReason::Unreadable) => return Err(Misfit::Unreadable),
        None => {}
    }
    if now < grant.spec.not_before.0 {
        return Err(Misfit::NotYet {
            from: grant.spec.not_before.0,
        });
    }
    Ok(())
}

fn unreadable(grant: &Grant) -> bool {
    use crate::api::approval_policy::{ChangeBinding, StateBinding, VolatileShape};
    let binding = &grant.spec.binding;
    binding.change == ChangeBinding::Unknown
        || binding.state == StateBinding::Unknown
        || binding
            .volatile
            .iter()
            .any(|volatile| volatile.shape == VolatileShape::Unknown)
        || grant.spec.action.operation == Operation::Unknown
        || grant
            .status
            .as_ref()
            .is_some_and(|status| status.phase == Some(GrantPhase::Unknown))
}

/// Whether the grant binds just this proposal. Each bound thing alone makes it fail, with its own reason.
pub fn fits(view: &GrantView<'_>, proposal: &Proposal) -> Result<(), Misfit> {
    let spec = &view.grant.spec;
    let stale = |reason, fields| {
        Err(Misfit::Stale {
            reason,
            fields,
            recorded: false,
        })
    };
    let mismatch = |field: &str| {
        Err(Misfit::Mismatch {
            fields: vec![field.to_owned()],
        })
    };
    if spec.action_key != proposal.action_key {
        return mismatch("actionKey");
    }
    if spec.requester.on_behalf_of != proposal.requester.on_behalf_of {
        return mismatch("requester.onBehalfOf");
    }
    if spec.action.version != proposal.action.version {
        return mismatch("action.version");
    }
    if !options_fit(&spec.action.options, &proposal.options.canonical) {
        return mismatch("action.options");
    }
    // What a deletion changes is its options, and those were compared above: its grace may be longer.
    let deletion = proposal.action.operation == Operation::Delete;
    if !deletion && spec.change_digest != proposal.bound.change_digest {
        let fields = match view.approved_change {
            Some(approved) => mismatch::differing(approved, &proposal.bound.change),
            None => vec!["change".to_owned()],
        };
        return Err(Misfit::Mismatch { fields });
    }
    if spec.requester.uid != proposal.requester.uid {
        return stale(
            StaleReason::RequesterReplaced,
            vec!["requester.uid".to_owned()],
        );
    }
    if spec.action.target_uid != proposal.action.target_uid {
        return stale(
            StaleReason::TargetReplaced,
            vec!["action.targetUID".to_owned()],
        );
    }
    if spec.policy_set_hash != proposal.rules.policy_set_hash {
        let reason = if same_policies(&spec.policies, &proposal.rules.policies) {
            StaleReason::PolicyChanged
        } else {
            StaleReason::BoundaryCrossed
        };
        return stale(
            reason,
            mismatch::policies(&spec.policies, &proposal.rules.policies),
        );
    }
    if spec.state_digest != proposal.bound.state_digest {
        return stale(
            StaleReason::StateMoved,
            mismatch::differing(&spec.state, &proposal.bound.state),
        );
    }
    if spec.binding != proposal.rules.binding {
        return stale(StaleReason::PolicyChanged, vec!["binding".to_owned()]);
    }
    Ok(())
}

/// A recorded staleness with the fields that differ now: the record holds only the reason.
pub fn with_fields(misfit: Misfit, grant: &Grant, proposal: &Proposal) -> Misfit {
    let Misfit::Stale {
        reason,
        recorded: true,
        ..
    } = misfit
    else {
        return misfit;
    };
    let fields = match reason {
        StaleReason::StateMoved => mismatch::differing(&grant.spec.state, &proposal.bound.state),
        StaleReason::TargetReplaced => vec!["action.targetUID".to_owned()],
        StaleReason::RequesterReplaced => vec!["requester.uid".to_owned()],
        StaleReason::PolicyChanged | StaleReason::BoundaryCrossed => {
            mismatch::policies(&grant.spec.policies, &proposal.rules.policies)
        }
        _ => Vec::new(),
    };
    Misfit::Stale {
        reason,
        fields,
        recorded: true,
    }
}

fn same_policies(approved: &[PolicyRef], now: &[PolicyRef]) -> bool {
    let names = |policies: &[PolicyRef]| {
        let mut names: Vec<_> = policies
            .iter()
            .map(|p| (p.kind.clone(), p.namespace.clone(), p.name.clone()))
            .collect();
        names.sort();
        names
    };
    names(approved) == names(now)
}

/// Options bind whole, but a deletion may leave more time than was approved.
fn options_fit(approved: &str, proposed: &str) -> bool {
    if approved == proposed {
        return true;
    }
    let (Some(approved), Some(proposed)) = (without_grace(approved), without_grace(proposed))
    else {
        return false;
    };
    approved.0 == proposed.0
        && match (approved.1, proposed.1) {
            (Some(approved), Some(proposed)) => proposed >= approved,
            (None, None) => true,
            _ => false,
        }
}

fn without_grace(options: &str) -> Option<(String, Option<i64>)> {
    let document = json::read(options).ok()?;
    // Normalising what is normal changes nothing.
    let read = options::normalised_options(Some(document.root()));
    Some((read.without_grace, read.grace_seconds))
}

/// Whether a replica may record what it found: stale is final, so it must never be false.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MayRecord {
    /// The review itself shows it, on a revision at least as new as the one that was approved.
    Yes,
    /// It follows from copies of policies, labels and agents, which may lag: only once they are seen to be what the API server has.
    IfPresent,
    /// The review shows an older revision than was approved.
    No,
}

/// Whether this replica may record that the grant is stale for this reason.
pub fn may_record(grant: &Grant, proposal: &Proposal, reason: StaleReason) -> MayRecord {
    let shown = revision::shown_against(grant.spec.base.as_ref(), proposal.base.as_ref());
    if !shown.is_some_and(Ordering::is_ge) {
        return MayRecord::No;
    }
    match reason {
        StaleReason::PolicyChanged | StaleReason::BoundaryCrossed => MayRecord::IfPresent,
        _ => MayRecord::Yes,
    }
}

#[cfg(test)]
mod tests;

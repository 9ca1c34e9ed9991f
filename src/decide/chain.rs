//! Which request stands for a proposal: the pending one, the next in the chain, or none.
//!
//! Requests of one *pair* (action key and what is asked) form a chain: each names the one that ended before it. The name of the
//! next is a hash of the pair and its predecessor's uid, so racing replicas meet on one name.

use std::cmp::Ordering;

use jiff::{SignedDuration, Timestamp};

use crate::{
    api::{
        ApprovalRequest, Grant, approval_decision::Verdict, approval_request::Previous,
        approval_request::RequestPhase,
    },
    decide::{
        conditions,
        ended::{self, EndReason},
        live::StaleReason,
        name,
        proposal::Proposal,
        revision,
    },
};

/// Condition reason of a request that the API server stored otherwise than it was sent.
pub const NOT_AS_FILED: &str = "NotAsFiled";
/// How long nothing is filed after such a one: whatever alters them is still there.
const ALTERED: SignedDuration = SignedDuration::from_secs(60);

/// A request with the grant that it names, where that is known.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'r> {
    /// The request.
    pub request: &'r ApprovalRequest,
    /// The grant of `status.grant`; `None`: not known or gone.
    pub grant: Option<&'r Grant>,
    /// Whether the grant was looked for live: only then does its absence say that it is gone. Requests and grants come by two watches,
    /// and either may be ahead.
    pub looked: bool,
}

/// What stands for a proposal.
#[derive(Clone, Debug)]
pub enum Link<'r> {
    /// This request is pending for just this proposal.
    Pending(&'r ApprovalRequest),
    /// This request is approved and its grant is not usable yet, or not known here yet.
    Approved(&'r ApprovalRequest),
    /// A person said no a moment ago.
    CoolingDown {
        /// The denied request.
        denied: &'r ApprovalRequest,
        /// When the same may be asked again.
        until: Timestamp,
    },
    /// Mark this one Superseded by compare-and-swap, then look again.
    Supersede {
        /// The pending request.
        request: &'r ApprovalRequest,
        /// What differs. Policies follow from copies, which may lag: those must be seen to be present first, as for a grant.
        reason: StaleReason,
    },
    /// The API server stored the last one otherwise than it was sent, a moment ago: another would fare the same.
    Altered {
        /// That request.
        request: &'r ApprovalRequest,
    },
    /// This one holds a word that this version does not know: nothing is decided.
    Unreadable(&'r ApprovalRequest),
    /// The review shows an older object than the pending request: nothing is written.
    OldView(&'r ApprovalRequest),
    /// File a request under this name.
    File {
        /// Name of the request.
        name: String,
        /// The one that ended before it.
        previous: Option<Previous>,
    },
}

/// The pair's part beside the action key: what is asked, by which account, for whom.
pub fn asked(proposal: &Proposal) -> String {
    asked_of(
        &proposal.bound.change_digest,
        &proposal.options.canonical,
        &proposal.action.version,
        proposal.requester.uid.as_deref(),
        proposal.requester.on_behalf_of.as_deref(),
    )
}

/// The same of a stored request.
pub fn asked_by(request: &ApprovalRequest) -> String {
    let spec = &request.spec;
    asked_of(
        &spec.change_digest,
        &spec.action.options,
        &spec.action.version,
        spec.requester.uid.as_deref(),
        spec.requester.on_behalf_of.as_deref(),
    )
}

fn asked_of(
    change: &str,
    options: &str,
    version: &str,
    uid: Option<&str>,
    on_behalf_of: Option<&str>,
) -> String {
    name::short(&[
        change,
        options,
        version,
        uid.unwrap_or_default(),
        on_behalf_of.unwrap_or_default(),
    ])
}

/// Finds the link. `requests` are those of the proposal's action key; others than of its pair are left out here.
pub fn link<'r>(requests: &[RequestView<'r>], proposal: &Proposal, now: Timestamp) -> Link<'r> {
    let asked = asked(proposal);
    let of_pair: Vec<&RequestView<'r>> = requests
        .iter()
        .filter(|view| asked_by(view.request) == asked)
        .collect();
    for view in &of_pair {
        match finished(view, now) {
            Some(ended::Finish::Unreadable | ended::Finish::GrantEnded(EndReason::Unreadable)) => {
                return Link::Unreadable(view.request);
            }
            Some(ended::Finish::Lost)
                if view.grant.is_none() && !view.looked && !told_lost(view) =>
            {
                return Link::Approved(view.request);
            }
            Some(_) => continue,
            None => {}
        }
        let request = view.request;
        if request
            .status
            .as_ref()
            .is_some_and(|status| status.phase == Some(RequestPhase::Approved))
        {
            return Link::Approved(request);
        }
        let spec = &request.spec;
        let same_state = spec.state_digest == proposal.bound.state_digest
            && spec.action.target_uid == proposal.action.target_uid;
        let same_rules = spec.policy_set_hash == proposal.rules.policy_set_hash;
        if same_state && same_rules {
            return Link::Pending(request);
        }
        if !shown_is_newer(request, proposal, same_state) {
            return Link::OldView(request);
        }
        let reason = if spec.action.target_uid != proposal.action.target_uid {
            StaleReason::TargetReplaced
        } else if !same_state && spec.binding == proposal.rules.binding {
            StaleReason::StateMoved
        } else {
            StaleReason::PolicyChanged
        };
        return Link::Supersede { request, reason };
    }
    let newest = of_pair.iter().find(|view| {
        let uid = view.request.metadata.uid.as_deref();
        !of_pair
            .iter()
            .any(|other| other.request.spec.previous.as_ref().map(|p| p.uid.as_str()) == uid)
    });
    let previous = newest.map(|view| Previous {
        name: view.request.metadata.name.clone().unwrap_or_default(),
        uid: view.request.metadata.uid.clone().unwrap_or_default(),
        reason: why_ended(view, now).to_owned(),
    });
    if let Some(view) = newest
        && let Some(until) = cooling_down(view.request)
        && now < until
    {
        return Link::CoolingDown {
            denied: view.request,
            until,
        };
    }
    if let Some(view) = newest
        && altered_until(view.request).is_some_and(|until| now < until)
    {
        return Link::Altered {
            request: view.request,
        };
    }
    let name = name::request_name(
        &proposal.action_key,
        &asked,
        previous.as_ref().map(|p| p.uid.as_str()),
    );
    Link::File { name, previous }
}

/// Whether the controller recorded that the grant is gone.
fn told_lost(view: &RequestView<'_>) -> bool {
    let status = view.request.status.as_ref();
    status.is_some_and(|status| conditions::holds(&status.conditions, conditions::GRANT_LOST))
}

fn shown_is_newer(request: &ApprovalRequest, proposal: &Proposal, same_state: bool) -> bool {
    let filed = request.spec.base.as_ref();
    match revision::shown_against(filed, proposal.base.as_ref()) {
        Some(Ordering::Greater) => true,
        // Of one revision the state is one, so only the policies can differ; a CREATE shows none.
        Some(Ordering::Equal) => same_state || filed.is_none(),
        Some(Ordering::Less) | None => false,
    }
}

fn cooling_down(request: &ApprovalRequest) -> Option<Timestamp> {
    let status = request.status.as_ref()?;
    let denial = match status.phase {
        Some(RequestPhase::Denied) => status.ended_at.as_ref()?.0,
        // A no after the yes takes the permission back and leaves the phase.
        Some(RequestPhase::Approved) => {
            let denials = status
                .votes
                .iter()
                .filter(|vote| vote.counted && vote.verdict == Verdict::Deny);
            denials.map(|vote| vote.at.0).max()?
        }
        _ => return None,
    };
    denial
        .checked_add(SignedDuration::from_secs(i64::from(
            request.spec.denial_cooldown_seconds,
        )))
        .ok()
}

/// Until when nothing more is filed after a request that the API server stored otherwise than it was sent.
fn altered_until(request: &ApprovalRequest) -> Option<Timestamp> {
    let status = request.status.as_ref()?;
    let decided = conditions::get(&status.conditions, conditions::DECIDED)?;
    if status.phase != Some(RequestPhase::Superseded) || decided.reason != NOT_AS_FILED {
        return None;
    }
    status.ended_at.as_ref()?.0.checked_add(ALTERED).ok()
}

/// Why a request is finished, if it is.
pub fn finished(view: &RequestView<'_>, now: Timestamp) -> Option<ended::Finish> {
    let request = view.request;
    let uid = request.metadata.uid.as_deref().unwrap_or_default();
    ended::finished(uid, &request.spec, request.status.as_ref(), view.grant, now)
}

/// Why a request, or its grant, no longer serves: one word for `spec.previous.reason`.
fn why_ended(view: &RequestView<'_>, now: Timestamp) -> &'static str {
    finished(view, now).map_or("Unknown", ended::Finish::word)
}

/// Words for a stale reason of the grant that a predecessor names.
pub fn stale_words(reason: StaleReason, fields: &[String]) -> String {
    if fields.is_empty() {
        reason.words().to_owned()
    } else {
        format!("{} ({})", reason.words(), fields.join(", "))
    }
}

#[cfg(test)]
mod tests;

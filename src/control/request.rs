//! ApprovalRequests: counting, ending, and the one grant.
//!
//! The order of writes makes one grant per request: first the name of the grant, with the phase, in the request; then the grant under
//! that name; then its uid in the request. Each can be repeated after a crash: the name is a function of the request's, the grant's
//! content of what is stored. A grant whose uid is not in its request never serves, and an uid that is there is never replaced.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference};
use kube::Resource;

use crate::{
    api::{
        ApprovalRequest, ApprovalRequestStatus, Grant, GrantSpec,
        approval_request::{GrantRef, RequestPhase},
        grant::{GrantPhase, RequestRef},
    },
    control::{access::Standing, votes},
    decide::{
        conditions::{self, DECIDED, GRANT_LOST, Observed},
        name,
        policy::MAX_DURATION_SECONDS,
        quorum::{Outcome, Tally},
        record::microseconds,
        visible,
    },
};

/// What to do with a request.
#[derive(Clone, Debug)]
pub enum Plan {
    /// Nothing until something changes.
    Nothing,
    /// Write this status onto the exact revision that was looked at.
    Write {
        /// The status.
        status: Box<ApprovalRequestStatus>,
        /// What to tell people, if it is news.
        news: Option<News>,
    },
    /// Read the grant that the request names, then plan again.
    Look,
    /// Create this grant, then plan again.
    Mint(Box<Grant>),
    /// End the grant, which was not used, in these words.
    EndGrant(String),
}

/// What became of something, for people.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct News {
    /// CamelCase.
    pub reason: &'static str,
    /// In words.
    pub note: String,
    /// Whether somebody should look.
    pub warning: bool,
}

/// The grant under the name that a request's grant has.
#[derive(Clone, Copy, Debug)]
pub enum Named<'g> {
    /// Not looked yet.
    Unknown,
    /// Looked live: there is none.
    Absent,
    /// There is one.
    There(&'g Grant),
}

/// What the recorded approvals come to when they are counted again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Terms {
    /// They still suffice, for so many uses and seconds.
    Hold {
        /// Uses; `None`: not counted.
        uses: Option<i32>,
        /// Seconds; `None`: the installation's maximum.
        duration_seconds: Option<i32>,
    },
    /// They do not, in words.
    Lost(String),
    /// It cannot be told now.
    Unknown,
}

/// Plans for a request that waits for people. `tally` is `None` while votes cannot be counted, for the reason in `uncounted`.
pub fn pending(
    request: &ApprovalRequest,
    tally: Option<&Tally>,
    uncounted: Option<&str>,
    standing: &Standing,
    now: Timestamp,
) -> Plan {
    let mut status = request.status.clone().unwrap_or_default();
    if let Some(tally) = tally {
        status.votes = votes::rows(&status.votes, &tally.votes);
    }
    let outcome = tally.map(|tally| &tally.outcome);
    if let Some(Outcome::Denied {
        by,
        decision,
        reason,
    }) = outcome
    {
        let mut words = format!("{by} said no ({decision})");
        if let Some(reason) = reason {
            words.push_str(": ");
            words.push_str(reason);
        }
        return ended(request, status, RequestPhase::Denied, "Denied", &words, now);
    }
    if now >= request.spec.deadline.0 {
        return ended(
            request,
            status,
            RequestPhase::Expired,
            "Expired",
            "nobody decided in time",
            now,
        );
    }
    if let Standing::Void { reason, words } = standing {
        return ended(
            request,
            status,
            RequestPhase::Superseded,
            reason.as_str(),
            words,
            now,
        );
    }
    if let Some(Outcome::Approved { .. }) = outcome {
        let by: Vec<String> = status
            .votes
            .iter()
            .filter(|vote| vote.counted)
            .map(|vote| vote.username.clone())
            .collect();
        status.grant = Some(GrantRef {
            name: name::grant_name(request.metadata.name.as_deref().unwrap_or_default()),
            uid: None,
        });
        let words = format!("approved by {}", by.join(", "));
        return ended(
            request,
            status,
            RequestPhase::Approved,
            "Approved",
            &words,
            now,
        );
    }
    let observed = match (outcome, uncounted) {
        (_, Some(why)) => Some((conditions::UNKNOWN, "NotCounted", why.to_owned())),
        (Some(Outcome::Waiting { missing }), None) if !status.votes.is_empty() => {
            Some((conditions::FALSE, "Waiting", missing.join("; ")))
        }
        _ => None,
    };
    if let Some((value, reason, words)) = observed {
        let words = visible::one_line(&words, 1024);
        set(request, &mut status, DECIDED, value, reason, &words, now);
    }
    changed(request, status, None)
}

/// Plans for a request that was approved. `late`: a count of the votes, while one that says no can still matter.
pub fn approved(
    request: &ApprovalRequest,
    named: Named<'_>,
    late: Option<&Tally>,
    terms: &Terms,
    now: Timestamp,
) -> Plan {
    let mut status = request.status.clone().unwrap_or_default();
    let Some(grant_ref) = status.grant.clone() else {
        return Plan::Nothing;
    };
    if conditions::holds(&status.conditions, GRANT_LOST) {
        return Plan::Nothing;
    }
    if let Some(late) = late {
        let rows = votes::added(&status.votes, &late.votes);
        if rows != status.votes {
            status.votes = rows;
            return Plan::Write {
                status: Box::new(status),
                news: None,
            };
        }
    }
    let denial = late.and_then(|late| match &late.outcome {
        Outcome::Denied { by, decision, .. } => {
            Some(format!("{by} said no before the first use ({decision})"))
        }
        _ => None,
    });
    let uid = request.metadata.uid.as_deref().unwrap_or_default();
    let mut lost = |reason: &'static str, words: &str| {
        let words = visible::one_line(words, 1024);
        set(
            request,
            &mut status,
            GRANT_LOST,
            conditions::TRUE,
            reason,
            &words,
            now,
        );
        Plan::Write {
            status: Box::new(status.clone()),
            news: Some(News {
                reason: GRANT_LOST,
                note: words,
                warning: true,
            }),
        }
    };
    if let Some(written) = grant_ref.uid {
        return match named {
            Named::Unknown => Plan::Look,
            Named::There(grant) if grant.metadata.uid.as_ref() == Some(&written) => {
                match denial.filter(|_| unused(grant)) {
                    Some(words) => Plan::EndGrant(words),
                    None => Plan::Nothing,
                }
            }
            Named::Absent | Named::There(_) => lost(
                "Gone",
                "the grant is gone; no other one is made for this request",
            ),
        };
    }
    if let Some(words) = denial {
        return lost("Denied", &words);
    }
    let (uses, duration_seconds) = match terms {
        Terms::Unknown => return Plan::Nothing,
        Terms::Lost(words) => return lost("ApprovalLost", words),
        Terms::Hold {
            uses,
            duration_seconds,
        } => (*uses, *duration_seconds),
    };
    let minted = mint(request, &grant_ref.name, uses, duration_seconds);
    match named {
        Named::Unknown => Plan::Look,
        Named::Absent => Plan::Mint(Box::new(minted)),
        Named::There(grant) if grant.spec.request_ref.uid != uid => lost(
            "NameTaken",
            "a grant of another request has the name of this one's",
        ),
        Named::There(grant) if !same(&grant.spec, &minted.spec) => lost(
            "NotAsMinted",
            "the grant of this name permits something else than was approved",
        ),
        Named::There(grant) => {
            status.grant = Some(GrantRef {
                name: grant_ref.name,
                uid: grant.metadata.uid.clone(),
            });
            Plan::Write {
                status: Box::new(status),
                news: Some(News {
                    reason: "Granted",
                    note: "the permission is there: the identical call will be let through"
                        .to_owned(),
                    warning: false,
                }),
            }
        }
    }
}

/// Whether a grant serves still and has not served yet.
fn unused(grant: &Grant) -> bool {
    let status = grant.status.as_ref();
    let active = status
        .and_then(|status| status.phase)
        .is_none_or(|phase| phase == GrantPhase::Active);
    active && status.and_then(|status| status.used).unwrap_or(0) == 0
}

/// Whether a grant permits just what we would mint; a person may have ended it meanwhile.
fn same(there: &GrantSpec, minted: &GrantSpec) -> bool {
    let mut there = there.clone();
    there.revoked = None;
    there == *minted
}

/// The one grant of an approved request: a function of what is stored, whoever makes it and when.
pub fn mint(
    request: &ApprovalRequest,
    name: &str,
    uses: Option<i32>,
    duration_seconds: Option<i32>,
) -> Grant {
    let spec = &request.spec;
    let approved_at = request
        .status
        .as_ref()
        .and_then(|status| status.ended_at.as_ref())
        .map_or(spec.deadline.0, |time| time.0);
    let seconds = duration_seconds
        .unwrap_or(MAX_DURATION_SECONDS)
        .clamp(0, MAX_DURATION_SECONDS);
    let until = approved_at
        .checked_add(SignedDuration::from_secs(i64::from(seconds)))
        .unwrap_or(Timestamp::MAX);
    let request_name = request.metadata.name.clone().unwrap_or_default();
    let request_uid = request.metadata.uid.clone().unwrap_or_default();
    let mut grant = Grant::new(
        name,
        GrantSpec {
            request_ref: RequestRef {
                name: request_name.clone(),
                uid: request_uid.clone(),
            },
            action_key: spec.action_key.clone(),
            requester: spec.requester.clone(),
            action: spec.action.clone(),
            base: spec.base.clone(),
            change_digest: spec.change_digest.clone(),
            state: spec.state.clone(),
            state_digest: spec.state_digest.clone(),
            binding: spec.binding.clone(),
            policies: spec.policies.clone(),
            policy_set_hash: spec.policy_set_hash.clone(),
            uses,
            not_before: MicroTime(microseconds(approved_at)),
            not_after: MicroTime(microseconds(until)),
            revoked: None,
        },
    );
    grant
        .metadata
        .namespace
        .clone_from(&request.metadata.namespace);
    grant.metadata.owner_references = Some(vec![owner(&request_name, &request_uid)]);
    grant
}

/// The reference by which a record goes when its request goes.
pub fn owner(name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: ApprovalRequest::api_version(&()).into_owned(),
        kind: ApprovalRequest::kind(&()).into_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        controller: None,
        block_owner_deletion: None,
    }
}

fn ended(
    request: &ApprovalRequest,
    mut status: ApprovalRequestStatus,
    phase: RequestPhase,
    reason: &'static str,
    words: &str,
    now: Timestamp,
) -> Plan {
    let words = visible::one_line(words, 1024);
    status.phase = Some(phase);
    status.ended_at = Some(MicroTime(microseconds(now)));
    let decided = matches!(phase, RequestPhase::Approved | RequestPhase::Denied);
    let value = if decided {
        conditions::TRUE
    } else {
        conditions::FALSE
    };
    set(request, &mut status, DECIDED, value, reason, &words, now);
    let told = match phase {
        RequestPhase::Superseded => "Superseded",
        _ => reason,
    };
    Plan::Write {
        status: Box::new(status),
        news: Some(News {
            reason: told,
            note: words,
            warning: !decided,
        }),
    }
}

fn set(
    request: &ApprovalRequest,
    status: &mut ApprovalRequestStatus,
    kind: &str,
    value: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let observed = Observed {
        kind,
        status: value,
        reason,
        message,
    };
    conditions::set(
        &mut status.conditions,
        observed,
        request.metadata.generation,
        now,
    );
}

/// A write only where something differs from what is stored.
fn changed(request: &ApprovalRequest, status: ApprovalRequestStatus, news: Option<News>) -> Plan {
    if request.status.clone().unwrap_or_default() == status {
        Plan::Nothing
    } else {
        Plan::Write {
            status: Box::new(status),
            news,
        }
    }
}

#[cfg(test)]
mod tests;

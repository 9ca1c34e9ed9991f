//! Counting votes: who counted on whose behalf, why the others did not, and what it comes to.
//!
//! A vote counts for a policy if its author holds verb `approve` on that policy *and* stands in a row's `from` (an empty `from`
//! asks for the verb alone). Every row of every policy that needs approvers must be met, and within one policy a person counts in
//! one row only: who stands in two is counted where that meets more of them. A
//! ServiceAccount counts only where `from` names that very account: never through a group or as a user.
//!
//! One denial by anybody who could approve ends it, also one by a person who said yes before, and also one that comes after
//! enough others said yes: then the caller revokes what was minted and is not used yet. So the outcome does not depend on the
//! order in which votes are seen. A person's first vote that counts stands; saying yes twice adds nothing.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp};

use super::{
    policy::approver_words,
    standing::{self, Bar, Known},
};
use crate::api::{
    ApprovalDecision, ApprovalRequest, PolicyRef,
    approval_decision::{Approver, DecidedRequest, Verdict},
    approval_policy::{ApproverSubject, Approvers},
    approval_request::{DecisionRef, Vote},
    reference::{SERVICE_ACCOUNT, Validity},
};

/// Why an agent's vote does not count.
const AGENT: &str = "its author is an agent's identity, and agents do not approve";

/// The request that is voted on.
#[derive(Clone, Copy, Debug)]
pub struct Ballot<'a> {
    /// Name of the request.
    pub name: &'a str,
    /// Uid of the request.
    pub uid: &'a str,
    /// `spec.digest` of the request.
    pub digest: &'a str,
    /// The policies of its snapshot; those with approvers count.
    pub policies: &'a [PolicyRef],
    /// How often and how long a grant would serve.
    pub validity: &'a Validity,
    /// Username of the requester.
    pub requester: &'a str,
    /// `owner.user` of the requester's AgentIdentity.
    pub owner_user: Option<&'a str>,
    /// Votes count that were made before this time, and only until now has reached it.
    pub deadline: Timestamp,
    /// Votes from before this time prove nothing: their author may have been forged.
    pub guard_since: Timestamp,
    /// The time.
    pub now: Timestamp,
}

/// One decision as found, with what the API server says about its author.
#[derive(Clone, Debug)]
pub struct CastVote {
    /// The ApprovalDecision.
    pub decision: DecisionRef,
    /// Its stamped author.
    pub approver: Option<Approver>,
    /// What they said.
    pub verdict: Verdict,
    /// Why, in their words.
    pub reason: Option<String>,
    /// `metadata.creationTimestamp`.
    pub created_at: Timestamp,
    /// The requests that it names.
    pub requests: Vec<DecidedRequest>,
    /// How it narrows the grant.
    pub validity: Option<Validity>,
    /// Policies, as [`policy_label`] writes them, on which the author holds verb `approve` in the target's namespace.
    pub may_approve: BTreeSet<String>,
    /// The author is a gated identity.
    pub gated: bool,
}

impl<'a> Ballot<'a> {
    /// The ballot of a request at `now`.
    pub fn of(
        request: &'a ApprovalRequest,
        owner_user: Option<&'a str>,
        guard_since: Timestamp,
        now: Timestamp,
    ) -> Self {
        Self {
            name: request.metadata.name.as_deref().unwrap_or_default(),
            uid: request.metadata.uid.as_deref().unwrap_or_default(),
            digest: &request.spec.digest,
            policies: &request.spec.policies,
            validity: &request.spec.validity,
            requester: &request.spec.requester.username,
            owner_user,
            deadline: request.spec.deadline.0,
            guard_since,
            now,
        }
    }
}

impl CastVote {
    /// The vote that a decision casts, with what the API server says about its author.
    pub fn of(
        decision: &ApprovalDecision,
        created_at: Timestamp,
        may_approve: BTreeSet<String>,
        gated: bool,
    ) -> Self {
        let spec = &decision.spec;
        Self {
            decision: DecisionRef {
                name: decision.metadata.name.clone().unwrap_or_default(),
                uid: decision.metadata.uid.clone().unwrap_or_default(),
            },
            approver: spec.approver.clone(),
            verdict: spec.verdict,
            reason: spec.reason.clone(),
            created_at,
            requests: spec.requests.clone(),
            validity: spec.validity.clone(),
            may_approve,
            gated,
        }
    }
}

/// What the votes come to.
#[derive(Clone, Debug, PartialEq)]
pub struct Tally {
    /// Every vote, by time and then name, with why it does not count.
    pub votes: Vec<Vote>,
    /// What it comes to.
    pub outcome: Outcome,
}

/// What the votes come to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// More is needed: one line for each row that is not met.
    Waiting {
        /// In words.
        missing: Vec<String>,
    },
    /// Every row is met.
    Approved {
        /// Uses of the grant; `None`: not counted.
        uses: Option<i32>,
        /// Seconds that it serves; `None`: the installation's maximum.
        duration_seconds: Option<i32>,
    },
    /// Somebody who could approve said no.
    Denied {
        /// Their username.
        by: String,
        /// Their decision.
        decision: String,
        /// Why.
        reason: Option<String>,
    },
    /// The deadline passed before every row was met, or before that was seen.
    Expired,
}

/// A row of approvers, and who met it.
struct Row<'a> {
    policy: String,
    from: &'a [ApproverSubject],
    count: usize,
    people: BTreeSet<String>,
}

/// `Kind/name` or `Kind/namespace/name`.
pub fn policy_label(policy: &PolicyRef) -> String {
    match &policy.namespace {
        Some(namespace) => format!("{}/{namespace}/{}", policy.kind, policy.name),
        None => format!("{}/{}", policy.kind, policy.name),
    }
}

/// Counts the votes on a request.
pub fn tally(ballot: &Ballot<'_>, votes: &[CastVote]) -> Tally {
    let mut in_order: Vec<&CastVote> = votes.iter().collect();
    in_order.sort_by(|a, b| {
        (a.created_at, &a.decision.name, &a.decision.uid).cmp(&(
            b.created_at,
            &b.decision.name,
            &b.decision.uid,
        ))
    });

    let mut rows = rows(ballot);
    let mut approved_by: BTreeSet<String> = BTreeSet::new();
    let mut denied: Option<&CastVote> = None;
    let mut validity = ballot.validity.clone();
    let mut counted_votes = Vec::with_capacity(in_order.len());
    for vote in in_order {
        let counted = eligible(ballot, vote, &approved_by);
        if let Ok(behalf) = &counted {
            match vote.verdict {
                Verdict::Deny => denied = denied.or(Some(vote)),
                _ => {
                    let username = vote
                        .approver
                        .as_ref()
                        .map(|approver| approver.username.clone())
                        .unwrap_or_default();
                    for row in rows.iter_mut().filter(|row| behalf.contains(&row.policy)) {
                        if vote
                            .approver
                            .as_ref()
                            .is_some_and(|approver| stands_in(row.from, approver))
                        {
                            row.people.insert(username.clone());
                        }
                    }
                    validity = narrowed(&validity, vote.validity.as_ref());
                    approved_by.insert(username);
                }
            }
        }
        counted_votes.push(as_vote(vote, counted));
    }
    Tally {
        votes: counted_votes,
        outcome: outcome(ballot, &rows, denied, &validity),
    }
}

fn rows<'a>(ballot: &Ballot<'a>) -> Vec<Row<'a>> {
    needed(ballot)
        .flat_map(|(policy, approvers)| {
            approvers.required.iter().map(move |row| Row {
                policy: policy.clone(),
                from: &row.from,
                // A count that makes no sense cannot be met.
                count: usize::try_from(row.count)
                    .ok()
                    .filter(|count| *count > 0)
                    .unwrap_or(usize::MAX),
                people: BTreeSet::new(),
            })
        })
        .collect()
}

fn needed<'a>(ballot: &Ballot<'a>) -> impl Iterator<Item = (String, &'a Approvers)> {
    ballot.policies.iter().filter_map(|policy| {
        policy
            .approvers
            .as_ref()
            .map(|approvers| (policy_label(policy), approvers))
    })
}

fn outcome(
    ballot: &Ballot<'_>,
    rows: &[Row<'_>],
    denied: Option<&CastVote>,
    validity: &Validity,
) -> Outcome {
    if let Some(vote) = denied {
        return Outcome::Denied {
            by: vote
                .approver
                .as_ref()
                .map(|approver| approver.username.clone())
                .unwrap_or_default(),
            decision: vote.decision.name.clone(),
            reason: vote.reason.clone(),
        };
    }
    if ballot.now >= ballot.deadline {
        return Outcome::Expired;
    }
    let mut missing: Vec<String> = rows
        .chunk_by(|a, b| a.policy == b.policy)
        .flat_map(|of_policy| of_policy.iter().zip(places(of_policy)))
        .filter(|(row, filled)| *filled < row.count)
        .map(|(row, filled)| {
            format!(
                "{} more of {} ({})",
                row.count.saturating_sub(filled),
                approver_words(row.from),
                row.policy
            )
        })
        .collect();
    if rows.is_empty() {
        missing
            .push("no policy of the request names approvers, so nobody can approve it".to_owned());
    }
    if missing.is_empty() {
        Outcome::Approved {
            uses: validity.uses,
            duration_seconds: validity.duration_seconds,
        }
    } else {
        Outcome::Waiting { missing }
    }
}

/// How many people each row of one policy has when each person stands in one row only, and as many places as possible are filled.
fn places(rows: &[Row<'_>]) -> Vec<usize> {
    let mut holds: BTreeMap<&str, usize> = BTreeMap::new();
    for (number, row) in rows.iter().enumerate() {
        for _ in 0..row.count.min(row.people.len()) {
            if !fill(rows, number, &mut holds, &mut BTreeSet::new()) {
                break;
            }
        }
    }
    (0..rows.len())
        .map(|number| holds.values().filter(|row| **row == number).count())
        .collect()
}

/// One more person for a row: somebody who stands nowhere, or whose own row finds another.
fn fill<'r>(
    rows: &'r [Row<'_>],
    number: usize,
    holds: &mut BTreeMap<&'r str, usize>,
    seen: &mut BTreeSet<&'r str>,
) -> bool {
    let people = rows.get(number).into_iter().flat_map(|row| &row.people);
    for person in people {
        if holds.get(person.as_str()) == Some(&number) || !seen.insert(person) {
            continue;
        }
        let free = match holds.get(person.as_str()).copied() {
            None => true,
            Some(other) => fill(rows, other, holds, seen),
        };
        if free {
            holds.insert(person, number);
            return true;
        }
    }
    false
}

/// The policies on whose behalf a vote counts, or why it does not count.
fn eligible(
    ballot: &Ballot<'_>,
    vote: &CastVote,
    approved_by: &BTreeSet<String>,
) -> Result<BTreeSet<String>, String> {
    let Some(approver) = vote
        .approver
        .as_ref()
        .filter(|approver| !approver.username.is_empty())
    else {
        return Err("it names no author: it was stored without the stamp".to_owned());
    };
    sees_this_request(ballot, vote)?;
    if vote.created_at < ballot.guard_since {
        return Err("it is from before its author could be proven: decide again".to_owned());
    }
    if vote.created_at >= ballot.deadline {
        return Err(format!(
            "it came at or after the deadline {}",
            ballot.deadline
        ));
    }
    if vote.gated {
        return Err(AGENT.to_owned());
    }
    if vote.verdict == Verdict::Unknown {
        return Err("this version does not know the verdict: use Approve or Deny".to_owned());
    }
    let blank = vote
        .reason
        .as_deref()
        .is_none_or(|reason| reason.trim().is_empty());
    if blank
        && needed(ballot).any(|(_, approvers)| approvers.require_reason.contains(&vote.verdict))
    {
        return Err(format!("a reason is required for {:?}", vote.verdict));
    }
    let numbers = vote
        .validity
        .iter()
        .flat_map(|validity| [validity.uses, validity.duration_seconds])
        .flatten();
    if numbers.min().is_some_and(|least| least < 1) {
        return Err("its validity must be at least one use and one second".to_owned());
    }
    let behalf = on_behalf(ballot, vote, approver)?;
    if vote.verdict == Verdict::Approve && approved_by.contains(&approver.username) {
        return Err("its author approved already, and a person counts once".to_owned());
    }
    Ok(behalf)
}

fn sees_this_request(ballot: &Ballot<'_>, vote: &CastVote) -> Result<(), String> {
    let named = vote
        .requests
        .iter()
        .find(|request| request.name == ballot.name);
    let Some(named) = named else {
        return Err("it names other requests".to_owned());
    };
    if named.uid != ballot.uid {
        return Err("it names another request of the same name (the uid differs)".to_owned());
    }
    if !digest_fits(&named.digest, ballot.digest) {
        return Err("it is about another content: the digest differs".to_owned());
    }
    Ok(())
}

/// The whole digest, or a beginning with at least 8 of its hexadecimal digits.
fn digest_fits(named: &str, whole: &str) -> bool {
    let hex = named.rsplit(':').next().unwrap_or_default();
    named.matches(':').count() == 2 && hex.len() >= 8 && whole.starts_with(named)
}

fn on_behalf(
    ballot: &Ballot<'_>,
    vote: &CastVote,
    approver: &Approver,
) -> Result<BTreeSet<String>, String> {
    let mut behalf = BTreeSet::new();
    let mut refusals: BTreeMap<u8, String> = BTreeMap::new();
    for (policy, approvers) in needed(ballot) {
        let holds_verb = vote.may_approve.contains(&policy);
        let known = Known {
            gated: vote.gated,
            holds_verb,
            requester: ballot.requester,
            owner_user: ballot.owner_user,
        };
        let bars = standing::bars(approvers, approver, known);
        if bars.contains(&Bar::Gated) {
            refusals.insert(0, AGENT.to_owned());
        } else if bars.contains(&Bar::Requester) || bars.contains(&Bar::Owner) {
            refusals.insert(
                0,
                format!("its author made or owns the request, and {policy} forbids that"),
            );
        } else if bars.contains(&Bar::Membership) {
            let who: Vec<String> = approvers
                .required
                .iter()
                .map(|row| approver_words(&row.from))
                .collect();
            let also = if holds_verb {
                ""
            } else {
                ", and verb approve on the policy (RBAC) is missing too"
            };
            refusals.insert(
                2,
                format!(
                    "its author is not among the approvers of {policy}: {}{also}",
                    who.join("; ")
                ),
            );
        } else if bars.contains(&Bar::Verb) {
            refusals.insert(
                1,
                format!("its author does not hold verb approve on {policy} (RBAC)"),
            );
        } else {
            behalf.insert(policy);
        }
    }
    match refusals.into_values().next() {
        Some(refusal) if behalf.is_empty() => Err(refusal),
        None if behalf.is_empty() => Err("no policy of the request names approvers".to_owned()),
        _ => Ok(behalf),
    }
}

/// Membership in a row. An empty row holds every person, and no ServiceAccount.
pub fn stands_in(from: &[ApproverSubject], approver: &Approver) -> bool {
    if approver.username.starts_with(SERVICE_ACCOUNT) {
        return from
            .iter()
            .filter_map(|subject| subject.service_account.as_ref())
            .any(|account| account.username() == approver.username);
    }
    from.is_empty()
        || from.iter().any(|subject| {
            subject.user.as_ref() == Some(&approver.username)
                || subject
                    .group
                    .as_ref()
                    .is_some_and(|group| approver.groups.contains(group))
        })
}

/// Votes only narrow.
fn narrowed(validity: &Validity, by: Option<&Validity>) -> Validity {
    let least = |a: Option<i32>, b: Option<i32>| a.into_iter().chain(b).min();
    match by {
        None => validity.clone(),
        Some(by) => Validity {
            uses: least(validity.uses, by.uses),
            duration_seconds: least(validity.duration_seconds, by.duration_seconds),
        },
    }
}

fn as_vote(vote: &CastVote, counted: Result<BTreeSet<String>, String>) -> Vote {
    let (policies, why_not) = match counted {
        Ok(behalf) => (behalf.into_iter().collect(), None),
        Err(why_not) => (Vec::new(), Some(why_not)),
    };
    Vote {
        decision: vote.decision.clone(),
        username: vote
            .approver
            .as_ref()
            .map(|approver| approver.username.clone())
            .unwrap_or_default(),
        verdict: vote.verdict,
        reason: vote.reason.clone(),
        at: MicroTime(vote.created_at),
        policies,
        counted: why_not.is_none(),
        why_not,
    }
}

#[cfg(test)]
mod tests;

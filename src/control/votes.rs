//! Votes as they stand: the decisions that name a request, with what the API server says about their authors now.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::{Client, ResourceExt};

use crate::{
    api::{ApprovalDecision, ApprovalRequest, approval_request::Vote},
    cluster::rights::Person,
    control::rights::Rights,
    decide::{quorum::CastVote, visible, world::World},
};

/// Votes that a request can hold.
pub const MAX_VOTES: usize = 64;
/// Longest word on why a vote does not count.
const MAX_WHY: usize = 1024;

/// The decisions of a request's namespace that name it, with their authors' rights no older than `age`. An error: not every author's
/// rights are known, and then nothing is counted.
pub async fn gather(
    client: &Client,
    rights: &Rights,
    world: &World,
    request: &ApprovalRequest,
    decisions: &[Arc<ApprovalDecision>],
    age: Duration,
) -> Result<Vec<CastVote>, String> {
    let mut votes = Vec::new();
    for decision in naming(request, decisions) {
        let approver = decision.spec.approver.as_ref();
        let may_approve = match approver {
            None => BTreeSet::new(),
            Some(author) => {
                let person = Person::from(author);
                rights.on(client, &person, request, age).await?
            }
        };
        let gated = approver.is_some_and(|author| {
            world
                .agents
                .declares(&author.username, author.groups.iter().map(String::as_str))
        });
        let created_at = decision
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(Timestamp::MIN, |time| time.0);
        votes.push(CastVote::of(decision, created_at, may_approve, gated));
    }
    Ok(votes)
}

/// The decisions that are about a request, by its namespace, name and uid.
pub fn naming<'d>(
    request: &ApprovalRequest,
    decisions: &'d [Arc<ApprovalDecision>],
) -> impl Iterator<Item = &'d Arc<ApprovalDecision>> {
    let (namespace, name, uid) = (request.namespace(), request.name_any(), request.uid());
    decisions.iter().filter(move |decision| {
        decision.namespace() == namespace
            && decision
                .spec
                .requests
                .iter()
                .any(|named| named.name == name && Some(&named.uid) == uid.as_ref())
    })
}

/// The rows to store: none vanishes, none exceeds what the schema takes, and texts are of one line.
pub fn rows(known: &[Vote], tallied: &[Vote]) -> Vec<Vote> {
    let mut rows: Vec<Vote> = Vec::new();
    for vote in tallied {
        // Without an author, or with a word unknown here, it cannot be stored; the decision's own status says so.
        let storable = !vote.username.is_empty() && vote.verdict != crate::api::Verdict::Unknown;
        if storable {
            rows.push(clean(vote));
        }
    }
    for vote in known {
        if !rows.iter().any(|row| row.decision.uid == vote.decision.uid) {
            rows.push(vote.clone());
        }
    }
    rows.sort_by(|a, b| (a.at.0, &a.decision.name).cmp(&(b.at.0, &b.decision.name)));
    if rows.len() > MAX_VOTES {
        // Known rows may not vanish, so the newest of the others stay out.
        let is_known = |row: &Vote| {
            known
                .iter()
                .any(|vote| vote.decision.uid == row.decision.uid)
        };
        let mut room = MAX_VOTES.saturating_sub(known.len());
        rows.retain(|row| {
            is_known(row) || {
                let fits = room > 0;
                room = room.saturating_sub(1);
                fits
            }
        });
    }
    rows
}

/// The rows of a request that was decided: new ones are added, and what was counted then stays as it was counted.
pub fn added(known: &[Vote], tallied: &[Vote]) -> Vec<Vote> {
    let mut all = rows(known, tallied);
    for row in &mut all {
        if let Some(before) = known
            .iter()
            .find(|vote| vote.decision.uid == row.decision.uid)
        {
            row.clone_from(before);
        }
    }
    all
}

fn clean(vote: &Vote) -> Vote {
    let mut vote = vote.clone();
    vote.why_not = vote.why_not.map(|why| visible::one_line(&why, MAX_WHY));
    vote
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests"
    )]

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::*;
    use crate::api::{Verdict, approval_request::DecisionRef};

    fn vote(name: &str, second: i64, counted: bool) -> Vote {
        Vote {
            decision: DecisionRef {
                name: name.to_owned(),
                uid: format!("uid-{name}"),
            },
            username: "ana@example.com".to_owned(),
            verdict: Verdict::Approve,
            reason: None,
            at: MicroTime(Timestamp::from_second(second).unwrap()),
            policies: Vec::new(),
            counted,
            why_not: (!counted).then(|| "because\nof this".to_owned()),
        }
    }

    #[test]
    fn a_stored_vote_stays_when_its_decision_is_gone_and_is_updated_when_it_is_there() {
        let stored = rows(
            &[vote("a", 1, false), vote("b", 2, true)],
            &[vote("a", 1, true)],
        );
        let names: Vec<_> = stored
            .iter()
            .map(|row| (row.decision.name.as_str(), row.counted))
            .collect();
        assert_eq!(names, [("a", true), ("b", true)]);
    }

    #[test]
    fn what_the_schema_does_not_take_is_left_out() {
        let mut nameless = vote("c", 3, false);
        nameless.username.clear();
        let mut odd = vote("d", 3, false);
        odd.verdict = Verdict::Unknown;
        let stored = rows(&[], &[vote("a", 1, false), nameless, odd]);
        assert_eq!(stored.len(), 1);
        assert!(!stored[0].why_not.as_deref().unwrap().contains('\n'));
    }

    #[test]
    fn beyond_sixty_four_the_known_ones_stay() {
        let many: Vec<Vote> = (0..100)
            .map(|n| vote(&format!("v{n:03}"), n, true))
            .collect();
        let known = [vote("v099", 99, true)];
        let stored = rows(&known, &many);
        assert_eq!(stored.len(), MAX_VOTES);
        assert!(stored.iter().any(|row| row.decision.name == "v099"));
        assert!(stored.iter().any(|row| row.decision.name == "v062"));
        assert!(!stored.iter().any(|row| row.decision.name == "v063"));
    }
}

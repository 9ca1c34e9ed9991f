//! Votes as they stand: the decisions that name a request, with what the API server says about their authors now.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

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
/// Of these, votes that do not count.
const MAX_UNCOUNTED: usize = 32;
/// Of these, votes of one person: what they said first, and again.
const MAX_OF_ONE: usize = 4;
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
    let known: BTreeSet<&str> = known
        .iter()
        .map(|vote| vote.decision.uid.as_str())
        .collect();
    bounded(rows, &known)
}

/// Known rows may not vanish. Of the others those that count go first, and votes that do not count, or come again from one person, fill no
/// more than a part: whoever counts later must find room.
fn bounded(mut rows: Vec<Vote>, known: &BTreeSet<&str>) -> Vec<Vote> {
    let is_known = |row: &Vote| known.contains(row.decision.uid.as_str());
    rows.sort_by(|a, b| {
        let rank = |row: &Vote| (!is_known(row), !row.counted, row.at.0);
        (rank(a), &a.decision.name).cmp(&(rank(b), &b.decision.name))
    });
    let (mut total, mut uncounted) = (0, 0);
    let mut of_person: BTreeMap<String, usize> = BTreeMap::new();
    rows.retain(|row| {
        let own = of_person.entry(row.username.clone()).or_default();
        let fits =
            total < MAX_VOTES && *own < MAX_OF_ONE && (row.counted || uncounted < MAX_UNCOUNTED);
        let stays = is_known(row) || fits;
        if stays {
            total += 1;
            *own += 1;
            uncounted += usize::from(!row.counted);
        }
        stays
    });
    rows.sort_by(|a, b| (a.at.0, &a.decision.name).cmp(&(b.at.0, &b.decision.name)));
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

    fn of(username: &str, name: &str, second: i64, counted: bool) -> Vote {
        Vote {
            username: username.to_owned(),
            ..vote(name, second, counted)
        }
    }

    #[test]
    fn beyond_sixty_four_the_known_ones_stay() {
        let many: Vec<Vote> = (0..100)
            .map(|n| of(&format!("p{n:03}"), &format!("v{n:03}"), n, true))
            .collect();
        let known = [of("p099", "v099", 99, true)];
        let stored = rows(&known, &many);
        assert_eq!(stored.len(), MAX_VOTES);
        assert!(stored.iter().any(|row| row.decision.name == "v099"));
        assert!(stored.iter().any(|row| row.decision.name == "v062"));
        assert!(!stored.iter().any(|row| row.decision.name == "v063"));
    }

    #[test]
    fn votes_that_do_not_count_push_out_none_that_does() {
        let mut votes: Vec<Vote> = (0..90)
            .map(|n| of(&format!("p{n:03}"), &format!("v{n:03}"), n, false))
            .collect();
        let known = rows(&[], &votes);
        assert!(known.len() < MAX_VOTES, "there is room for whoever counts");
        for (n, name) in [(100, "ana"), (101, "ben")] {
            votes.push(of(name, name, n, true));
        }
        let stored = rows(&known, &votes);
        let counted: Vec<&str> = stored
            .iter()
            .filter(|row| row.counted)
            .map(|row| row.username.as_str())
            .collect();
        assert_eq!(counted, ["ana", "ben"]);
        assert!(
            known.iter().all(|row| stored.contains(row)),
            "none vanishes"
        );
    }

    #[test]
    fn one_person_s_votes_push_out_nobody_else_s() {
        let mut votes: Vec<Vote> = (0..200)
            .map(|n| of("mallory", &format!("v{n:03}"), n, n % 2 == 0))
            .collect();
        votes.push(of("ana", "late", 300, false));
        let stored = rows(&[], &votes);
        let of_mallory = stored.iter().filter(|row| row.username == "mallory");
        assert_eq!(of_mallory.count(), MAX_OF_ONE);
        assert!(stored.iter().any(|row| row.username == "ana"));
    }
}

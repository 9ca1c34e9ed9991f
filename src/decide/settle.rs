//! When the uses of a grant are settled, and how what was found is recorded. What the target shows is in [`super::observe`].

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::{
    conditions::{self, Observed},
    json::Value,
    observe::{self, Marks},
    record::microseconds,
    spend::WINDOW,
};
use crate::api::{
    Grant,
    grant::{Evidence, GrantStatus, Use, UseEffect},
};

/// After the window: a request that came in its last moment lives for 34 s itself, whoever sent it, and its write may then still be on its
/// way to the store for a while.
const AFTER_WINDOW: SignedDuration = SignedDuration::from_secs(34 + 20);
/// Settled uses that stay in the grant.
const KEPT: usize = 16;

/// When a use can be settled.
pub fn due(used: &Use) -> Timestamp {
    let wait = WINDOW.saturating_add(AFTER_WINDOW);
    used.at.0.checked_add(wait).unwrap_or(Timestamp::MAX)
}

/// The open uses that can be settled, and when the next one can.
pub fn ready(status: &GrantStatus, now: Timestamp) -> (Vec<String>, Option<Timestamp>) {
    let mut ready = Vec::new();
    let mut next: Option<Timestamp> = None;
    for (uid, used) in &status.uses {
        if used.effect != UseEffect::Pending {
            continue;
        }
        let due = due(used);
        if due <= now {
            ready.push(uid.clone());
        } else {
            next = Some(next.map_or(due, |next| next.min(due)));
        }
    }
    (ready, next)
}

/// The status with these uses settled, and the uses that leave it: all but the newest 16 settled ones.
pub fn plan(
    grant: &Grant,
    settled: &[(String, UseEffect, Evidence)],
    now: Timestamp,
) -> (GrantStatus, BTreeMap<String, Use>) {
    let mut status = grant.status.clone().unwrap_or_default();
    for (uid, effect, evidence) in settled {
        let open = status
            .uses
            .get_mut(uid)
            .filter(|used| used.effect == UseEffect::Pending);
        if let Some(used) = open {
            used.effect = *effect;
            used.settled_at = Some(MicroTime(microseconds(now)));
            used.evidence = Some(evidence.clone());
        }
    }
    let mut over: Vec<(Timestamp, String)> = status
        .uses
        .iter()
        .filter(|(_, used)| used.effect != UseEffect::Pending)
        .map(|(uid, used)| (used.at.0, uid.clone()))
        .collect();
    over.sort();
    let mut leaving = BTreeMap::new();
    let surplus = over.len().saturating_sub(KEPT);
    for (_, uid) in over.into_iter().take(surplus) {
        if let Some(used) = status.uses.remove(&uid) {
            leaving.insert(uid, used);
        }
    }
    let open = status
        .uses
        .values()
        .filter(|used| used.effect == UseEffect::Pending)
        .count();
    let (value, reason, message) = if open == 0 {
        (
            conditions::TRUE,
            "Known",
            "it is known, or will never be, what became of every use".to_owned(),
        )
    } else {
        (
            conditions::FALSE,
            "Open",
            format!("{open} uses are not settled yet"),
        )
    };
    let observed = Observed {
        kind: "Settled",
        status: value,
        reason,
        message: &message,
    };
    conditions::set(
        &mut status.conditions,
        observed,
        grant.metadata.generation,
        now,
    );
    (status, leaving)
}

/// What one event of the walk says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// Nothing yet: look at the next one.
    On,
    /// The target held the change.
    Held,
    /// Every revision was seen.
    End,
}

/// Looks at one event of a walk. `None`: not every revision can be seen.
pub fn event(event: Value<'_>, used: &Use, marks: &Marks<'_>, to: Option<u64>) -> Option<Step> {
    let object = event.get("object")?;
    match event.get("type")?.as_str()? {
        "BOOKMARK" => return Some(Step::On),
        "ADDED" | "MODIFIED" => {}
        // A write that takes the last finalizer away is stored as the deletion, and no revision shows it.
        "DELETED" if marks.may_delete() => return None,
        // Its last state was seen as the event before.
        "DELETED" => {
            let uid = object.at("/metadata/uid").and_then(|uid| uid.as_str());
            let ours = uid == Some(used.target_uid.as_str());
            return Some(if ours { Step::End } else { Step::On });
        }
        _ => return None,
    }
    if observe::proves(used, marks, object) {
        return Some(Step::Held);
    }
    let revision = object
        .at("/metadata/resourceVersion")?
        .as_str()?
        .parse::<u64>()
        .ok()?;
    Some(match to {
        Some(to) if revision >= to => Step::End,
        _ => Step::On,
    })
}

#[cfg(test)]
mod tests;

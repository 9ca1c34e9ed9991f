//! When a declaration is in force: every grant that it voids is marked, and every live webhook replica works by it.

use crate::{
    cluster::lease::Replica,
    decide::conditions::{FALSE, TRUE},
};

/// What is observed, for a condition.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Force {
    /// `True` or `False`.
    pub status: &'static str,
    /// CamelCase.
    pub reason: &'static str,
    /// In words.
    pub message: String,
}

/// Whether revision `since` of a resource is in force. `unmarked`: grants that may be void are left unmarked.
pub fn observe(replicas: &[Replica], plural: &str, since: &str, unmarked: bool) -> Force {
    let not = |reason, message: String| Force {
        status: FALSE,
        reason,
        message,
    };
    if unmarked {
        return not(
            "GrantsUnmarked",
            "grants that this may void are not marked yet".to_owned(),
        );
    }
    let live: Vec<&Replica> = replicas.iter().filter(|replica| replica.live).collect();
    if live.is_empty() {
        return not(
            "NoReplica",
            "no webhook replica is alive: agents' writes are refused".to_owned(),
        );
    }
    let behind: Vec<&str> = live
        .iter()
        .filter(|replica| !replica.has_reached(plural, since))
        .map(|replica| replica.name.as_str())
        .take(8)
        .collect();
    if !behind.is_empty() {
        return not(
            "ReplicaBehind",
            format!("not seen yet by {}", behind.join(", ")),
        );
    }
    Force {
        status: TRUE,
        reason: "Reached",
        message: "every live webhook replica works by it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests"
    )]

    use std::collections::BTreeMap;

    use super::*;

    fn replica(name: &str, live: bool, reached: &str) -> Replica {
        Replica {
            name: name.to_owned(),
            live,
            reached: BTreeMap::from([("toolmounts".to_owned(), reached.to_owned())]),
        }
    }

    #[test]
    fn a_change_is_in_force_when_nothing_void_is_left_and_no_live_replica_is_behind() {
        let reason = |replicas: &[Replica], unmarked| {
            observe(replicas, "toolmounts", "100", unmarked).reason
        };
        let there = replica("a", true, "100");
        assert_eq!(reason(&[], false), "NoReplica");
        assert_eq!(reason(&[replica("a", false, "100")], false), "NoReplica");
        assert_eq!(reason(std::slice::from_ref(&there), false), "Reached");
        assert_eq!(reason(std::slice::from_ref(&there), true), "GrantsUnmarked");
        assert_eq!(
            reason(&[there.clone(), replica("b", true, "99")], false),
            "ReplicaBehind"
        );
        assert_eq!(
            reason(&[there, replica("b", false, "99")], false),
            "Reached",
            "a replica whose Lease ran out answers nothing"
        );
    }
}

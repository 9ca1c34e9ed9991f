//! ApprovalPolicies, ClusterApprovalPolicies and ToolServers: what is wrong with them, what they expand to, and whether they are in force.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::{
    api::{PolicyStatus, ToolServerSpec, ToolServerStatus, approval_policy::PolicyProblem},
    control::force::Force,
    decide::{
        conditions::{self, IN_FORCE, Observed, RESOLVED, VALID},
        policy::Problem,
        server, visible,
    },
};

/// Problems that a status holds; the message says how many there are.
const MAX_PROBLEMS: usize = 64;

/// The status of a policy, if it differs from `known`.
pub fn policy(
    known: Option<&PolicyStatus>,
    problems: &[Problem],
    force: &Force,
    generation: Option<i64>,
    now: Timestamp,
) -> Option<PolicyStatus> {
    let mut status = known.cloned().unwrap_or_default();
    status.problems = problems
        .iter()
        .take(MAX_PROBLEMS)
        .map(|problem| PolicyProblem {
            path: visible::one_line(&problem.path, 512),
            message: visible::one_line(&problem.message, 1024),
        })
        .collect();
    let message = summary(
        problems,
        "it can be used",
        "what it matches is refused until this is repaired",
    );
    let value = if problems.is_empty() {
        (conditions::TRUE, "Readable")
    } else {
        (conditions::FALSE, "Problems")
    };
    set(
        &mut status.conditions,
        VALID,
        value,
        &message,
        generation,
        now,
    );
    in_force(&mut status.conditions, force, generation, now);
    (known != Some(&status)).then_some(status)
}

/// The status of a server, if it differs from `known`.
pub fn server(
    known: Option<&ToolServerStatus>,
    spec: &ToolServerSpec,
    generation: Option<i64>,
    now: Timestamp,
) -> Option<ToolServerStatus> {
    let mut status = known.cloned().unwrap_or_default();
    let resolved = server::resolve_server(spec);
    status.tools = resolved.status_tools();
    status.tools.truncate(server::MAX_TOOLS);
    resolution(
        &mut status.conditions,
        &resolved.problems,
        resolved.too_many_tools,
        generation,
        now,
    );
    (known != Some(&status)).then_some(status)
}

/// Sets `Resolved`. `too_many`: some tools are not shown.
pub fn resolution(
    conditions: &mut Vec<Condition>,
    problems: &[Problem],
    too_many: bool,
    generation: Option<i64>,
    now: Timestamp,
) {
    let value = match problems.is_empty() {
        true => (conditions::TRUE, "Resolved"),
        false if too_many => (conditions::FALSE, "TooManyTools"),
        false => (conditions::FALSE, "Problems"),
    };
    let message = summary(
        problems,
        "every name was found",
        "what is named otherwise is served",
    );
    set(conditions, RESOLVED, value, &message, generation, now);
}

/// Sets `InForce`. Once reached, a generation stays in force: a replica that starts later begins with it.
pub fn in_force(
    conditions: &mut Vec<Condition>,
    force: &Force,
    generation: Option<i64>,
    now: Timestamp,
) {
    let reached = conditions::get(conditions, IN_FORCE).is_some_and(|known| {
        known.status == conditions::TRUE && known.observed_generation == generation
    });
    if !reached {
        let value = (force.status, force.reason);
        set(conditions, IN_FORCE, value, &force.message, generation, now);
    }
}

/// Sets one condition.
pub fn set(
    conditions: &mut Vec<Condition>,
    kind: &str,
    (status, reason): (&str, &str),
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) {
    let observed = Observed {
        kind,
        status,
        reason,
        message,
    };
    conditions::set(conditions, observed, generation, now);
}

fn summary(problems: &[Problem], none: &str, consequence: &str) -> String {
    match problems {
        [] => none.to_owned(),
        [one] => visible::one_line(&format!("{one}; {consequence}"), 1024),
        [first, ..] => visible::one_line(
            &format!("{} problems, first {first}; {consequence}", problems.len()),
            1024,
        ),
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

    use super::*;

    fn force(status: &'static str) -> Force {
        Force {
            status,
            reason: "R",
            message: "m".to_owned(),
        }
    }

    fn condition<'s>(status: &'s PolicyStatus, kind: &str) -> &'s Condition {
        conditions::get(&status.conditions, kind).unwrap()
    }

    #[test]
    fn a_policy_s_status_names_every_problem_and_is_written_once() {
        let now = Timestamp::UNIX_EPOCH;
        let problems = [
            Problem::new("spec.effect", "unknown"),
            Problem::new("spec.targets", "none"),
        ];
        let status = policy(None, &problems, &force(conditions::FALSE), Some(1), now).unwrap();
        assert_eq!(status.problems.len(), 2);
        assert_eq!(condition(&status, "Valid").status, conditions::FALSE);
        assert_eq!(
            policy(
                Some(&status),
                &problems,
                &force(conditions::FALSE),
                Some(1),
                Timestamp::MAX
            ),
            None
        );
    }

    #[test]
    fn a_generation_that_is_in_force_stays_so_and_the_next_one_is_not_yet() {
        let now = Timestamp::UNIX_EPOCH;
        let reached = policy(None, &[], &force(conditions::TRUE), Some(1), now).unwrap();
        assert_eq!(
            policy(Some(&reached), &[], &force(conditions::FALSE), Some(1), now),
            None
        );
        let next = policy(Some(&reached), &[], &force(conditions::FALSE), Some(2), now).unwrap();
        assert_eq!(condition(&next, IN_FORCE).status, conditions::FALSE);
        assert_eq!(condition(&next, IN_FORCE).observed_generation, Some(2));
    }

    #[test]
    fn a_server_shows_what_its_catalogue_expands_to() {
        let spec: ToolServerSpec = serde_json::from_value(serde_json::json!({
            "identity": {"callerToken": {}}, "tools": [{"name": "scale", "class": "Write"}],
        }))
        .unwrap();
        let status = server(None, &spec, Some(1), Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(status.tools.len(), 1);
        assert!(conditions::holds(&status.conditions, "Resolved"));
        assert!(server(Some(&status), &spec, Some(1), Timestamp::MAX).is_none());
    }
}

//! A proposal and the grant that permits it, for the tests of `live`, `spend` and `chain`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use crate::{
    api::{
        Action, ApprovalRequest, Grant, GrantSpec, GrantStatus, Operation, PolicyRef, Requester,
        approval_policy::{ChangeBinding, StateBinding},
        approval_request::{Base, GrantRef, RequestPhase, ResolvedBinding},
        grant::RequestRef,
        reference::Validity,
    },
    decide::{
        bind::Bound,
        canonical, name,
        proposal::{Options, Proposal},
        record,
        resolve::Rules,
    },
};

/// The moment of every test.
pub fn now() -> Timestamp {
    "2026-01-01T10:00:00Z".parse().unwrap()
}

/// So many seconds later.
pub fn after(seconds: i64) -> Timestamp {
    now()
        .checked_add(SignedDuration::from_secs(seconds))
        .unwrap()
}

fn bound(change: &str, state: &str) -> Bound {
    Bound {
        change: change.to_owned(),
        change_digest: canonical::digest(change),
        diff: Vec::new(),
        state: state.to_owned(),
        state_digest: canonical::digest(state),
        content_digest: canonical::digest(change),
    }
}

/// An UPDATE of replicas that raises the generation, on revision 100, generation 7.
pub fn proposal() -> Proposal {
    let action = Action {
        operation: Operation::Update,
        group: "apps".into(),
        version: "v1".into(),
        resource: "deployments".into(),
        subresource: None,
        namespace: Some("web".into()),
        name: Some("api".into()),
        generate_name: None,
        target_uid: Some("t1".into()),
        options: "{}".into(),
    };
    Proposal {
        admission_uid: "00000000-0000-0000-0000-000000000001".into(),
        requester: Requester {
            username: "oidc:ops-bot".into(),
            uid: Some("u1".into()),
            agent: "ops-bot".into(),
            on_behalf_of: None,
        },
        action_key: name::action_key("oidc:ops-bot", "ops-bot", &action),
        action,
        bound: bound(
            r#"{"/spec/replicas":{"to":5}}"#,
            r#"{"/spec/replicas":{"is":3},"uid":"t1"}"#,
        ),
        rules: Rules {
            policies: vec![policy("production", 1)],
            policy_set_hash: canonical::digest("\"set\""),
            validity: Validity {
                uses: Some(1),
                duration_seconds: Some(600),
            },
            binding: ResolvedBinding {
                change: ChangeBinding::Exact,
                state: StateBinding::TouchedFields,
                state_fields: Vec::new(),
                volatile: Vec::new(),
            },
            deadline_seconds: 1800,
            denial_cooldown_seconds: 60,
        },
        base: Some(Base {
            resource_version: "100".into(),
            generation: Some(7),
        }),
        object_uid: "t1".into(),
        raises_generation: true,
        options: Options {
            canonical: "{}".into(),
            digest: canonical::digest("{}"),
            grace_seconds: None,
        },
        facts: Vec::new(),
        home: "web".into(),
    }
}

/// A deletion of the same object with a grace period of 30 s.
pub fn deletion() -> Proposal {
    let mut proposal = proposal();
    proposal.action.operation = Operation::Delete;
    proposal.bound = bound(
        r#"{"options":{"propagationPolicy":"Background"}}"#,
        r#"{"uid":"t1"}"#,
    );
    proposal.raises_generation = false;
    set_options(&mut proposal, 30);
    proposal.action_key = name::action_key("oidc:ops-bot", "ops-bot", &proposal.action);
    proposal
}

/// Gives a deletion another grace period.
pub fn set_options(proposal: &mut Proposal, grace: i64) {
    let canonical = format!(r#"{{"gracePeriodSeconds":{grace},"propagationPolicy":"Background"}}"#);
    proposal.action.options.clone_from(&canonical);
    set_change(proposal, &format!(r#"{{"options":{canonical}}}"#));
    proposal.bound.content_digest = canonical::digest(r#"{"propagationPolicy":"Background"}"#);
    proposal.options = Options {
        canonical,
        digest: canonical::digest(r#"{"propagationPolicy":"Background"}"#),
        grace_seconds: Some(grace),
    };
}

/// Gives a proposal another change.
pub fn set_change(proposal: &mut Proposal, change: &str) {
    proposal.bound.change = change.to_owned();
    proposal.bound.change_digest = canonical::digest(change);
    proposal.bound.content_digest = canonical::digest(change);
}

/// Gives a proposal another state.
pub fn set_state(proposal: &mut Proposal, state: &str) {
    proposal.bound.state = state.to_owned();
    proposal.bound.state_digest = canonical::digest(state);
}

/// The same attempt as a later review: another uid, on another revision.
pub fn again(proposal: &Proposal, uid: u8, resource_version: &str, generation: i64) -> Proposal {
    let mut again = proposal.clone();
    again.admission_uid = format!("00000000-0000-0000-0000-0000000000{uid:02}");
    again.base = Some(Base {
        resource_version: resource_version.into(),
        generation: Some(generation),
    });
    again
}

/// A policy as matched.
pub fn policy(name: &str, generation: i64) -> PolicyRef {
    PolicyRef {
        kind: "ClusterApprovalPolicy".into(),
        namespace: None,
        name: name.into(),
        uid: format!("uid-{name}"),
        generation,
        hash: canonical::digest("\"p\""),
        approvers: None,
    }
}

/// A grant for a proposal, from now for ten minutes.
pub fn grant(proposal: &Proposal, uses: Option<i32>) -> Grant {
    let mut grant = Grant::new(
        "gr-a",
        GrantSpec {
            request_ref: RequestRef {
                name: "ar-a".into(),
                uid: "r1".into(),
            },
            action_key: proposal.action_key.clone(),
            requester: proposal.requester.clone(),
            action: proposal.action.clone(),
            base: proposal.base.clone(),
            change_digest: proposal.bound.change_digest.clone(),
            state: proposal.bound.state.clone(),
            state_digest: proposal.bound.state_digest.clone(),
            binding: proposal.rules.binding.clone(),
            policies: proposal.rules.policies.clone(),
            policy_set_hash: proposal.rules.policy_set_hash.clone(),
            uses,
            not_before: MicroTime(now()),
            not_after: MicroTime(after(600)),
            revoked: None,
        },
    );
    grant.metadata.namespace = Some("web".into());
    grant.metadata.uid = Some("g1".into());
    grant.metadata.resource_version = Some("500".into());
    grant.status = Some(GrantStatus::default());
    grant
}

/// The request for a proposal, filed now, as stored under a uid.
pub fn request(proposal: &Proposal, uid: &str, phase: Option<RequestPhase>) -> ApprovalRequest {
    let mut request = ApprovalRequest::new(
        &format!("ar-{uid}"),
        record::request_spec(proposal, None, now()).unwrap(),
    );
    request.metadata.namespace = Some("web".into());
    request.metadata.uid = Some(uid.into());
    let status = request.status.get_or_insert_default();
    status.phase = phase;
    if phase.is_some() {
        status.ended_at = Some(MicroTime(now()));
    }
    if phase == Some(RequestPhase::Approved) {
        status.grant = Some(GrantRef {
            name: "gr-a".into(),
            uid: Some("g1".into()),
        });
    }
    request
}

//! Who may decide a request, and what is missing for whom. The controller decides; this says it beforehand and in words.

use std::collections::BTreeSet;

use super::{
    kinds::{AGENTS, bind_approver, missing_verb},
    person::Person,
    server::Server,
};
use crate::{
    api::{
        ApprovalRequestSpec, ApprovalRequestStatus, Approver, Owner, PolicyRef, Verdict,
        approval_policy::{ApproverSubject, RequesterMay, Required},
        approval_request::RequestPhase,
    },
    cli::exit::{Failure, quoted},
    decide::{
        quorum::{policy_label, stands_in},
        visible::visible,
    },
};

/// What keeps a person from counting for one policy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Bar {
    /// RBAC: verb `approve` on the policy.
    Verb {
        /// Namespace in which the right is asked for.
        namespace: Option<String>,
    },
    /// No row of the policy lists the person.
    Membership,
    /// The person is the requester.
    Requester,
    /// The person owns the agent.
    Owner,
    /// A ServiceAccount counts only where the policy lists it as one.
    ServiceAccount,
}

/// One policy and what bars the person there; empty: the vote counts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Standing<'r> {
    /// The policy.
    pub policy: &'r PolicyRef,
    /// What is missing.
    pub bars: Vec<Bar>,
}

/// `Kind/name` or `Kind/namespace/name`, as votes name policies.
pub fn label(policy: &PolicyRef) -> String {
    visible(&policy_label(policy))
}

/// Where verb `approve` is asked for: in the target's namespace, so that a RoleBinding there makes an approver of just that.
pub fn asked_in<'r>(policy: &'r PolicyRef, request: &'r ApprovalRequestSpec) -> Option<&'r str> {
    policy
        .namespace
        .as_deref()
        .or(request.action.namespace.as_deref())
}

/// What bars a person from one policy. `holds_verb`: what the SelfSubjectAccessReview said.
pub fn bars(
    policy: &PolicyRef,
    request: &ApprovalRequestSpec,
    person: &Person,
    holds_verb: bool,
    owner: Option<&Owner>,
) -> Vec<Bar> {
    let Some(approvers) = &policy.approvers else {
        return Vec::new();
    };
    let mut bars = Vec::new();
    if !holds_verb {
        bars.push(Bar::Verb {
            namespace: asked_in(policy, request).map(str::to_owned),
        });
    }
    let approver = Approver {
        username: person.username.clone(),
        uid: String::new(),
        groups: person.groups.clone(),
    };
    if !approvers
        .required
        .iter()
        .any(|row| stands_in(&row.from, &approver))
    {
        let account = person.username.starts_with("system:serviceaccount:");
        bars.push(if account {
            Bar::ServiceAccount
        } else {
            Bar::Membership
        });
    }
    if approvers.requester != Some(RequesterMay::Allowed) {
        if person.username == request.requester.username {
            bars.push(Bar::Requester);
        } else if owner.and_then(|owner| owner.user.as_ref()) == Some(&person.username) {
            bars.push(Bar::Owner);
        }
    }
    bars
}

/// Where a person stands with every policy that asks, by live answers of the API server.
pub async fn standings<'r>(
    server: &Server,
    request: &'r ApprovalRequestSpec,
    person: &Person,
) -> Result<Vec<Standing<'r>>, Failure> {
    let owner = owner(server, &request.requester.agent).await;
    let mut standings = Vec::new();
    for policy in request
        .policies
        .iter()
        .filter(|policy| policy.approvers.is_some())
    {
        let plural = plural(policy);
        let holds_verb = server
            .may(
                "approve",
                plural,
                asked_in(policy, request),
                Some(&policy.name),
            )
            .await?;
        standings.push(Standing {
            policy,
            bars: bars(policy, request, person, holds_verb, owner.as_ref()),
        });
    }
    Ok(standings)
}

/// The agent's owner, where the person may read it; the controller knows it in any case.
async fn owner(server: &Server, agent: &str) -> Option<Owner> {
    if !agent
        .chars()
        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        || agent.is_empty()
    {
        return None;
    }
    let text = server.get(AGENTS, None, agent).await.ok()?;
    serde_json::from_str::<crate::api::AgentIdentity>(&text)
        .ok()
        .map(|identity| identity.spec.owner)
}

fn plural(policy: &PolicyRef) -> &'static str {
    if policy.kind == "ApprovalPolicy" {
        "approvalpolicies"
    } else {
        "clusterapprovalpolicies"
    }
}

/// The refusal for a person who counts for none of the policies; nothing if one counts.
pub fn refusal(
    request: &str,
    request_spec: &ApprovalRequestSpec,
    person: &Person,
    standings: &[Standing<'_>],
) -> Option<Failure> {
    if standings.iter().any(|standing| standing.bars.is_empty()) {
        return None;
    }
    let mut missing = Vec::new();
    let mut next = BTreeSet::new();
    for Standing { policy, bars } in standings {
        for bar in bars {
            missing.push(words(policy, bar, person, request_spec));
            match bar {
                Bar::Verb { namespace } => {
                    next.insert(bind_approver(namespace.as_deref(), &person.username));
                }
                Bar::Membership | Bar::ServiceAccount => {
                    next.insert(read_policy(policy));
                }
                Bar::Requester | Bar::Owner => {}
            }
        }
    }
    if standings.is_empty() {
        missing.push(
            "policy membership: no policy of this request names approvers, so nobody can decide it"
                .to_owned(),
        );
    }
    Some(Failure::NotAllowed {
        what: format!(
            "{} may not decide {request}; nothing was sent",
            visible(&person.username)
        ),
        missing,
        next: next.into_iter().collect(),
    })
}

fn read_policy(policy: &PolicyRef) -> String {
    let place = policy
        .namespace
        .as_ref()
        .map(|namespace| format!(" -n {}", quoted(namespace)))
        .unwrap_or_default();
    format!(
        "kubectl get {}.grantgate.dev {}{place} -o yaml",
        plural(policy),
        quoted(&policy.name)
    )
}

fn words(policy: &PolicyRef, bar: &Bar, person: &Person, request: &ApprovalRequestSpec) -> String {
    let label = label(policy);
    let me = visible(&person.username);
    match bar {
        Bar::Verb { namespace } => missing_verb(
            "approve",
            plural(policy),
            namespace.as_deref(),
            Some(&policy.name),
            &person.username,
        ),
        Bar::Membership => format!(
            "policy membership: {label} wants {}, and {me} is none of them",
            rows(policy)
        ),
        Bar::Requester => {
            format!("{label}: {me} made the request, and requesters may not decide their own")
        }
        Bar::Owner => {
            format!(
                "{label}: {me} owns agent {}, and an agent's owner may not decide",
                visible(&request.requester.agent)
            )
        }
        Bar::ServiceAccount => {
            format!(
                "policy membership: {label} does not list ServiceAccount {me}; accounts count only where a policy names them"
            )
        }
    }
}

/// Who is wanted: `1 of group sre-oncall or user ana@example.com; and 1 of group dba`.
pub fn rows(policy: &PolicyRef) -> String {
    let rows = policy
        .approvers
        .iter()
        .flat_map(|approvers| &approvers.required)
        .map(row)
        .collect::<Vec<_>>();
    if rows.is_empty() {
        "nobody".to_owned()
    } else {
        rows.join("; and ")
    }
}

fn row(row: &Required) -> String {
    let from = row
        .from
        .iter()
        .map(subject)
        .collect::<Vec<_>>()
        .join(" or ");
    if from.is_empty() {
        format!("{} of whoever holds verb approve on it", row.count)
    } else {
        format!("{} of {from}", row.count)
    }
}

fn subject(from: &ApproverSubject) -> String {
    match (&from.user, &from.group, &from.service_account) {
        (Some(user), ..) => format!("user {}", visible(user)),
        (_, Some(group), _) => format!("group {}", visible(group)),
        (.., Some(account)) => format!(
            "ServiceAccount {}/{}",
            visible(&account.namespace),
            visible(&account.name)
        ),
        _ => "a subject of an unknown kind".to_owned(),
    }
}

/// How far a request is: approvals counted and needed, each policy for itself, and what is still awaited.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Progress {
    /// Approvals that count.
    pub have: i64,
    /// Approvals that are needed.
    pub need: i64,
    /// What is still awaited, one phrase for each policy.
    pub waiting: Vec<String>,
}

/// How far a request is.
pub fn progress(request: &ApprovalRequestSpec, status: Option<&ApprovalRequestStatus>) -> Progress {
    let votes = status
        .map(|status| status.votes.as_slice())
        .unwrap_or_default();
    let mut progress = Progress::default();
    let approved = status.and_then(|status| status.phase) == Some(RequestPhase::Approved);
    for policy in &request.policies {
        let Some(approvers) = &policy.approvers else {
            continue;
        };
        let raw = policy_label(policy);
        let need: i64 = approvers
            .required
            .iter()
            .map(|row| i64::from(row.count))
            .sum();
        let people: BTreeSet<&str> = votes
            .iter()
            .filter(|vote| {
                vote.counted && vote.verdict == Verdict::Approve && vote.policies.contains(&raw)
            })
            .map(|vote| vote.username.as_str())
            .collect();
        let counted = i64::try_from(people.len()).unwrap_or(i64::MAX).min(need);
        // One person can meet several rows, which their vote does not tell; the phase does.
        let have = if approved { need } else { counted };
        progress.have += have;
        progress.need += need;
        if have < need {
            progress.waiting.push(format!(
                "{} (has {have}) for {}",
                rows(policy),
                label(policy)
            ));
        }
    }
    progress
}

/// Whether a policy wants a reason for this verdict.
pub fn wants_reason(request: &ApprovalRequestSpec, verdict: Verdict) -> Option<&PolicyRef> {
    request.policies.iter().find(|policy| {
        policy
            .approvers
            .as_ref()
            .is_some_and(|approvers| approvers.require_reason.contains(&verdict))
    })
}

/// What is missing, in a few words.
pub fn bars_in_words(bars: &[Bar]) -> String {
    let words = bars.iter().map(|bar| match bar {
        Bar::Verb {
            namespace: Some(namespace),
        } => format!(
            "lacks RBAC verb approve in namespace {}",
            visible(namespace)
        ),
        Bar::Verb { namespace: None } => "lacks RBAC verb approve in the whole cluster".to_owned(),
        Bar::Membership => "not among the policy's approvers".to_owned(),
        Bar::Requester => "made the request".to_owned(),
        Bar::Owner => "owns the agent".to_owned(),
        Bar::ServiceAccount => "a ServiceAccount that the policy does not list".to_owned(),
    });
    words.collect::<Vec<_>>().join(", ")
}

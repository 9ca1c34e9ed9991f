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
        approval_policy::Required, approval_request::RequestPhase, reference::SERVICE_ACCOUNT,
    },
    cli::exit::{Failure, quoted},
    decide::{
        policy::approver_words,
        quorum::policy_label,
        standing::{self, Bar, Known},
        subject::{Agent, Agents},
        visible::visible,
    },
};

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

/// What is known of a person besides who they are.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Who owns the requesting agent, where that may be read; the controller knows it in any case.
    pub owner: Option<Owner>,
    /// They are an agent's identity, as far as identities may be read.
    pub gated: bool,
}

/// What bars a person from one policy. `holds_verb`: what the SelfSubjectAccessReview said.
pub fn bars(
    policy: &PolicyRef,
    request: &ApprovalRequestSpec,
    person: &Person,
    holds_verb: bool,
    about: &About,
) -> Vec<Bar> {
    let Some(approvers) = &policy.approvers else {
        return Vec::new();
    };
    let somebody = Approver {
        username: person.username.clone(),
        uid: String::new(),
        groups: person.groups.clone(),
    };
    let known = Known {
        gated: about.gated,
        holds_verb,
        requester: &request.requester.username,
        owner_user: about.owner.as_ref().and_then(|owner| owner.user.as_deref()),
    };
    standing::bars(approvers, &somebody, known)
}

/// Where a person stands with every policy that asks, by live answers of the API server.
pub async fn standings<'r>(
    server: &Server,
    request: &'r ApprovalRequestSpec,
    person: &Person,
) -> Result<Vec<Standing<'r>>, Failure> {
    let about = about(server, &request.requester.agent, person).await;
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
            bars: bars(policy, request, person, holds_verb, &about),
        });
    }
    Ok(standings)
}

/// What the declared agents say of a person. Who may not list them is told less; the controller knows it in any case.
async fn about(server: &Server, agent: &str, person: &Person) -> About {
    let listed = server.list(AGENTS, None).await.unwrap_or_default();
    let read = listed
        .into_iter()
        .filter_map(|object| serde_json::from_value::<crate::api::AgentIdentity>(object).ok());
    let agents = Agents::of(read.map(|identity| Agent::from(&identity)));
    if let Some(known) = agents.get(agent) {
        let groups = person.groups.iter().map(String::as_str);
        return About {
            owner: Some(known.owner.clone()),
            gated: agents.declares(&person.username, groups),
        };
    }
    let named = super::kinds::checked(agent).is_ok();
    let text = match named {
        true => server.get(AGENTS, None, agent).await.ok(),
        false => None,
    };
    let identity =
        text.and_then(|text| serde_json::from_str::<crate::api::AgentIdentity>(&text).ok());
    About {
        owner: identity.map(|identity| identity.spec.owner),
        gated: agents.declares(&person.username, person.groups.iter().map(String::as_str)),
    }
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
            missing.push(words(policy, *bar, person, request_spec));
            match bar {
                Bar::Verb => {
                    let namespace = asked_in(policy, request_spec);
                    next.insert(bind_approver(namespace, &person.username));
                }
                Bar::Membership => {
                    next.insert(read_policy(policy));
                }
                Bar::Gated | Bar::Requester | Bar::Owner => {}
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

fn words(policy: &PolicyRef, bar: Bar, person: &Person, request: &ApprovalRequestSpec) -> String {
    let label = label(policy);
    let me = visible(&person.username);
    match bar {
        Bar::Gated => {
            format!("{label}: {me} is an agent's identity, and agents do not decide")
        }
        Bar::Verb => missing_verb(
            "approve",
            plural(policy),
            asked_in(policy, request),
            Some(&policy.name),
            &person.username,
        ),
        Bar::Membership if person.username.starts_with(SERVICE_ACCOUNT) => {
            format!(
                "policy membership: {label} does not list ServiceAccount {me}; accounts count only where a policy names them"
            )
        }
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
    format!("{} of {}", row.count, visible(&approver_words(&row.from)))
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
pub fn bars_in_words(
    policy: &PolicyRef,
    request: &ApprovalRequestSpec,
    person: &str,
    bars: &[Bar],
) -> String {
    let words = bars.iter().map(|bar| match bar {
        Bar::Verb => match asked_in(policy, request) {
            Some(namespace) => format!(
                "lacks RBAC verb approve in namespace {}",
                visible(namespace)
            ),
            None => "lacks RBAC verb approve in the whole cluster".to_owned(),
        },
        Bar::Membership if person.starts_with(SERVICE_ACCOUNT) => {
            "a ServiceAccount that the policy does not list".to_owned()
        }
        Bar::Membership => "not among the policy's approvers".to_owned(),
        Bar::Gated => "an agent's identity".to_owned(),
        Bar::Requester => "made the request".to_owned(),
        Bar::Owner => "owns the agent".to_owned(),
    });
    words.collect::<Vec<_>>().join(", ")
}

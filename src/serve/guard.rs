//! The guard: people's writes to our own kinds are checked by the same functions that read them later, and refused in good words.
//!
//! It refuses early; the controller checks again before anything counts.

use std::{collections::BTreeSet, sync::Arc};

use kube::ResourceExt;
use serde::de::DeserializeOwned;

use crate::{
    api::{
        AgentIdentity, ApprovalDecision, ApprovalPolicy, ApprovalRequest, ClusterApprovalPolicy,
        Operation, ToolMount, ToolServer, approval_request::DecisionRef,
    },
    cluster::{
        ledger::Ledger,
        rights::{self, Person, Right},
        view::View,
    },
    decide::{
        canonical,
        denial::{Denial, Reason},
        ended::{self, Finish},
        json::Document,
        mount,
        policy::{Policy, Problem},
        quorum::{self, Ballot, CastVote},
        review::Review,
        server,
        subject::{self, Agent},
        visible,
        world::World,
    },
    manifests,
    serve::{
        gate::Decision,
        response::{Refusal, Response},
    },
};

/// The guard of one replica.
pub struct Guard {
    /// What is declared.
    pub view: Arc<View>,
    /// Requests that decisions name, and the client.
    pub ledger: Ledger,
}

impl Guard {
    /// Decides one review of a write to our own kinds.
    pub async fn decide(&self, _document: &Document<'_>, review: &Review<'_>) -> Decision {
        let world = match self.view.ready() {
            Ok((world, _)) => world,
            Err(error) => {
                return refuse(review, &Denial::unavailable("Unready", error.to_string()));
            }
        };
        let watched = matches!(review.operation, Operation::Create | Operation::Update)
            && review.subresource.is_none();
        if review.group != crate::api::GROUP || !watched {
            return allow();
        }
        let checked = match review.resource {
            "agentidentities" => {
                parse::<AgentIdentity>(review).map(|identity| identity_problems(&world, &identity))
            }
            "toolservers" => parse::<ToolServer>(review)
                .map(|server| server::resolve_server(&server.spec).problems),
            "toolmounts" => {
                parse::<ToolMount>(review).map(|mount| mount::misunderstood(&mount.spec))
            }
            "approvalpolicies" => {
                parse::<ApprovalPolicy>(review).map(|policy| Policy::compile(&policy).problems)
            }
            "clusterapprovalpolicies" => parse::<ClusterApprovalPolicy>(review)
                .map(|policy| Policy::compile_cluster(&policy).problems),
            "approvaldecisions" => {
                return match parse::<ApprovalDecision>(review) {
                    Ok(decision) => self.vote(&world, review, &decision).await,
                    Err(denial) => refuse(review, &denial),
                };
            }
            _ => return allow(),
        };
        match checked {
            Err(denial) => refuse(review, &denial),
            Ok(problems) if problems.is_empty() => allow(),
            Ok(problems) => refuse(review, &invalid(&problems)),
        }
    }

    /// Whether a vote can count, as far as can be told now.
    async fn vote(
        &self,
        world: &World,
        review: &Review<'_>,
        decision: &ApprovalDecision,
    ) -> Decision {
        let namespace = review.namespace().unwrap_or_default();
        let now = match self.view.clock.now() {
            Ok(now) => now,
            Err(error) => {
                return refuse(review, &Denial::unavailable("Unready", error.to_string()));
            }
        };
        for named in &decision.spec.requests {
            let request = match self.ledger.index.request(namespace, &named.name) {
                Some(request) => request,
                None => match self.ledger.read_request(namespace, &named.name).await {
                    Some(request) => request,
                    None => {
                        let words = format!(
                            "there is no request {} in namespace {namespace}",
                            visible::visible(&named.name)
                        );
                        return refuse(
                            review,
                            &Denial::new(Reason::NotApprovable, "NoRequest", words),
                        );
                    }
                },
            };
            if let Some(words) = decided_already(&request, now) {
                return refuse(
                    review,
                    &Denial::new(Reason::NotApprovable, "Finished", words),
                );
            }
            let person = Person::of(&review.user);
            let may_approve = match rights_on(&self.ledger.client, &person, &request).await {
                Ok(may) => may,
                Err(why) => return refuse(review, &Denial::unavailable("Unknown", why)),
            };
            let gated = world
                .agents
                .declares(review.user.username, review.user.groups())
                || review.user.has_extra(subject::AGENT_KEY);
            let owner = world
                .agents
                .get(&request.spec.requester.agent)
                .and_then(|agent| agent.owner.user.clone());
            let vote = CastVote {
                decision: DecisionRef {
                    name: decision.name_any(),
                    uid: decision.uid().unwrap_or_default(),
                },
                approver: decision.spec.approver.clone(),
                verdict: decision.spec.verdict,
                reason: decision.spec.reason.clone(),
                created_at: now,
                requests: decision.spec.requests.clone(),
                validity: decision.spec.validity.clone(),
                may_approve,
                gated,
            };
            let tally = quorum::tally(
                &ballot(&request, owner.as_deref(), jiff::Timestamp::MIN, now),
                &[vote],
            );
            if let Some(why) = tally
                .votes
                .iter()
                .find(|vote| !vote.counted)
                .and_then(|vote| vote.why_not.clone())
            {
                let words = format!(
                    "this decision on {} would not count: {why}",
                    visible::visible(&named.name)
                );
                return refuse(
                    review,
                    &Denial::new(Reason::NotApprovable, "NotCounted", words),
                );
            }
        }
        allow()
    }
}

/// Why a request takes no votes any more. An approved one does: a denial still revokes a grant that was not used.
fn decided_already(request: &ApprovalRequest, now: jiff::Timestamp) -> Option<String> {
    let uid = request.metadata.uid.as_deref().unwrap_or_default();
    let finish = ended::finished(uid, &request.spec, request.status.as_ref(), None, now)?;
    let name = request.metadata.name.as_deref().unwrap_or_default();
    let word = match finish {
        Finish::Denied => "was denied",
        Finish::Expired => "expired without a decision",
        Finish::Superseded => "was superseded: what it was about changed",
        Finish::GrantEnded(_) | Finish::Lost => return None,
        Finish::Unreadable => "cannot be read by this version",
    };
    Some(format!(
        "request {name} {word}; the same call of the agent files a new one"
    ))
}

/// The ballot of a request.
pub fn ballot<'a>(
    request: &'a ApprovalRequest,
    owner_user: Option<&'a str>,
    guard_since: jiff::Timestamp,
    now: jiff::Timestamp,
) -> Ballot<'a> {
    Ballot {
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

/// The policies of a request on which somebody holds verb `approve`, asked in the namespace of the target.
pub async fn rights_on(
    client: &kube::Client,
    person: &Person,
    request: &ApprovalRequest,
) -> Result<BTreeSet<String>, String> {
    let mut may = BTreeSet::new();
    for policy in request
        .spec
        .policies
        .iter()
        .filter(|policy| policy.approvers.is_some())
    {
        let namespaced = policy.namespace.is_some();
        let right = Right {
            verb: "approve".to_owned(),
            group: crate::api::GROUP.to_owned(),
            resource: if namespaced {
                "approvalpolicies"
            } else {
                "clusterapprovalpolicies"
            }
            .to_owned(),
            namespace: request.spec.action.namespace.clone().unwrap_or_default(),
            name: policy.name.clone(),
        };
        if rights::allowed(client, person, &right)
            .await
            .map_err(|error| error.to_string())?
        {
            may.insert(quorum::policy_label(policy));
        }
    }
    Ok(may)
}

/// What is wrong with an identity beside its schema: subjects of our own accounts, or of another identity.
pub fn identity_problems(world: &World, identity: &AgentIdentity) -> Vec<Problem> {
    let mut problems = Vec::new();
    let own = format!(
        "system:serviceaccount:{}:grantgate-",
        world.system_namespace
    );
    for (at, subject) in identity.spec.subjects.iter().enumerate() {
        let username = subject.user.clone().or_else(|| {
            subject
                .service_account
                .as_ref()
                .map(crate::api::ServiceAccountRef::username)
        });
        let Some(username) = username else { continue };
        let words = if username.starts_with(&own) {
            "grantgate's own accounts cannot be agents: the gate would wait for itself"
        } else if manifests::JANITORS.contains(&username.as_str()) {
            "what removes namespaces and dependents cannot be an agent: nothing would be removed while the gate is down"
        } else {
            continue;
        };
        problems.push(Problem::new(format!("spec.subjects[{at}]"), words));
    }
    let me = Agent::from(identity);
    let others = world
        .agents
        .iter()
        .filter(|other| other.name != me.name)
        .chain(std::iter::once(&me));
    for (subject, names) in subject::shared_subjects(others) {
        if names.contains(&me.name) {
            let others: Vec<String> = names.into_iter().filter(|name| *name != me.name).collect();
            let what = subject.user.or(subject.group).unwrap_or_default();
            problems.push(Problem::new(
                "spec.subjects",
                format!(
                    "{what} belongs to AgentIdentity {} already: a subject stands in one only",
                    others.join(", ")
                ),
            ));
        }
    }
    problems
}

/// Reads the object of a review as one of our kinds.
fn parse<K: DeserializeOwned>(review: &Review<'_>) -> Result<K, Denial> {
    let unreadable = |words: String| Denial::new(Reason::NotApprovable, "Unreadable", words);
    let object = review
        .object
        .ok_or_else(|| unreadable("the review holds no object".to_owned()))?;
    serde_json::from_str(&canonical::to_string(object))
        .map_err(|error| unreadable(format!("cannot be read: {error}")))
}

fn invalid(problems: &[Problem]) -> Denial {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    Denial::new(Reason::NotApprovable, "Invalid", lines.join("; "))
}

fn allow() -> Decision {
    Decision {
        response: Response::allow(),
        verdict: "Allow",
        reason: "Guarded",
    }
}

/// People's writes are answered in plain words, without the line for agents.
fn refuse(review: &Review<'_>, denial: &Denial) -> Decision {
    let words = visible::visible(&denial.words);
    let response = Response::refuse(Refusal {
        reason: denial.reason,
        message: words.clone(),
        causes: vec![(denial.cause, words)],
        name: visible::visible(review.name.unwrap_or_default()),
        kind: review.resource.to_owned(),
    });
    Decision {
        response,
        verdict: "Deny",
        reason: denial.cause,
    }
}

//! The guard: people's writes to our own kinds are checked by the same functions that read them later, and refused in good words.
//!
//! It refuses early; the controller checks again before anything counts.

use std::sync::Arc;

use futures::{FutureExt, StreamExt, TryStreamExt};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::{
    api::{
        AgentIdentity, ApprovalDecision, ApprovalPolicy, ApprovalRequest, ClusterApprovalPolicy,
        Operation, ToolMount, ToolServer,
    },
    cluster::{
        ledger::Ledger,
        rights::{self, Person},
        view::View,
    },
    decide::{
        assess, canonical,
        denial::{Denial, Reason},
        ended::{self, Finish},
        json::Document,
        mount,
        policy::{Policy, Problem},
        quorum::{self, Ballot, CastVote},
        review::Review,
        server, subject, visible,
        world::World,
    },
    manifests,
    serve::{
        gate::Decision,
        response::{Refusal, Response},
    },
};

/// How many requests of one decision are looked at at once: a decision names up to 64, each with its own questions about rights.
const AT_ONCE: usize = 16;

/// The guard of one replica.
pub struct Guard {
    /// What is declared.
    pub view: Arc<View>,
    /// Requests that decisions name, and the client.
    pub ledger: Ledger,
}

impl Guard {
    /// Decides one review of a write to our own kinds, before `deadline`.
    pub async fn decide(
        &self,
        document: &Document<'_>,
        review: &Review<'_>,
        deadline: Instant,
    ) -> Decision {
        if let Err(denial) = assess::readable(document) {
            return refuse(review, &denial);
        }
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
            "agentidentities" => parse::<AgentIdentity>(review).map(|identity| {
                let own = manifests::own_accounts(&world.system_namespace);
                subject::identity_problems(&world.agents, &own, &manifests::JANITORS, &identity)
            }),
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
                    Ok(decision) => self.vote(&world, review, &decision, deadline).await,
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

    /// Whether a vote can count on every request that it names, as far as can be told now.
    async fn vote(
        &self,
        world: &World,
        review: &Review<'_>,
        decision: &ApprovalDecision,
        deadline: Instant,
    ) -> Decision {
        let now = match self.view.clock.now() {
            Ok(now) => now,
            Err(error) => {
                return refuse(review, &Denial::unavailable("Unready", error.to_string()));
            }
        };
        let questions: Vec<_> = decision
            .spec
            .requests
            .iter()
            .map(|named| {
                self.vote_on(world, review, decision, &named.name, now)
                    .boxed()
            })
            .collect();
        let each = futures::stream::iter(questions)
            .buffered(AT_ONCE)
            .try_collect::<()>();
        match tokio::time::timeout_at(deadline, each).await {
            Ok(Ok(())) => allow(),
            Ok(Err(denial)) => refuse(review, &denial),
            Err(_) => refuse(
                review,
                &Denial::unavailable(
                    "Busy",
                    "the rights on all these requests could not be asked in time: decide fewer at once",
                ),
            ),
        }
    }

    async fn vote_on(
        &self,
        world: &World,
        review: &Review<'_>,
        decision: &ApprovalDecision,
        name: &str,
        now: jiff::Timestamp,
    ) -> Result<(), Denial> {
        let namespace = review.namespace().unwrap_or_default();
        let refuse = |cause, words| Denial::new(Reason::NotApprovable, cause, words);
        let request = match self.ledger.index.request(namespace, name) {
            Some(request) => request,
            None => {
                let read = self.ledger.read_request(namespace, name).await;
                read.ok_or_else(|| {
                    let name = visible::visible(name);
                    refuse(
                        "NoRequest",
                        format!("there is no request {name} in namespace {namespace}"),
                    )
                })?
            }
        };
        if let Some(words) = decided_already(&request, now) {
            return Err(refuse("Finished", words));
        }
        let person = Person::of(&review.user);
        let may_approve = rights::approvable(&self.ledger.client, &person, &request)
            .await
            .map_err(|error| Denial::unavailable("Unknown", error.to_string()))?;
        let gated = world
            .agents
            .declares(review.user.username, review.user.groups())
            || review.user.has_extra(subject::AGENT_KEY);
        let owner = world
            .agents
            .get(&request.spec.requester.agent)
            .and_then(|agent| agent.owner.user.clone());
        let vote = CastVote::of(decision, now, may_approve, gated);
        let tally = quorum::tally(
            &Ballot::of(&request, owner.as_deref(), jiff::Timestamp::MIN, now),
            &[vote],
        );
        let why_not = tally.votes.into_iter().find(|vote| !vote.counted);
        match why_not.and_then(|vote| vote.why_not) {
            None => Ok(()),
            Some(why) => {
                let name = visible::visible(name);
                Err(refuse(
                    "NotCounted",
                    format!("this decision on {name} would not count: {why}"),
                ))
            }
        }
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

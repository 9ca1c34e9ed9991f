//! Carries out the plans for requests and grants.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::{Api, ResourceExt, api::PostParams};

use crate::{
    api::{
        ApprovalDecision, ApprovalRequest, Grant, ServiceAccountRef, approval_request::RequestPhase,
    },
    cluster::client::within,
    control::{
        access::Standing,
        desk::{Desk, Look},
        grant::{self, Findings},
        request::{self, Named, Plan, Terms},
        rights::{self, GLANCE, RECHECK},
        votes,
    },
    decide::{
        ended,
        live::StaleReason,
        quorum::{self, Ballot, Outcome, Tally},
        world::World,
    },
};

const LIMIT: Duration = Duration::from_secs(5);
/// Writes of one request in one pass: approval, grant, uid, and a look between each.
const STEPS: usize = 6;
/// Asked right before something counts.
const NOW: Duration = Duration::ZERO;

/// A grant under a request's grant's name, as far as it is known.
enum Found {
    Unknown,
    Absent,
    There(Arc<Grant>),
}

impl Desk {
    /// Does what is to be done for one request.
    pub async fn keep_request(&self, look: &Look, request: Arc<ApprovalRequest>) {
        let world = self.ctx.view.world();
        let mut request = request;
        let mut found = Found::Unknown;
        for _ in 0..STEPS {
            let phase = request.status.as_ref().and_then(|status| status.phase);
            let plan = match phase {
                None => self.plan_pending(look, &world, &request).await,
                Some(RequestPhase::Approved) => {
                    if matches!(found, Found::Unknown) {
                        found = self.known_grant(&request);
                    }
                    self.plan_approved(look, &world, &request, &found).await
                }
                Some(_) => return,
            };
            match plan {
                Plan::Nothing => return,
                Plan::Write { status, news } => {
                    let written = self
                        .write_request(&request, *status, news.as_ref(), look.now)
                        .await;
                    match written {
                        Some(stored) => request = stored,
                        None => return,
                    }
                }
                Plan::Look => match self.read_grant(&request).await {
                    Found::Unknown => return,
                    other => found = other,
                },
                Plan::Mint(grant) => match self.create(&grant).await {
                    Some(there) => found = there,
                    None => return,
                },
                Plan::EndGrant(words) => {
                    if let Found::There(there) = &found {
                        let end = grant::denied(there, &words, look.now);
                        // Onto the revision at which it was not used: a use in between makes this write lose.
                        self.write_grant(there, end.status, Some(&end.news), look.now)
                            .await;
                    }
                    return;
                }
            }
        }
    }

    async fn plan_pending(&self, look: &Look, world: &World, request: &ApprovalRequest) -> Plan {
        let standing = self.judge(look, request).await;
        match self.count(look, world, request, GLANCE).await {
            Ok(tally) => request::pending(request, Some(&tally), None, &standing, look.now),
            Err(why) => request::pending(request, None, Some(&why), &standing, look.now),
        }
    }

    /// Counts the votes on a request. What decides it is counted again on rights that are asked now.
    async fn count(
        &self,
        look: &Look,
        world: &World,
        request: &ApprovalRequest,
        age: Duration,
    ) -> Result<Tally, String> {
        let decisions = look.decisions_on(request);
        let since = if decisions.is_empty() {
            Timestamp::MAX
        } else {
            self.ctx.guard_since.get().ok_or(
                "it is not proven yet that nobody can store a decision under another's name",
            )?
        };
        let owner = world
            .agents
            .get(&request.spec.requester.agent)
            .and_then(|agent| agent.owner.user.clone());
        let ballot = Ballot::of(request, owner.as_deref(), since, look.now);
        let client = &self.ctx.client;
        let cast = votes::gather(client, &self.rights, world, request, &decisions, age).await?;
        let tally = quorum::tally(&ballot, &cast);
        if !matches!(
            tally.outcome,
            Outcome::Approved { .. } | Outcome::Denied { .. }
        ) {
            return Ok(tally);
        }
        let cast = votes::gather(client, &self.rights, world, request, &decisions, NOW).await?;
        Ok(quorum::tally(&ballot, &cast))
    }

    async fn plan_approved(
        &self,
        look: &Look,
        world: &World,
        request: &ApprovalRequest,
        found: &Found,
    ) -> Plan {
        let named = match found {
            Found::Unknown => Named::Unknown,
            Found::Absent => Named::Absent,
            Found::There(grant) => Named::There(grant),
        };
        let minted = request
            .status
            .as_ref()
            .and_then(|status| status.grant.as_ref())
            .is_some_and(|grant| grant.uid.is_some());
        let late = self.late(look, world, request, found, minted).await;
        let terms = if minted {
            Terms::Unknown
        } else {
            self.terms(world, request, NOW).await
        };
        request::approved(request, named, late.as_ref(), &terms, look.now)
    }

    /// The votes of an approved request, while somebody says no and that can still matter.
    async fn late(
        &self,
        look: &Look,
        world: &World,
        request: &ApprovalRequest,
        found: &Found,
        minted: bool,
    ) -> Option<Tally> {
        let used = |grant: &Grant| {
            grant
                .status
                .as_ref()
                .and_then(|status| status.used)
                .unwrap_or(0)
                > 0
        };
        let too_late = minted && matches!(found, Found::There(grant) if used(grant));
        let any_denial = look
            .decisions_on(request)
            .iter()
            .any(|decision| decision.spec.verdict == crate::api::Verdict::Deny);
        if too_late || !any_denial {
            return None;
        }
        self.count(look, world, request, GLANCE).await.ok()
    }

    /// What the recorded approvals of a request come to, on rights no older than `age`.
    pub async fn terms(&self, world: &World, request: &ApprovalRequest, age: Duration) -> Terms {
        let status = request.status.clone().unwrap_or_default();
        let Some(approved_at) = status.ended_at else {
            return Terms::Unknown;
        };
        let mut decisions = Vec::new();
        let recorded = status
            .votes
            .iter()
            .filter(|vote| vote.counted && vote.verdict == crate::api::Verdict::Approve);
        for vote in recorded {
            match self
                .recorded(request, &vote.decision.name, &vote.decision.uid)
                .await
            {
                Ok(Some(decision)) => decisions.push(decision),
                Ok(None) => return Terms::Lost(format!("decision {} is gone", vote.decision.name)),
                Err(()) => return Terms::Unknown,
            }
        }
        let gathered = votes::gather(
            &self.ctx.client,
            &self.rights,
            world,
            request,
            &decisions,
            age,
        )
        .await;
        let Ok(cast) = gathered else {
            return Terms::Unknown;
        };
        let owner = world
            .agents
            .get(&request.spec.requester.agent)
            .and_then(|agent| agent.owner.user.clone());
        // They were counted under a proven guard and before the deadline; asked is only whether their authors still may.
        let ballot = Ballot::of(request, owner.as_deref(), Timestamp::MIN, approved_at.0);
        let tally = quorum::tally(&ballot, &cast);
        match tally.outcome {
            Outcome::Approved {
                uses,
                duration_seconds,
            } => Terms::Hold {
                uses,
                duration_seconds,
            },
            _ => {
                let why = tally
                    .votes
                    .iter()
                    .find(|vote| !vote.counted)
                    .and_then(|vote| {
                        let why = vote.why_not.clone()?;
                        Some(format!("{}: {why}", vote.username))
                    });
                Terms::Lost(why.unwrap_or_else(|| "the approvals no longer suffice".to_owned()))
            }
        }
    }

    /// A recorded decision; `None`: it is gone; an error: it cannot be told.
    async fn recorded(
        &self,
        request: &ApprovalRequest,
        name: &str,
        uid: &str,
    ) -> Result<Option<Arc<ApprovalDecision>>, ()> {
        let namespace = request.namespace().unwrap_or_default();
        let is = |decision: &ApprovalDecision| decision.metadata.uid.as_deref() == Some(uid);
        if let Some(entry) = self.decisions.get(&namespace, name)
            && is(&entry.object)
        {
            return Ok(Some(entry.object));
        }
        let api: Api<ApprovalDecision> = Api::namespaced(self.ctx.client.clone(), &namespace);
        match within(LIMIT, api.get_opt(name)).await {
            Ok(decision) => Ok(decision.filter(is).map(Arc::new)),
            Err(_) => Err(()),
        }
    }

    fn known_grant(&self, request: &ApprovalRequest) -> Found {
        let uid = request.uid().unwrap_or_default();
        let written = request
            .status
            .as_ref()
            .and_then(|status| status.grant.as_ref())
            .and_then(|grant| grant.uid.clone());
        // A copy serves only where it is the grant that the request names; everything else is read live.
        match self.ctx.view.index.grant_of(&uid) {
            Some(grant) if written.is_some() && grant.metadata.uid == written => {
                Found::There(grant)
            }
            _ => Found::Unknown,
        }
    }

    async fn read_grant(&self, request: &ApprovalRequest) -> Found {
        let namespace = request.namespace().unwrap_or_default();
        let named = request
            .status
            .as_ref()
            .and_then(|status| status.grant.as_ref());
        let Some(named) = named else {
            return Found::Unknown;
        };
        match within(LIMIT, self.ledger.grants(&namespace).get_opt(&named.name)).await {
            Ok(Some(grant)) if grant.metadata.deletion_timestamp.is_some() => Found::Unknown,
            Ok(Some(grant)) => {
                self.ctx.view.index.put_grant(grant.clone());
                Found::There(Arc::new(grant))
            }
            Ok(None) => Found::Absent,
            Err(error) => {
                tracing::warn!(%error, namespace, name = named.name, "a grant cannot be read");
                Found::Unknown
            }
        }
    }

    /// Creates a grant. `Some(Found::Unknown)`: one is there already, or perhaps; look.
    async fn create(&self, grant: &Grant) -> Option<Found> {
        let namespace = grant.namespace().unwrap_or_default();
        let api = self.ledger.grants(&namespace);
        match within(LIMIT, api.create(&PostParams::default(), grant)).await {
            Ok(stored) => {
                self.ctx.view.index.put_grant(stored.clone());
                Some(Found::There(Arc::new(stored)))
            }
            Err(error) if error.is_already_exists() => Some(Found::Unknown),
            Err(error) => {
                tracing::warn!(%error, namespace, name = grant.name_any(), "a grant could not be made");
                None
            }
        }
    }

    /// Does what is to be done about the life of one grant. Returns whether it may still serve although something that it relies on may
    /// have changed.
    pub async fn keep_grant(&self, look: &Look, grant: &Arc<Grant>) -> bool {
        let serves = ended::ended(&grant.spec, grant.status.as_ref(), look.now).is_none();
        let (findings, certain) = if grant.spec.revoked == Some(true) {
            (Findings::default(), true)
        } else {
            self.findings(look, grant).await
        };
        let Some(end) = grant::plan(grant, &findings, look.now) else {
            return serves && !certain;
        };
        let stored = self
            .write_grant(grant, end.status, Some(&end.news), look.now)
            .await;
        stored.is_none() && serves
    }

    async fn findings(&self, look: &Look, grant: &Grant) -> (Findings, bool) {
        let namespace = grant.namespace().unwrap_or_default();
        let named = &grant.spec.request_ref;
        let request = self.ctx.view.index.request(&namespace, &named.name);
        let backed = request.filter(|request| {
            let written = request
                .status
                .as_ref()
                .and_then(|status| status.grant.as_ref())
                .and_then(|grant| grant.uid.as_deref());
            request.metadata.uid.as_deref() == Some(&named.uid)
                && written.is_some()
                && written == grant.metadata.uid.as_deref()
        });
        // A grant that its request does not name serves nobody: only time ends it.
        let Some(request) = backed else {
            return (Findings::default(), true);
        };
        let standing = self.judge(look, &request).await;
        let certain = !matches!(&standing, Standing::CannotTell(doubt) if !doubt.refused);
        let world = self.ctx.view.world();
        let findings = Findings {
            lost_key: grant::lost_key(
                &world.redactor,
                &grant.spec.action,
                [&grant.spec.state, &request.spec.change],
            ),
            requester: self.requester(grant).await,
            approvals: self.terms(&world, &request, RECHECK).await,
            standing,
        };
        (findings, certain)
    }

    /// What is certainly wrong with the requester's account, if anything. Of others than ServiceAccounts the groups are not recorded, so
    /// their rights cannot be asked; the API server asks them itself before each write.
    async fn requester(&self, grant: &Grant) -> Option<(StaleReason, String)> {
        let requester = &grant.spec.requester;
        let (person, account) = rights::service_account(requester)?;
        let ServiceAccountRef { namespace, name } = &account;
        let there = self.account_uid(namespace, name).await.ok()?;
        match (there, &requester.uid) {
            (None, _) => {
                return Some((
                    StaleReason::AccessRemoved,
                    format!("ServiceAccount {namespace}/{name} is gone"),
                ));
            }
            (Some(there), Some(uid)) if there != *uid => {
                return Some((
                    StaleReason::RequesterReplaced,
                    format!("ServiceAccount {namespace}/{name} has another uid now"),
                ));
            }
            _ => {}
        }
        let action = &grant.spec.action;
        let needed = rights::needed(action);
        for right in &needed {
            let has = self
                .rights
                .has(&self.ctx.client, &person, right, RECHECK)
                .await;
            if has.unwrap_or(true) {
                return None;
            }
        }
        let right = needed.first()?;
        Some((
            StaleReason::AccessRemoved,
            format!(
                "{} may no longer {} {}",
                requester.username, right.verb, right.resource
            ),
        ))
    }
}

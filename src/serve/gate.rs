//! The gate: one review of an agent's write, decided by `decide`, carried out by the ledger.

mod answers;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use kube::ResourceExt;
use tokio::time::Instant;

use crate::{
    api::ApprovalRequest,
    cluster::{
        filing::{Filing, Mark},
        index::Filed,
        ledger::{Ledger, Refused, Spent},
        rights,
        view::View,
    },
    decide::{
        assess::{self, Assessment, Free, FreeBecause},
        chain::{self, Link},
        denial::{Denial, Reason},
        json,
        live::{self, MayRecord, Misfit, StaleReason},
        message,
        proposal::Proposal,
        review::Review,
        visible,
        world::World,
    },
    serve::response::{Refusal, Response},
};

use answers::{admitted, approved, before, canary, cooling};
pub use answers::{denied, denied_unread};

/// How often a name may be taken by somebody else within one call.
const MAX_LINKS: usize = 8;
/// Uses of one requester in so many seconds make a denial say that part of the work is done.
const RECENT: Duration = Duration::from_secs(10);

/// The gate of one replica.
pub struct Gate {
    /// What decisions are made on.
    pub view: Arc<View>,
    /// Grants and requests.
    pub ledger: Ledger,
    /// Whether this replica's own Lease is in date, in words if not.
    pub alive: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
    recent: Mutex<HashMap<String, Vec<Instant>>>,
}

/// What a decision needs to know of its call.
pub struct Call {
    /// Digest in the path: which gate entry sent the review.
    pub entry: String,
    /// When the answer has to be on its way.
    pub deadline: Instant,
    /// Turns false when the API server hangs up.
    pub connected: Arc<AtomicBool>,
}

/// A decision: the answer with the words for metrics.
pub struct Decision {
    /// The answer.
    pub response: Response,
    /// `Allow`, `Ask`, `Deny` or `Unready`.
    pub verdict: &'static str,
    /// Reason word.
    pub reason: &'static str,
}

impl Gate {
    /// A gate.
    pub fn new(
        view: Arc<View>,
        ledger: Ledger,
        alive: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
    ) -> Self {
        Self {
            view,
            ledger,
            alive,
            recent: Mutex::default(),
        }
    }

    /// Decides one review. Runs in a task of its own: once a use is written, its answer may come too late, but is never undone.
    pub async fn decide(
        &self,
        document: &json::Document<'_>,
        review: &Review<'_>,
        call: &Call,
    ) -> Decision {
        let (world, now) = match self.view.ready() {
            Ok(ready) => ready,
            Err(error) => return self.unready(review, &error.to_string()),
        };
        if let Err(why) = (self.alive)() {
            return self.unready(review, &why);
        }
        let assessed = assess::assess(&world, document, review);
        tracing::debug!(uid = review.uid, trace = %assessed.trace, "assessed");
        match assessed.assessment {
            Assessment::Canary => canary(review, &call.entry),
            Assessment::Allow(free) => self.free(review, free).await,
            Assessment::Deny(denial) => denied(review, &denial),
            Assessment::Unready(why) => {
                if why.contains("not known here yet") {
                    self.view.discover_again();
                }
                self.unready(review, &why)
            }
            Assessment::Ask(proposal) => self.ask(&world, review, &proposal, call, now).await,
        }
    }

    fn unready(&self, review: &Review<'_>, why: &str) -> Decision {
        let denial = Denial::unavailable("Unready", why);
        let mut decision = denied(review, &denial);
        decision.verdict = "Unready";
        decision
    }

    async fn free(&self, review: &Review<'_>, free: Free) -> Decision {
        if free.reads_secret && !rights::may_get(&self.ledger.client, review).await {
            let words = "such a write answers with the Secret's data, and this identity may not read it (verb get)";
            return denied(
                review,
                &Denial::new(Reason::ToolNotEnabled, "ReadsSecret", words),
            );
        }
        let response = Response::allow().audited("agent", free.agent);
        let (response, reason) = match free.because {
            FreeBecause::NoChange => (response.audited("decision", "no-change"), "NoChange"),
            FreeBecause::DryRun => (
                response
                    .audited("decision", "dry-run")
                    .warned(message::DRY_RUN),
                "DryRun",
            ),
            FreeBecause::Exempt(by) => (
                response.audited("decision", "exempt").audited("rule", by),
                "Exempt",
            ),
        };
        Decision {
            response,
            verdict: "Allow",
            reason,
        }
    }

    async fn ask(
        &self,
        world: &World,
        review: &Review<'_>,
        proposal: &Proposal,
        call: &Call,
        now: Timestamp,
    ) -> Decision {
        let mut filed = self.ledger.index.filed(&proposal.action_key);
        if let Some(name) = &filed.unreadable {
            return self.unready(review, &unreadable(name));
        }
        let refusals = match self.spend(review, proposal, &mut filed, call).await {
            Ok(decision) => return decision,
            Err(refusals) => refusals,
        };
        let marks = match self.marks(world, review, &refusals, proposal).await {
            Ok(marks) => marks,
            Err(why) => return self.unready(review, &why),
        };
        let Some(marks) = marks else {
            let words = "this replica sees an older state than was approved; the server asks again with the current one";
            return denied(review, &Denial::unavailable("OldView", words));
        };
        self.ledger.mark_stale(&mut filed, &marks, now).await;
        self.follow_chain(world, review, proposal, &mut filed, &refusals, call, now)
            .await
    }

    /// Looks for a grant that serves: the decision, or the grants that do not serve with why.
    async fn spend(
        &self,
        review: &Review<'_>,
        proposal: &Proposal,
        filed: &mut Filed,
        call: &Call,
    ) -> Result<Decision, Vec<Refused>> {
        let clock = || {
            if call.connected.load(Ordering::Acquire) {
                self.view.clock.now().ok()
            } else {
                None
            }
        };
        let spent = self
            .ledger
            .spend(filed, proposal, review, clock, call.deadline)
            .await;
        match spent {
            Spent::Admitted {
                grant,
                operation_id,
                again,
            } => {
                if !again {
                    self.remember(&proposal.requester.username);
                }
                Ok(admitted(filed, &grant, &operation_id, proposal, again))
            }
            Spent::Busy(why) => Ok(denied(review, &Denial::unavailable("Busy", why))),
            Spent::Unavailable(why) => Ok(denied(review, &Denial::unavailable("Unknown", why))),
            Spent::None(refusals) => Err(refusals),
        }
    }

    /// Which refusals are news to be recorded; `None` where one comes from a view older than what was approved. The error names what
    /// this version cannot read: then nothing is decided.
    async fn marks(
        &self,
        world: &World,
        review: &Review<'_>,
        refusals: &[Refused],
        proposal: &Proposal,
    ) -> Result<Option<Vec<Mark>>, String> {
        let mut marks = Vec::new();
        for Refused { grant, misfit } in refusals {
            let (reason, fields) = match misfit {
                Misfit::Unreadable => return Err(unreadable(&grant.name_any())),
                Misfit::Stale {
                    reason,
                    fields,
                    recorded: false,
                } => (*reason, fields.clone()),
                _ => continue,
            };
            let may = match live::may_record(grant, proposal, reason) {
                MayRecord::Yes => true,
                MayRecord::No => false,
                MayRecord::IfPresent => {
                    self.ledger
                        .sees_the_present(
                            world,
                            proposal,
                            &grant.spec.policies,
                            review.request_namespace,
                        )
                        .await
                }
            };
            if !may {
                return Ok(None);
            }
            marks.push(Mark {
                grant: grant.clone(),
                reason,
                fields,
            });
        }
        Ok(Some(marks))
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "everything that one call has found out"
    )]
    async fn follow_chain(
        &self,
        world: &World,
        review: &Review<'_>,
        proposal: &Proposal,
        filed: &mut Filed,
        refusals: &[Refused],
        call: &Call,
        now: Timestamp,
    ) -> Decision {
        let mut looked = false;
        for _ in 0..MAX_LINKS {
            if Instant::now_left(call.deadline).is_zero() {
                return denied(
                    review,
                    &Denial::unavailable("Busy", "no time is left in this call"),
                );
            }
            let copy = filed.clone();
            let views = copy.request_views();
            match chain::link(&views, proposal, now) {
                Link::Pending(request) => return self.pending(&copy, request, proposal, refusals),
                Link::Approved(request) => {
                    // The copy may lag behind the controller's minting by a moment: look once.
                    if !looked {
                        looked = true;
                        let (namespace, name) =
                            (request.namespace().unwrap_or_default(), request.name_any());
                        self.ledger.refresh_request(filed, &namespace, &name).await;
                        match self.spend(review, proposal, filed, call).await {
                            Ok(decision) => return decision,
                            Err(_) => continue,
                        }
                    }
                    return approved(request, proposal, "its grant is not in force yet");
                }
                Link::CoolingDown {
                    denied: request,
                    until,
                } => return cooling(request, proposal, until),
                Link::OldView(request) => {
                    let mut decision = self.pending(&copy, request, proposal, refusals);
                    decision.reason = "OldView";
                    return decision;
                }
                Link::Altered { request } => {
                    let words = format!(
                        "request {} was stored otherwise than it was filed: something in the cluster alters requests",
                        request.name_any()
                    );
                    return denied(review, &Denial::unavailable("NotFiled", words));
                }
                Link::Supersede { request, reason } => {
                    let certain = reason != StaleReason::PolicyChanged
                        || self
                            .ledger
                            .sees_the_present(
                                world,
                                proposal,
                                &request.spec.policies,
                                review.request_namespace,
                            )
                            .await;
                    if !certain {
                        let mut decision = self.pending(&copy, request, proposal, refusals);
                        decision.reason = "OldView";
                        return decision;
                    }
                    let superseded = self
                        .ledger
                        .supersede(request, reason.as_str(), reason.words(), now)
                        .await;
                    match superseded {
                        Ok(there) => filed.put_request(there),
                        Err(error) => {
                            return denied(review, &Denial::unavailable("Unknown", error));
                        }
                    }
                }
                Link::Unreadable(request) => {
                    return self.unready(review, &unreadable(&request.name_any()));
                }
                Link::File { name, previous } => {
                    if let Err(words) = self.ledger.may_file(proposal, now) {
                        return denied(review, &Denial::unavailable("TooManyPending", words));
                    }
                    if review.operation == crate::api::Operation::Create
                        && self.ledger.exists(proposal, review.kind).await == Some(true)
                    {
                        let words = "an object of that name is there already, so this CREATE cannot succeed";
                        return denied(
                            review,
                            &Denial::new(Reason::NotApprovable, "Exists", words),
                        );
                    }
                    match self.ledger.file(proposal, &name, previous, now).await {
                        Filing::Filed(request) => {
                            filed.put_request(request.clone());
                            return self.pending(filed, &request, proposal, refusals);
                        }
                        Filing::Taken(request) => filed.put_request(request),
                        Filing::Failed(why) => {
                            return denied(review, &Denial::unavailable("NotFiled", why));
                        }
                    }
                }
            }
        }
        denied(
            review,
            &Denial::unavailable(
                "Busy",
                "others file requests for the same change at the same moment",
            ),
        )
    }

    fn pending(
        &self,
        filed: &Filed,
        request: &ApprovalRequest,
        proposal: &Proposal,
        refusals: &[Refused],
    ) -> Decision {
        let before = before(filed, request, proposal, refusals);
        let text = message::pending(
            request,
            proposal,
            before.as_ref(),
            self.lately(&proposal.requester.username),
        );
        let id = format!(
            "{}/{}",
            request.namespace().unwrap_or_default(),
            request.name_any()
        );
        let reason = before
            .as_ref()
            .map_or(Reason::ApprovalPending, |before| before.reason);
        let mut causes = vec![("ApprovalPending", id.clone())];
        if let Some(before) = &before {
            causes.insert(0, (before.cause, before.words.clone()));
            causes.extend(
                before
                    .fields
                    .iter()
                    .take(16)
                    .map(|field| ("Field", visible::visible(field))),
            );
        }
        let response = Response::refuse(Refusal {
            reason,
            message: text,
            causes,
            name: request.name_any(),
            kind: "approvalrequests".to_owned(),
        })
        .audited("decision", "pending")
        .audited("request", id)
        .audited("digest", request.spec.digest.clone());
        Decision {
            response,
            verdict: "Ask",
            reason: reason.as_str(),
        }
    }

    fn remember(&self, username: &str) {
        let mut recent = self
            .recent
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if recent.len() > 10_000 {
            recent.clear();
        }
        let times = recent.entry(username.to_owned()).or_default();
        times.retain(|at| at.elapsed() < RECENT);
        if times.len() < 100 {
            times.push(Instant::moment());
        }
    }

    fn lately(&self, username: &str) -> usize {
        let recent = self
            .recent
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        recent.get(username).map_or(0, |times| {
            times.iter().filter(|at| at.elapsed() < RECENT).count()
        })
    }
}

/// The local clock as spans: deadlines and "lately".
trait Moment {
    fn moment() -> Instant;
    fn now_left(deadline: Instant) -> Duration;
}

impl Moment for Instant {
    fn moment() -> Instant {
        Instant::now()
    }

    fn now_left(deadline: Instant) -> Duration {
        deadline.saturating_duration_since(Self::moment())
    }
}

fn unreadable(name: &str) -> String {
    format!("{name} holds a word that this version does not know")
}

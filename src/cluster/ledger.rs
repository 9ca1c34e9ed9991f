//! Grants at work: the compare-and-swap loop around `decide::spend`.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::{Api, Client, ResourceExt, api::PostParams};
use tokio::time::Instant;

use crate::{
    api::{Grant, approval_request::Base, grant::GrantStatus},
    cluster::{
        client::{CallError, within},
        index::{Filed, Index},
        witness,
    },
    decide::{
        live::{GrantView, Misfit},
        proposal::Proposal,
        review::Review,
        spend::{self, Known, Turn},
        witness::Seen,
    },
};

/// With less time left nothing is consumed: a write that is answered too late is a use without an effect.
pub const MIN_BUDGET: Duration = Duration::from_millis(300);

/// The grants and requests of the cluster as one replica works with them.
#[derive(Clone)]
pub struct Ledger {
    /// Client of the API server, as the webhook's account.
    pub client: Client,
    /// What is known of requests and grants.
    pub index: Arc<Index>,
    /// Name of this replica, recorded with each use.
    pub replica: Arc<str>,
}

/// A grant that does not serve.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The grant.
    pub grant: Arc<Grant>,
    /// Why not.
    pub misfit: Misfit,
}

/// What came of a look for a grant.
#[derive(Debug)]
pub enum Spent {
    /// The write is admitted under this grant.
    Admitted {
        /// The grant, with the use.
        grant: Arc<Grant>,
        /// Id of the operation.
        operation_id: String,
        /// Whether an open use served again.
        again: bool,
    },
    /// No grant serves: each with why.
    None(Vec<Refused>),
    /// Nothing can be consumed just now.
    Busy(&'static str),
    /// The outcome of a write is not known, or the server does not answer.
    Unavailable(String),
}

impl Ledger {
    /// Grants in a namespace.
    pub fn grants(&self, namespace: &str) -> Api<Grant> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Looks for a grant that serves, and consumes a use of it. `filed` is refreshed by what is read on the way.
    pub async fn spend(
        &self,
        filed: &mut Filed,
        proposal: &Proposal,
        review: &Review<'_>,
        now: impl Fn() -> Option<Timestamp>,
        deadline: Instant,
    ) -> Spent {
        let mut known = Known::default();
        loop {
            let Some(time) = now() else {
                return Spent::Unavailable("the clock cannot be trusted".to_owned());
            };
            if remaining(deadline) < MIN_BUDGET {
                return Spent::Busy("no time is left in this call");
            }
            let grants = filed.grants.clone();
            let views: Vec<GrantView<'_>> =
                grants.iter().map(|grant| filed.grant_view(grant)).collect();
            let (place, status, use_uid) =
                match spend::turn(&views, proposal, time, &self.replica, &known) {
                    Turn::Refuse(misfits) => {
                        let refused = grants.into_iter().zip(misfits);
                        return Spent::None(
                            refused
                                .map(|(grant, misfit)| Refused { grant, misfit })
                                .collect(),
                        );
                    }
                    Turn::Busy(why) => return Spent::Busy(why),
                    Turn::Admit {
                        grant,
                        operation_id,
                        rule,
                    } => {
                        let Some(grant) = grants.get(grant).cloned() else {
                            return Spent::None(Vec::new());
                        };
                        tracing::debug!(grant = grant.name_any(), ?rule, "a use serves again");
                        return Spent::Admitted {
                            grant,
                            operation_id,
                            again: true,
                        };
                    }
                    Turn::Read { grant } => (grant, None, None),
                    Turn::Write { grant, status, .. } => (grant, Some(*status), None),
                    Turn::Look {
                        grant,
                        use_uid,
                        from,
                        to,
                    } => {
                        let moved = match self.look(review, &from, &to, deadline).await {
                            Seen::NotCommitted => grants
                                .get(grant)
                                .and_then(|grant| spend::moved(grant, &use_uid, &to)),
                            Seen::MaybeCommitted => None,
                        };
                        if moved.is_none() {
                            known.gone.push(use_uid);
                            continue;
                        }
                        (grant, moved, Some(use_uid))
                    }
                };
            let Some(grant) = grants.get(place) else {
                return Spent::None(Vec::new());
            };
            if let Some(status) = status {
                match self.swap(grant, status, &proposal.admission_uid).await {
                    Swap::Stored(stored) | Swap::Landed(stored) => {
                        filed.put_grant(stored.clone());
                        let served = use_uid.as_ref().unwrap_or(&proposal.admission_uid);
                        let operation_id = stored
                            .status
                            .as_ref()
                            .and_then(|status| status.uses.get(served))
                            .map(|open| open.operation_id.clone())
                            .unwrap_or_default();
                        return Spent::Admitted {
                            grant: stored,
                            operation_id,
                            again: use_uid.is_some(),
                        };
                    }
                    Swap::Lost => {}
                    Swap::Unknown(why) => return Spent::Unavailable(why),
                }
            }
            if let Err(why) = self.refresh(filed, grant, &mut known.live).await {
                return Spent::Unavailable(why);
            }
        }
    }

    /// Asks the witness, where the kind may be watched.
    async fn look(&self, review: &Review<'_>, from: &Base, to: &Base, deadline: Instant) -> Seen {
        if !witness::may_watch(review) {
            return Seen::MaybeCommitted;
        }
        let limit = remaining(deadline).saturating_sub(MIN_BUDGET);
        let (from, to) = (&from.resource_version, &to.resource_version);
        witness::look(&self.client, review, from, to, limit).await
    }

    /// Reads a grant live and puts it in the place of the copy.
    async fn refresh(
        &self,
        filed: &mut Filed,
        grant: &Grant,
        live: &mut Vec<String>,
    ) -> Result<(), String> {
        let namespace = grant.namespace().unwrap_or_default();
        let name = grant.name_any();
        let uid = grant.uid().unwrap_or_default();
        filed
            .grants
            .retain(|known| known.uid().unwrap_or_default() != uid);
        match within(Duration::from_secs(2), self.grants(&namespace).get(&name)).await {
            Ok(fresh) => {
                let fresh_uid = fresh.uid().unwrap_or_default();
                self.index.put_grant(fresh.clone());
                filed.put_grant(Arc::new(fresh));
                if !live.contains(&fresh_uid) {
                    live.push(fresh_uid);
                }
                Ok(())
            }
            Err(error) if error.is_not_found() => {
                self.index.drop_grant(&(namespace, name));
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// Writes a status onto the exact revision known.
    pub async fn swap(&self, grant: &Grant, status: GrantStatus, admission_uid: &str) -> Swap {
        let namespace = grant.namespace().unwrap_or_default();
        let name = grant.name_any();
        let mut written = grant.clone();
        written.metadata.managed_fields = None;
        written.status = Some(status);
        let api = self.grants(&namespace);
        let answer = within(
            Duration::from_secs(2),
            api.replace_status(&name, &PostParams::default(), &written),
        )
        .await;
        match answer {
            Ok(stored) => {
                self.index.put_grant(stored.clone());
                Swap::Stored(Arc::new(stored))
            }
            Err(error) if error.is_conflict() || error.is_not_found() => Swap::Lost,
            Err(error) if error.is_definite() => Swap::Unknown(error.to_string()),
            Err(error) => self.found_out(&api, &name, admission_uid, &error).await,
        }
    }

    /// After a write whose outcome is not known: the object itself says whether it landed.
    async fn found_out(
        &self,
        api: &Api<Grant>,
        name: &str,
        admission_uid: &str,
        error: &CallError,
    ) -> Swap {
        match within(Duration::from_secs(1), api.get(name)).await {
            Ok(fresh) => {
                self.index.put_grant(fresh.clone());
                let landed = fresh
                    .status
                    .as_ref()
                    .is_some_and(|status| status.uses.contains_key(admission_uid));
                if landed {
                    Swap::Landed(Arc::new(fresh))
                } else {
                    Swap::Unknown(error.to_string())
                }
            }
            Err(_) => Swap::Unknown(error.to_string()),
        }
    }
}

/// What came of a compare-and-swap.
#[derive(Debug)]
pub enum Swap {
    /// Stored.
    Stored(Arc<Grant>),
    /// No answer came, and a read shows that it was stored.
    Landed(Arc<Grant>),
    /// Somebody was faster.
    Lost,
    /// Not known, or refused.
    Unknown(String),
}

/// Time left until a deadline.
pub fn remaining(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

//! Grants at work: the compare-and-swap loop around `decide::spend`.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::{Api, Client, ResourceExt, api::PostParams};
use tokio::time::Instant;

use crate::{
    api::{Grant, grant::GrantStatus},
    cluster::{
        client::{CallError, within},
        index::{Filed, Index},
        witness::{self, Seen},
    },
    decide::{
        live::Misfit,
        proposal::Proposal,
        review::Review,
        spend::{self, Spend},
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
        let mut live: Vec<String> = Vec::new();
        // Open uses that may be committed: they serve nobody again.
        let mut gone: Vec<String> = Vec::new();
        loop {
            let Some(time) = now() else {
                return Spent::Unavailable("the clock cannot be trusted".to_owned());
            };
            if remaining(deadline) < MIN_BUDGET {
                return Spent::Busy("no time is left in this call");
            }
            let mut refusals: Vec<Refused> = Vec::new();
            let mut chosen: Option<(Arc<Grant>, Spend)> = None;
            for grant in &filed.grants {
                match spend::spend(
                    &filed.grant_view(grant),
                    proposal,
                    time,
                    &self.replica,
                    &gone,
                ) {
                    Spend::Refused(misfit) => refusals.push(Refused {
                        grant: grant.clone(),
                        misfit,
                    }),
                    spend => {
                        if chosen
                            .as_ref()
                            .is_none_or(|(_, known)| rank(&spend) < rank(known))
                        {
                            chosen = Some((grant.clone(), spend));
                        }
                    }
                }
            }
            let Some((grant, spend)) = chosen else {
                return Spent::None(refusals);
            };
            let uid = grant.uid().unwrap_or_default();
            match spend {
                Spend::Already { operation_id } => {
                    return Spent::Admitted {
                        grant,
                        operation_id,
                        again: true,
                    };
                }
                Spend::Busy(why) => return Spent::Busy(why),
                Spend::Refused(misfit) => return Spent::None(vec![Refused { grant, misfit }]),
                Spend::Readmit {
                    operation_id, rule, ..
                } if live.contains(&uid) => {
                    tracing::debug!(grant = grant.name_any(), ?rule, "an open use serves again");
                    return Spent::Admitted {
                        grant,
                        operation_id,
                        again: true,
                    };
                }
                Spend::AskWitness { use_uid, from, to } if live.contains(&uid) => {
                    let seen = if witness::may_watch(review) {
                        let limit = remaining(deadline).saturating_sub(MIN_BUDGET);
                        witness::look(
                            &self.client,
                            review,
                            &from.resource_version,
                            &to.resource_version,
                            limit,
                        )
                        .await
                    } else {
                        Seen::MaybeCommitted
                    };
                    let moved = match seen {
                        Seen::NotCommitted => spend::moved(&grant, &use_uid, &to),
                        Seen::MaybeCommitted => None,
                    };
                    let Some(status) = moved else {
                        gone.push(use_uid);
                        continue;
                    };
                    match self.swap(&grant, status, &proposal.admission_uid).await {
                        Swap::Stored(stored) | Swap::Landed(stored) => {
                            let operation_id = stored
                                .status
                                .as_ref()
                                .and_then(|status| status.uses.get(&use_uid))
                                .map(|open| open.operation_id.clone())
                                .unwrap_or_default();
                            filed.put_grant(stored.clone());
                            return Spent::Admitted {
                                grant: stored,
                                operation_id,
                                again: true,
                            };
                        }
                        Swap::Lost => {}
                        Swap::Unknown(why) => return Spent::Unavailable(why),
                    }
                    if let Err(why) = self.refresh(filed, &grant, &mut live).await {
                        return Spent::Unavailable(why);
                    }
                }
                Spend::Readmit { .. } | Spend::AskWitness { .. } => {
                    if let Err(why) = self.refresh(filed, &grant, &mut live).await {
                        return Spent::Unavailable(why);
                    }
                }
                Spend::Consume {
                    status,
                    operation_id,
                } => match self.swap(&grant, *status, &proposal.admission_uid).await {
                    Swap::Stored(stored) | Swap::Landed(stored) => {
                        filed.put_grant(stored.clone());
                        return Spent::Admitted {
                            grant: stored,
                            operation_id,
                            again: false,
                        };
                    }
                    Swap::Lost => {
                        if let Err(why) = self.refresh(filed, &grant, &mut live).await {
                            return Spent::Unavailable(why);
                        }
                    }
                    Swap::Unknown(why) => return Spent::Unavailable(why),
                },
            }
        }
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

/// Which of several grants to take: what writes nothing first.
fn rank(spend: &Spend) -> u8 {
    match spend {
        Spend::Already { .. } => 0,
        Spend::Readmit { .. } => 1,
        Spend::Consume { .. } => 2,
        Spend::AskWitness { .. } => 3,
        Spend::Busy(_) => 4,
        Spend::Refused(_) => 5,
    }
}

/// Time left until a deadline.
pub fn remaining(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

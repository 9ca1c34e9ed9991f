//! Filing requests and marking what ended, by names and compare-and-swap: safe under any number of replicas.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GetParams, PostParams},
    core::{GroupVersionKind, PartialObjectMeta},
};

use crate::{
    api::{
        ApprovalRequest, GROUP, VERSION,
        approval_request::{Previous, RequestPhase},
    },
    cluster::{
        client::{CallError, within},
        index::{Filed, Load},
        ledger::{Ledger, Swap},
    },
    decide::{
        chain,
        conditions::{self, Observed},
        json,
        live::StaleReason,
        proposal::Proposal,
        record,
        redact::Redactor,
        spend,
    },
    manifests,
};

/// Pending requests of one requester.
pub const MAX_PENDING: usize = 20;
/// What they store of changes and states, in bytes.
pub const MAX_PENDING_BYTES: usize = 1 << 20;
/// Pending requests in all.
pub const MAX_PENDING_ALL: usize = 1000;
/// What they store of changes and states, in bytes.
pub const MAX_PENDING_BYTES_ALL: usize = 64 << 20;

/// A grant that is to be marked stale.
#[derive(Clone, Debug)]
pub struct Mark {
    /// The copy that was judged.
    pub grant: Arc<crate::api::Grant>,
    /// Why.
    pub reason: StaleReason,
    /// Paths that differ.
    pub fields: Vec<String>,
}

/// What came of filing.
#[derive(Debug)]
pub enum Filing {
    /// Filed.
    Filed(Arc<ApprovalRequest>),
    /// The name is taken: this one is there, look again.
    Taken(Arc<ApprovalRequest>),
    /// Not filed, in words.
    Failed(String),
}

const LIMIT: Duration = Duration::from_secs(3);

impl Ledger {
    fn requests(&self, namespace: &str) -> Api<ApprovalRequest> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Whether one more may be pending: words if not.
    pub fn may_file(&self, proposal: &Proposal, now: Timestamp) -> Result<(), String> {
        let (own, all): (Load, Load) = self.index.load(&proposal.requester.username, now);
        let bound = &proposal.bound;
        let bytes = record::stored_bytes(&bound.change, &bound.state, &bound.diff);
        if own.count >= MAX_PENDING || own.bytes + bytes > MAX_PENDING_BYTES {
            return Err(format!(
                "{} requests of this agent already wait for a person (at most {MAX_PENDING}, 1 MiB): let them be decided first",
                own.count
            ));
        }
        if all.count >= MAX_PENDING_ALL || all.bytes + bytes > MAX_PENDING_BYTES_ALL {
            return Err(format!(
                "{} requests already wait for people (at most {MAX_PENDING_ALL}, 64 MiB)",
                all.count
            ));
        }
        Ok(())
    }

    /// Files a request. The server must store exactly what was sent, or it is Superseded at once.
    pub async fn file(
        &self,
        proposal: &Proposal,
        name: &str,
        previous: Option<Previous>,
        now: Timestamp,
    ) -> Filing {
        let spec = match record::request_spec(proposal, previous, now) {
            Ok(spec) => spec,
            Err(error) => return Filing::Failed(error.to_string()),
        };
        let digest = spec.digest.clone();
        let mut request = ApprovalRequest::new(name, spec);
        request.metadata.namespace = Some(proposal.home.clone());
        let body = match serde_json::to_vec(&request) {
            Ok(body) => body,
            Err(error) => return Filing::Failed(error.to_string()),
        };
        match self.post(&proposal.home, body).await {
            Ok((raw, filed)) => {
                let filed = Arc::new(filed);
                self.index.put_request((*filed).clone());
                if stored_digest(&raw).as_ref() == Some(&digest) {
                    return Filing::Filed(filed);
                }
                self.not_as_filed(&filed, now).await
            }
            Err(error) if error.is_already_exists() => self.taken(&proposal.home, name).await,
            Err(error) if error.is_definite() => {
                Filing::Failed(format!("no request could be filed: {error}"))
            }
            Err(_) => match self.taken(&proposal.home, name).await {
                Filing::Failed(why) => Filing::Failed(format!(
                    "it is not known whether a request was filed: {why}"
                )),
                taken => taken,
            },
        }
    }

    async fn not_as_filed(&self, filed: &ApprovalRequest, now: Timestamp) -> Filing {
        let words = "the API server stored something else than was filed";
        if let Err(error) = self.supersede(filed, chain::NOT_AS_FILED, words, now).await {
            tracing::warn!(request = filed.name_any(), error, "cannot be superseded");
        }
        Filing::Failed(words.to_owned())
    }

    /// The request that has the name already, if it is what would have been filed; another replica filed it, or this one did.
    async fn taken(&self, namespace: &str, name: &str) -> Filing {
        let (raw, there) = match self.read_raw(namespace, name).await {
            Ok(there) => there,
            Err(error) => return Filing::Failed(error.to_string()),
        };
        self.index.put_request(there.clone());
        let is_pending = there
            .status
            .as_ref()
            .is_none_or(|status| status.phase.is_none());
        if is_pending && stored_digest(&raw).as_ref() != Some(&there.spec.digest) {
            return Filing::Failed(
                "the request that is there does not hold what it says".to_owned(),
            );
        }
        Filing::Taken(Arc::new(there))
    }

    async fn read_raw(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<(String, ApprovalRequest), CallError> {
        let path =
            format!("/apis/{GROUP}/{VERSION}/namespaces/{namespace}/approvalrequests/{name}");
        let request = http::Request::get(path).body(Vec::new()).map_err(|error| {
            kube::Error::BuildRequest(kube::core::request::Error::BuildRequest(error))
        })?;
        let raw = within(LIMIT, self.client.request_text(request)).await?;
        let there = serde_json::from_str(&raw).map_err(kube::Error::SerdeError)?;
        Ok((raw, there))
    }

    async fn post(
        &self,
        namespace: &str,
        body: Vec<u8>,
    ) -> Result<(String, ApprovalRequest), CallError> {
        let path = format!(
            "/apis/{GROUP}/{VERSION}/namespaces/{namespace}/approvalrequests?fieldManager={}",
            manifests::WEBHOOK
        );
        let request = http::Request::post(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body)
            .map_err(|error| {
                kube::Error::BuildRequest(kube::core::request::Error::BuildRequest(error))
            })?;
        let raw = within(LIMIT, self.client.request_text(request)).await?;
        let filed = serde_json::from_str(&raw).map_err(kube::Error::SerdeError)?;
        Ok((raw, filed))
    }

    /// Marks a pending request Superseded by compare-and-swap. Returns the copy that is there afterwards.
    pub async fn supersede(
        &self,
        request: &ApprovalRequest,
        reason: &str,
        message: &str,
        now: Timestamp,
    ) -> Result<Arc<ApprovalRequest>, String> {
        let namespace = request.namespace().unwrap_or_default();
        let name = request.name_any();
        let mut written = request.clone();
        written.metadata.managed_fields = None;
        let status = written.status.get_or_insert_default();
        status.phase = Some(RequestPhase::Superseded);
        status.ended_at = Some(MicroTime(record::microseconds(now)));
        let observed = Observed {
            kind: conditions::DECIDED,
            status: conditions::FALSE,
            reason,
            message,
        };
        conditions::set(
            &mut status.conditions,
            observed,
            request.metadata.generation,
            now,
        );
        let api = self.requests(&namespace);
        let stored = match within(
            LIMIT,
            api.replace_status(&name, &PostParams::default(), &written),
        )
        .await
        {
            Ok(stored) => stored,
            Err(_) => match within(LIMIT, api.get(&name)).await {
                Ok(there) => there,
                Err(error) => {
                    if error.is_not_found() {
                        self.index.drop_request(&(namespace, name));
                    }
                    return Err(error.to_string());
                }
            },
        };
        self.index.put_request(stored.clone());
        Ok(Arc::new(stored))
    }

    /// Marks grants stale, each by compare-and-swap on the copy that was judged.
    pub async fn mark_stale(&self, filed: &mut Filed, marks: &[Mark], now: Timestamp) {
        for Mark {
            grant,
            reason,
            fields,
        } in marks
        {
            let message = chain::stale_words(*reason, fields);
            let status = spend::stale(grant, *reason, &message, now);
            if let Swap::Stored(stored) = self.swap(grant, status, "").await {
                filed.put_grant(stored);
            }
        }
    }

    /// Reads what the copy may lack: the named request, and the grant that it names.
    pub async fn refresh_request(&self, filed: &mut Filed, namespace: &str, name: &str) {
        let request = match within(LIMIT, self.requests(namespace).get(name)).await {
            Ok(request) => request,
            Err(error) => {
                if error.is_not_found() {
                    self.index
                        .drop_request(&(namespace.to_owned(), name.to_owned()));
                    filed.requests.retain(|known| known.name_any() != name);
                }
                return;
            }
        };
        self.index.put_request(request.clone());
        let grant = request
            .status
            .as_ref()
            .and_then(|status| status.grant.as_ref())
            .map(|grant| grant.name.clone());
        filed.put_request(Arc::new(request));
        let Some(grant) = grant else { return };
        match within(LIMIT, self.grants(namespace).get_opt(&grant)).await {
            Ok(there) => {
                filed.looked.push(name.to_owned());
                if let Some(there) = there {
                    self.index.put_grant(there.clone());
                    filed.put_grant(Arc::new(there));
                }
            }
            Err(error) => tracing::debug!(%error, grant, "cannot be looked for"),
        }
    }

    /// Reads a request live.
    pub async fn read_request(&self, namespace: &str, name: &str) -> Option<Arc<ApprovalRequest>> {
        within(LIMIT, self.requests(namespace).get(name))
            .await
            .ok()
            .map(Arc::new)
    }

    /// Whether a CREATE's target is there already; `None` where it may not be read.
    pub async fn exists(&self, proposal: &Proposal, kind: &str) -> Option<bool> {
        let action = &proposal.action;
        if Redactor::covers(&action.group, &action.resource) {
            return None;
        }
        let name = action.name.as_deref()?;
        let resource = ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk(&action.group, &action.version, kind),
            &action.resource,
        );
        exists(
            self.client.clone(),
            &resource,
            action.namespace.as_deref(),
            name,
        )
        .await
    }
}

async fn exists(
    client: Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    name: &str,
) -> Option<bool> {
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, resource),
        None => Api::all_with(client, resource),
    };
    let answer: Result<PartialObjectMeta<DynamicObject>, _> = within(
        Duration::from_secs(1),
        api.get_metadata_with(name, &GetParams::default()),
    )
    .await;
    match answer {
        Ok(_) => Some(true),
        Err(error) if error.is_not_found() => Some(false),
        Err(_) => None,
    }
}

/// Digest of the spec as stored, from the raw answer.
fn stored_digest(raw: &str) -> Option<String> {
    let document = json::read(raw).ok()?;
    Some(record::digest_of(document.root().get("spec")?))
}

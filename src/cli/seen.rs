//! A request as the server has it at this moment, checked against its own digest.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    eligible,
    exit::{Failure, quoted},
    kinds::{GRANTS, REQUESTS},
    output::{between, time},
    server::{Refusal, Server, unreadable},
};
use crate::{
    api::{ApprovalRequest, ApprovalRequestSpec, Grant, Operation, approval_request::RequestPhase},
    decide::{
        conditions::{self, GRANT_LOST},
        ended::{Finish, finished},
        json, record,
        visible::visible,
    },
};

/// Hex digits of a digest that are shown where the whole one is too long.
pub const PREFIX: usize = 8;
/// What every digest of this version begins with.
const TAG: &str = "v1:sha256:";

/// A request as the server has it at this moment.
pub struct Seen {
    /// Namespace of the request.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The request.
    pub request: ApprovalRequest,
    /// The digest of its spec, computed here from the text that the server sent.
    pub recomputed: String,
    /// Its grant, where there is one that can be read.
    pub grant: Option<Grant>,
    /// The whole object for `-o json`.
    pub document: Value,
}

impl Seen {
    /// Reads a request that an argument names, and its grant.
    pub async fn read(server: &Server, argument: &str) -> Result<Self, Failure> {
        let (namespace, name) = server.locate(REQUESTS, argument)?;
        let text = match server.get(REQUESTS, Some(&namespace), &name).await {
            Ok(text) => text,
            Err(Refusal::Status(status)) if status.code == 404 => {
                return Err(missing(&namespace, &name, &status.reason));
            }
            Err(refusal) => {
                let what = format!("read request {namespace}/{name}");
                return Err(server
                    .explain(
                        refusal,
                        "get",
                        REQUESTS,
                        Some(&namespace),
                        Some(&name),
                        &what,
                    )
                    .await);
            }
        };
        let mut seen = Self::parse(&text)?;
        seen.namespace = namespace;
        seen.name = name;
        let named = seen
            .request
            .status
            .as_ref()
            .and_then(|status| status.grant.as_ref())
            .map(|grant| grant.name.clone());
        if let Some(grant) = named
            && server.locate(GRANTS, &grant).is_ok()
            && let Ok(text) = server.get(GRANTS, Some(&seen.namespace), &grant).await
        {
            seen.grant = serde_json::from_str(&text).ok();
        }
        Ok(seen)
    }

    /// Reads the text of a request as the server sent it.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let request: ApprovalRequest =
            serde_json::from_str(text).map_err(|error| unreadable(&error))?;
        let document = serde_json::from_str(text).map_err(|error| unreadable(&error))?;
        Ok(Self {
            namespace: request.metadata.namespace.clone().unwrap_or_default(),
            name: request.metadata.name.clone().unwrap_or_default(),
            recomputed: spec_digest(text)?,
            request,
            grant: None,
            document,
        })
    }

    /// Whether the digest that the request states is the one of what it holds.
    pub fn intact(&self) -> bool {
        self.recomputed == self.request.spec.digest
    }

    /// Why the request is finished, if it is.
    pub fn finished(&self, now: Timestamp) -> Option<Finish> {
        let uid = self.request.metadata.uid.as_deref().unwrap_or_default();
        let grant_unread = self.grant.is_none();
        match finished(
            uid,
            &self.request.spec,
            self.request.status.as_ref(),
            self.grant.as_ref(),
            now,
        ) {
            // Without its grant we cannot say that it is lost: it may be that we may not read it.
            Some(Finish::Lost) if grant_unread && !self.condition(GRANT_LOST) => None,
            other => other,
        }
    }

    fn condition(&self, kind: &str) -> bool {
        let status = self.request.status.as_ref();
        status.is_some_and(|status| conditions::holds(&status.conditions, kind))
    }

    /// Whether its grant served at least once.
    pub fn used(&self) -> bool {
        let status = self.grant.as_ref().and_then(|grant| grant.status.as_ref());
        status.and_then(|status| status.used).unwrap_or(0) > 0
    }

    /// Whether it was approved.
    pub fn approved(&self) -> bool {
        self.request.status.as_ref().and_then(|status| status.phase) == Some(RequestPhase::Approved)
    }

    /// `approvalrequest.grantgate.dev/NAME`.
    pub fn type_name(&self) -> String {
        format!("{}/{}", REQUESTS.singular, self.name)
    }

    /// `-n NAMESPACE`.
    pub fn flag(&self) -> String {
        format!("-n {}", quoted(&self.namespace))
    }
}

fn missing(namespace: &str, name: &str, reason: &str) -> Failure {
    // The server's own 404 for an unknown path has no reason.
    if reason.is_empty() {
        return Failure::NotInstalled;
    }
    Failure::NotFound {
        what: format!("{}/{name} in namespace {namespace}", REQUESTS.singular),
        next: vec!["kubectl grantgate pending -A".to_owned()],
    }
}

/// The digest of a request's spec without its own digest, from the object's text as the API server returned it.
pub fn spec_digest(text: &str) -> Result<String, Failure> {
    let broken = |what: String| Failure::Unreachable(format!("its answer cannot be read: {what}"));
    let document = json::read(text).map_err(|error| broken(error.to_string()))?;
    let spec = document
        .root()
        .get("spec")
        .ok_or_else(|| broken("the request has no spec".to_owned()))?;
    Ok(record::digest_of(spec))
}

/// The hex digits of a digest, or all of a text that is none.
pub fn hex(digest: &str) -> &str {
    digest.strip_prefix(TAG).unwrap_or(digest)
}

/// The first hex digits, as `pending` shows them and `approve` accepts them.
pub fn prefix(digest: &str) -> String {
    visible(&hex(digest).chars().take(PREFIX).collect::<String>())
}

/// Whether what a request does cannot be taken back.
pub fn irreversible(spec: &ApprovalRequestSpec) -> bool {
    spec.action.operation == Operation::Delete
        || spec
            .facts
            .iter()
            .any(|fact| fact.kind == "Irreversible" && fact.value != "false")
}

/// The state of a request in one line.
pub fn state(seen: &Seen, now: Timestamp) -> String {
    let spec = &seen.request.spec;
    let status = seen.request.status.as_ref();
    let grant = status
        .and_then(|status| status.grant.as_ref())
        .map(|grant| visible(&grant.name))
        .unwrap_or_default();
    let ended_at = status
        .and_then(|status| status.ended_at.as_ref())
        .map(|at| format!(" at {}", time(at.0)))
        .unwrap_or_default();
    match seen.finished(now) {
        None if seen.approved() => format!("Approved{ended_at}, grant {grant}"),
        None => {
            let progress = eligible::progress(spec, status);
            format!(
                "Pending, {} of {} approvals, {} left (until {}), then it expires; nothing is approved by waiting",
                progress.have,
                progress.need,
                between(now, spec.deadline.0),
                time(spec.deadline.0)
            )
        }
        Some(Finish::Denied) => format!("Denied{ended_at}"),
        Some(Finish::Expired) => format!("Expired: nobody decided until {}", time(spec.deadline.0)),
        Some(Finish::Superseded) => {
            format!("Superseded{ended_at}: what it was about changed before anybody decided")
        }
        Some(Finish::GrantEnded(reason)) => format!(
            "Approved{ended_at}; grant {grant} has ended: {}",
            reason.word()
        ),
        Some(Finish::Lost) => {
            format!("Approved{ended_at}; grant {grant} is lost, and no other is minted")
        }
        Some(Finish::Unreadable) => "in a phase that this version does not know".to_owned(),
    }
}

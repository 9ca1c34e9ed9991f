//! The API servers' audit logs: what really happened, by whom, and what webhooks noted about it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use anyhow::Result;
use serde::Deserialize;

use super::control_plane::audit_log;
use super::wait::{PATIENCE, eventually};
use super::{Cluster, User};

/// One request, when it was answered (of a watch also when the answer began: see [`Event::stage`]).
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Which API server was asked.
    #[serde(skip)]
    pub server: usize,
    /// The id that the API server gave the request.
    #[serde(rename = "auditID")]
    pub audit_id: String,
    /// `ResponseStarted` (long-running requests only), `ResponseComplete` or `Panic`.
    pub stage: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, …
    pub verb: String,
    /// The path with its query.
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    /// Who asked.
    pub user: Asker,
    /// As whom, where it impersonated somebody.
    pub impersonated_user: Option<Asker>,
    /// What the client calls itself.
    #[serde(default)]
    pub user_agent: String,
    /// What the request was about; none for paths like `/version`.
    pub object_ref: Option<ObjectRef>,
    /// How it ended.
    pub response_status: Option<ResponseStatus>,
    /// The API server's and the webhooks' notes; a webhook's keys are `WEBHOOK NAME/KEY`.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// When this stage was reached, RFC 3339.
    pub stage_timestamp: String,
}

/// `userInfo` in an audit event.
#[derive(Debug, Clone, Deserialize)]
pub struct Asker {
    /// The user name.
    #[serde(default)]
    pub username: String,
    /// The uid; not every user has one.
    pub uid: Option<String>,
    /// The groups.
    #[serde(default)]
    pub groups: Vec<String>,
    /// Further facts, such as `authentication.kubernetes.io/credential-id`.
    #[serde(default)]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// What a request was about. Absent parts are empty.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectRef {
    /// The API group.
    pub api_group: String,
    /// The API version.
    pub api_version: String,
    /// The plural resource.
    pub resource: String,
    /// The subresource.
    pub subresource: String,
    /// The namespace.
    pub namespace: String,
    /// The name; empty for a create, whose name stands in the body alone.
    pub name: String,
}

/// The answer, as far as level Metadata shows it.
#[derive(Debug, Clone, Deserialize)]
pub struct ResponseStatus {
    /// The HTTP status.
    pub code: u16,
    /// The reason word of a failure.
    #[serde(default)]
    pub reason: String,
    /// The message of a failure.
    #[serde(default)]
    pub message: String,
}

/// A position in the audit log: everything answered before it is before it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mark(Vec<u64>);

/// Which events: all that was said must hold.
#[derive(Debug, Clone, Default)]
pub struct Select {
    since: Mark,
    user: Option<String>,
    verbs: Vec<String>,
    on: Option<(String, String)>,
    namespace: Option<String>,
    name: Option<String>,
    code: Option<u16>,
}

const WRITES: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

impl Event {
    /// The HTTP status; 0 while there is none.
    pub fn code(&self) -> u16 {
        self.response_status
            .as_ref()
            .map_or(0, |status| status.code)
    }

    /// The note that ends in `/KEY`, whichever webhook made it.
    pub fn note(&self, key: &str) -> Option<&str> {
        let found = self
            .annotations
            .iter()
            .find(|(name, _)| name.rsplit('/').next() == Some(key));
        found.map(|(_, value)| value.as_str())
    }
}

impl Select {
    /// Every event since `mark`.
    pub fn since(mark: &Mark) -> Select {
        Select {
            since: mark.clone(),
            ..Select::default()
        }
    }

    /// Asked by `user`.
    #[must_use]
    pub fn user(mut self, user: &User) -> Select {
        self.user = Some(user.name.clone());
        self
    }

    /// One of these verbs.
    #[must_use]
    pub fn verbs(mut self, verbs: &[&str]) -> Select {
        self.verbs = verbs.iter().map(|verb| (*verb).to_owned()).collect();
        self
    }

    /// Any verb that may write.
    #[must_use]
    pub fn writes(self) -> Select {
        self.verbs(&WRITES)
    }

    /// About this resource; with its subresource as in `deployments/scale`, and without one only where there is none.
    #[must_use]
    pub fn on(mut self, resource: &str) -> Select {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        self.on = Some((resource.to_owned(), subresource.to_owned()));
        self
    }

    /// In this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Select {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// About the object of this name.
    #[must_use]
    pub fn name(mut self, name: &str) -> Select {
        self.name = Some(name.to_owned());
        self
    }

    /// Answered with this HTTP status.
    #[must_use]
    pub fn code(mut self, code: u16) -> Select {
        self.code = Some(code);
        self
    }

    fn takes(&self, event: &Event) -> bool {
        let object = event.object_ref.clone().unwrap_or_default();
        let is = |wanted: &Option<String>, got: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == got)
        };
        let on = self.on.as_ref();
        is(&self.user, &event.user.username)
            && (self.verbs.is_empty() || self.verbs.contains(&event.verb))
            && on.is_none_or(|(resource, sub)| {
                *resource == object.resource && *sub == object.subresource
            })
            && is(&self.namespace, &object.namespace)
            && is(&self.name, &object.name)
            && self.code.is_none_or(|code| code == event.code())
            && !object.name.starts_with(MARK)
    }
}

/// The name of an object that nobody has; asking for it leaves a line in the log.
const MARK: &str = "audit-mark-";

impl Cluster {
    /// The position now. Everything that was answered before the call is written before it: asks something of each API
    /// server and waits until that is written.
    pub async fn audit_mark(&self) -> Mark {
        let mut mark = Vec::new();
        for server in 0..self.servers() {
            let name = format!("{MARK}{}", self.next());
            let path = format!("/api/v1/namespaces/default/configmaps/{name}");
            let before = self.audit_end(server);
            let asked = self
                .try_raw(server, &User::admin(), "GET", &path, "application/json", "")
                .await;
            if asked.is_err() {
                // An API server that is down writes nothing.
                mark.push(before);
                continue;
            }
            let written = async || {
                let (events, end) = self.read_audit(server, before).ok()?;
                let is_mark = |event: &Event| {
                    event
                        .object_ref
                        .as_ref()
                        .is_some_and(|about| about.name == name)
                };
                events.iter().any(is_mark).then_some(end)
            };
            mark.push(
                eventually("the audit log holds the mark", PATIENCE, written)
                    .await
                    .unwrap(),
            );
        }
        Mark(mark)
    }

    /// The selected events of all API servers, those that are written by now. See [`Cluster::audit_settled`].
    pub fn audit(&self, select: &Select) -> Vec<Event> {
        let mut all = Vec::new();
        for server in 0..self.servers() {
            let from = select.since.0.get(server).copied().unwrap_or(0);
            all.extend(self.read_audit(server, from).unwrap().0);
        }
        all.retain(|event| select.takes(event));
        all.sort_by(|a, b| a.stage_timestamp.cmp(&b.stage_timestamp));
        all
    }

    /// The selected events, when all that was answered before the call has been written: to count, also to count none.
    pub async fn audit_settled(&self, select: &Select) -> Vec<Event> {
        self.audit_mark().await;
        self.audit(select)
    }

    /// Waits until at least `count` selected events are written.
    pub async fn wait_for_audit(&self, select: &Select, count: usize) -> Vec<Event> {
        let enough = async || Some(self.audit(select)).filter(|events| events.len() >= count);
        eventually(
            &format!("{count} audit events of {select:?}"),
            PATIENCE,
            enough,
        )
        .await
        .unwrap()
    }

    fn audit_end(&self, server: usize) -> u64 {
        // The end of the last whole line: the next may be half written.
        self.read_audit(server, 0).map_or(0, |(_, end)| end)
    }

    /// The events from byte `from` on, and where the last whole line ends.
    fn read_audit(&self, server: usize, from: u64) -> Result<(Vec<Event>, u64)> {
        let mut file = File::open(audit_log(self.dir(), server))?;
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let whole = bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |last| last + 1);
        let mut events = Vec::new();
        for line in bytes[..whole]
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            let mut event: Event = serde_json::from_slice(line)?;
            event.server = server;
            events.push(event);
        }
        Ok((events, from + u64::try_from(whole)?))
    }
}

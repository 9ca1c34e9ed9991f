//! Settlement: what became of each use, read from the target once no retry of it can land any more.

use std::{sync::Arc, time::Duration};

use futures::{AsyncBufReadExt, StreamExt};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use crate::{
    api::{
        Grant,
        grant::{Evidence, GrantStatus, Use, UseEffect},
    },
    cluster::{
        client::{CallError, within},
        target,
    },
    control::{
        desk::Desk,
        journal::{leaving_line, record},
        request::News,
    },
    decide::{
        json,
        observe::{self, Finding, Marks, Target, Walked},
        redact::Redactor,
        settle::{self, Step},
        visible,
    },
};

/// A target that cannot be read for so long is not waited for.
const GIVE_UP: SignedDuration = SignedDuration::from_secs(600);
const LIMIT: Duration = Duration::from_secs(5);

/// What came of reading a target.
enum Reading {
    Text(String),
    Absent,
    /// It may not be read, in words.
    Forbidden(String),
    /// Another try may succeed.
    Failed(String),
}

impl Desk {
    /// Settles what can be settled of one grant. Returns when the next use can be.
    pub async fn settle(&self, grant: &Arc<Grant>, now: Timestamp) -> Option<Timestamp> {
        let status = grant.status.clone().unwrap_or_default();
        let (due, next) = settle::ready(&status, now);
        let mut settled = Vec::new();
        for uid in due {
            let Some(used) = status.uses.get(&uid) else {
                continue;
            };
            let Some((effect, mut evidence)) = self.find_out(grant, used, now).await else {
                continue;
            };
            // The schema takes one line.
            evidence.message = evidence
                .message
                .map(|message| visible::one_line(&message, 1024));
            settled.push((uid, effect, evidence));
        }
        if settled.is_empty() {
            return next;
        }
        let (written, leaving) = settle::plan(grant, &settled, now);
        // Before it leaves the object it is in the record, as what is about to happen: if this write loses, it is said again.
        for (uid, used) in &leaving {
            record(&leaving_line(grant.as_ref(), uid, used));
        }
        let news = news(&status, &settled);
        self.write_grant(grant, written, Some(&news), now).await;
        next
    }

    async fn find_out(
        &self,
        grant: &Grant,
        used: &Use,
        now: Timestamp,
    ) -> Option<(UseEffect, Evidence)> {
        let unknown = |words: &str| {
            (
                UseEffect::Unknown,
                observe::evidence(Target::Absent, &[], words),
            )
        };
        let namespace = grant.namespace().unwrap_or_default();
        let named = &grant.spec.request_ref;
        let request = self
            .ctx
            .view
            .index
            .request(&namespace, &named.name)
            .filter(|request| request.metadata.uid.as_deref() == Some(&named.uid));
        let marks = request
            .as_ref()
            .map_or_else(Marks::default, |request| Marks::of(&request.spec));
        let action = &grant.spec.action;
        if Redactor::covers(&action.group, &action.resource) {
            return Some(unknown(
                "grantgate does not read Secrets: look at the target",
            ));
        }
        let Some(path) = path(grant, used) else {
            return Some(unknown(
                "the name that the API server made up is not recorded: look at the target",
            ));
        };
        let text = match self.read(&path).await {
            Reading::Text(text) => Some(text),
            Reading::Absent => None,
            Reading::Forbidden(words) => return Some(unknown(&words)),
            Reading::Failed(words) => return gave_up(used, now).then(|| unknown(&words)),
        };
        let document = match text.as_deref().map(json::read).transpose() {
            Ok(document) => document,
            Err(error) => return Some(unknown(&error.to_string())),
        };
        let target = document
            .as_ref()
            .map_or(Target::Absent, |document| Target::Present(document.root()));
        let from = match observe::find(used, &marks, target) {
            Finding::Settled(effect, evidence) => return Some((effect, evidence)),
            Finding::Walk { from } => from,
        };
        let to = match target {
            Target::Present(object) => object
                .at("/metadata/resourceVersion")
                .and_then(|version| version.as_str())
                .and_then(|version| version.parse::<u64>().ok()),
            Target::Absent => None,
        };
        let walked = match from {
            Some(from) => self.walk(grant, used, &marks, &from, to).await,
            None => Walked::Incomplete,
        };
        let (effect, words) = observe::after_walk(used, &marks, walked);
        Some((effect, observe::evidence(target, &[], words)))
    }

    async fn read(&self, path: &str) -> Reading {
        let request = match http::Request::get(path).body(Vec::new()) {
            Ok(request) => request,
            Err(error) => {
                return Reading::Forbidden(format!("the target has no readable path: {error}"));
            }
        };
        match within(LIMIT, self.ctx.client.request_text(request)).await {
            Ok(text) => Reading::Text(text),
            Err(error) if error.is_not_found() => Reading::Absent,
            Err(CallError::Api(kube::Error::Api(status)))
                if matches!(status.code, 401 | 403 | 405) =>
            {
                Reading::Forbidden(
                    "grantgate may not read the target: look at it yourself".to_owned(),
                )
            }
            Err(error) => Reading::Failed(format!("the target could not be read: {error}")),
        }
    }

    /// Every revision of the target after `from`, up to the one shown or to the deletion of the use's object.
    async fn walk(
        &self,
        grant: &Grant,
        used: &Use,
        marks: &Marks<'_>,
        from: &str,
        to: Option<u64>,
    ) -> Walked {
        let action = &grant.spec.action;
        if action.subresource.as_deref() == Some("scale")
            && !target::scale_stands_in_its_parent(&action.group, &action.resource)
        {
            return Walked::Incomplete;
        }
        let Some(name) = action.name.as_deref() else {
            return Walked::Incomplete;
        };
        let uri = target::watch(&collection(grant), name, from, 4);
        let Ok(request) = http::Request::get(uri).body(Vec::new()) else {
            return Walked::Incomplete;
        };
        let walk = async {
            let stream = self.ctx.client.request_stream(request).await.ok()?;
            let mut lines = std::pin::pin!(stream.lines());
            while let Some(Ok(line)) = lines.next().await {
                let document = json::read(&line).ok()?;
                match settle::event(document.root(), used, marks, to)? {
                    Step::On => {}
                    Step::Held => return Some(Walked::Held),
                    Step::End => return Some(Walked::NeverHeld),
                }
            }
            None
        };
        match tokio::time::timeout(LIMIT, walk).await {
            Ok(Some(walked)) => walked,
            Ok(None) | Err(_) => Walked::Incomplete,
        }
    }
}

fn gave_up(used: &Use, now: Timestamp) -> bool {
    now.duration_since(used.at.0) > GIVE_UP
}

fn news(status: &GrantStatus, settled: &[(String, UseEffect, Evidence)]) -> News {
    let lines: Vec<String> = settled
        .iter()
        .map(|(uid, effect, evidence)| {
            let id = status
                .uses
                .get(uid)
                .map(|used| used.operation_id.clone())
                .unwrap_or_default();
            format!(
                "{id}: {effect:?} ({})",
                evidence.message.as_deref().unwrap_or_default()
            )
        })
        .collect();
    let warning = settled
        .iter()
        .any(|(_, effect, _)| *effect != UseEffect::Confirmed);
    News {
        reason: "UseSettled",
        note: lines.join("; "),
        warning,
    }
}

fn collection(grant: &Grant) -> String {
    let action = &grant.spec.action;
    target::collection(
        &action.group,
        &action.version,
        action.namespace.as_deref(),
        &action.resource,
    )
}

/// The path of the target. A scale is read as such: its kind need not have its replicas where others have them.
fn path(grant: &Grant, used: &Use) -> Option<String> {
    let name = target::escaped(grant.spec.action.name.as_deref()?);
    let scale = match used.subresource.as_deref() {
        Some("scale") => "/scale",
        _ => "",
    };
    Some(format!("{}/{name}{scale}", collection(grant)))
}

#[cfg(test)]
mod tests;

//! What happened, for people: an Event on the object, and one JSON line in the log stream `audit`.
//!
//! Both say what became of a record and never what a change holds. Texts from elsewhere are made visible first.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client, Resource,
    api::{ObjectMeta, PostParams},
};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use crate::{
    cluster::client::within,
    decide::{name, record::microseconds, visible},
    telemetry::AUDIT,
};

/// Longest note of an Event.
const NOTE: usize = 1024;
/// Events on their way at one time; more are left out.
const AT_ONCE: usize = 16;

/// Says what happened.
#[derive(Clone)]
pub struct Journal {
    client: Client,
    replica: Arc<str>,
    places: Arc<Semaphore>,
}

/// One transition.
#[derive(Clone, Debug)]
pub struct Transition<'a> {
    /// CamelCase word: `Approved`, `Denied`, `Stale`, …
    pub reason: &'a str,
    /// In words.
    pub note: String,
    /// Whether somebody should look.
    pub warning: bool,
    /// More members of the audit line.
    pub members: Vec<(&'static str, String)>,
}

impl Journal {
    /// A journal of one replica.
    pub fn new(client: Client, replica: Arc<str>) -> Self {
        Self {
            client,
            replica,
            places: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Prints the audit line, and sends the Event in the background: an Event is lost rather than waited for.
    pub fn tell<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        transition: &Transition<'_>,
        now: Timestamp,
    ) {
        record(&audit_line(object, transition, now));
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            tracing::debug!(
                reason = transition.reason,
                "an Event was left out: too many are on their way"
            );
            return;
        };
        let event = event(object, transition, &self.replica, now);
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        tokio::spawn(async move {
            let sent = within(
                Duration::from_secs(5),
                api.create(&PostParams::default(), &event),
            )
            .await;
            match sent {
                // Another leader, or this one before it crashed, told the same.
                Err(error) if error.is_already_exists() => {}
                Err(error) => tracing::debug!(%error, "an Event could not be written"),
                Ok(_) => {}
            }
            drop(place);
        });
    }
}

/// Adds a line to the record.
pub fn record(line: &str) {
    tracing::info!(target: AUDIT, "{line}");
}

/// The line of the record: one JSON object, members in a fixed order of their names.
pub fn audit_line<K: Resource<DynamicType = ()>>(
    object: &K,
    transition: &Transition<'_>,
    now: Timestamp,
) -> String {
    let meta = object.meta();
    let mut line = Map::new();
    let mut put = |key: &str, text: &str| {
        line.insert(
            key.to_owned(),
            Value::String(visible::one_line(text, 2 * NOTE)),
        );
    };
    put("time", &microseconds(now).to_string());
    put("kind", &K::kind(&()));
    put("namespace", meta.namespace.as_deref().unwrap_or_default());
    put("name", meta.name.as_deref().unwrap_or_default());
    put("uid", meta.uid.as_deref().unwrap_or_default());
    put("transition", transition.reason);
    put("note", &transition.note);
    for (key, text) in &transition.members {
        put(key, text);
    }
    Value::Object(line).to_string()
}

/// The line that stays of a settled use once it leaves its grant. It is written before that, and perhaps more than once: `admission`
/// names the use.
pub fn leaving_line<K: Resource<DynamicType = ()>>(
    object: &K,
    uid: &str,
    record: &impl serde::Serialize,
) -> String {
    let meta = object.meta();
    json!({
        "kind": K::kind(&()), "namespace": meta.namespace, "name": meta.name, "uid": meta.uid,
        "transition": "UseLeaving", "admission": uid, "use": shown(serde_json::to_value(record).unwrap_or_default()),
    })
    .to_string()
}

/// The same with every text of it visible.
fn shown(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(visible::visible(&text)),
        Value::Array(items) => items.into_iter().map(shown).collect(),
        Value::Object(members) => members
            .into_iter()
            .map(|(key, value)| (visible::visible(&key), shown(value)))
            .collect(),
        other => other,
    }
}

fn event<K: Resource<DynamicType = ()>>(
    object: &K,
    transition: &Transition<'_>,
    replica: &str,
    now: Timestamp,
) -> Event {
    let meta = object.meta();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    // The name makes a transition that two leaders tell one Event.
    let suffix = name::short(&[&text(&meta.uid), transition.reason, &transition.note]);
    let namespace = meta
        .namespace
        .clone()
        .or_else(|| Some("default".to_owned()));
    Event {
        metadata: ObjectMeta {
            namespace,
            name: Some(format!("{}.{suffix}", text(&meta.name))),
            ..ObjectMeta::default()
        },
        action: Some(transition.reason.to_owned()),
        event_time: Some(MicroTime(microseconds(now))),
        note: Some(visible::one_line(&transition.note, NOTE)),
        reason: Some(transition.reason.to_owned()),
        regarding: Some(ObjectReference {
            api_version: Some(K::api_version(&()).into_owned()),
            kind: Some(K::kind(&()).into_owned()),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            field_path: None,
        }),
        reporting_controller: Some("grantgate.dev/controller".to_owned()),
        reporting_instance: Some(replica.chars().take(128).collect()),
        type_: Some(
            if transition.warning {
                "Warning"
            } else {
                "Normal"
            }
            .to_owned(),
        ),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests"
    )]

    use super::*;
    use crate::api::ToolMount;

    #[test]
    fn an_audit_line_is_one_line_of_json_whatever_a_person_wrote() {
        let mount: ToolMount = serde_json::from_value(json!({
            "apiVersion": "grantgate.dev/v1alpha1", "kind": "ToolMount", "metadata": {"name": "m", "uid": "u"},
            "spec": {"agent": "a", "server": "s"},
        }))
        .unwrap();
        let transition = Transition {
            reason: "Denied",
            note: "first\nsecond \u{202e}\"}".to_owned(),
            warning: false,
            members: vec![("approver", "ana@example.com".to_owned())],
        };
        let line = audit_line(&mount, &transition, Timestamp::UNIX_EPOCH);
        assert!(!line.contains('\n') && !line.contains('\u{202e}'), "{line}");
        let read: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["transition"], "Denied");
        assert_eq!(read["approver"], "ana@example.com");
        let evidence = json!({"evidence": {"paths": ["/metadata/labels/a\u{202e}b\u{200b}"]}});
        let line = leaving_line(&mount, "a1", &evidence);
        assert!(
            !line.contains('\u{202e}') && !line.contains('\u{200b}'),
            "{line}"
        );
        assert!(line.contains("/metadata/labels/a<U+202E>b"), "{line}");
        let once = event(&mount, &transition, "r", Timestamp::UNIX_EPOCH);
        let again = event(&mount, &transition, "other", Timestamp::MAX);
        assert_eq!(once.metadata.name, again.metadata.name);
        assert!(once.note.unwrap().len() <= NOTE);
    }
}

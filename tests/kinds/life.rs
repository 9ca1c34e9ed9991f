//! What may change of a stored record.

use grantgate::manifests;
use serde_json::{Value, json};

use super::{JSON, MERGE, accepted, account, collection, digest, grant, refusal, request};
use crate::cluster::http::Answer;
use crate::cluster::install::installed;
use crate::cluster::{Cluster, User};

const UID: &str = "0c9b4f43-3bd6-49a0-a6a2-35b9a3b3a001";
const OTHER: &str = "0c9b4f43-3bd6-49a0-a6a2-35b9a3b3a002";

/// One stored record, and who may write its status.
struct Record {
    cluster: &'static Cluster,
    path: String,
    writer: User,
}

impl Record {
    async fn grant() -> Record {
        Record::new("grants", &grant("gr-1"), manifests::CONTROLLER).await
    }

    async fn request() -> Record {
        Record::new("approvalrequests", &request("ar-1"), manifests::WEBHOOK).await
    }

    async fn new(plural: &str, object: &Value, author: &str) -> Record {
        let cluster = installed().await;
        let namespace = cluster.namespace("life", &[]).await;
        let path = collection(Some(&namespace), plural);
        let author = account(cluster, author).await;
        accepted(
            &cluster
                .raw(&author, "POST", &path, JSON, object.to_string())
                .await,
        );
        let name = object["metadata"]["name"].as_str().unwrap();
        let writer = account(cluster, manifests::CONTROLLER).await;
        Record {
            cluster,
            path: format!("{path}/{name}"),
            writer,
        }
    }

    async fn get(&self) -> Value {
        accepted(
            &self
                .cluster
                .raw(&self.writer, "GET", &self.path, JSON, "")
                .await,
        )
    }

    async fn status(&self, status: Value) -> Answer {
        let path = format!("{}/status", self.path);
        self.cluster
            .raw(
                &self.writer,
                "PATCH",
                &path,
                MERGE,
                json!({"status": status}).to_string(),
            )
            .await
    }

    /// By the administrator, so that rights are not what refuses it.
    async fn spec(&self, spec: Value) -> Answer {
        let change = json!({ "spec": spec }).to_string();
        self.cluster
            .raw(&User::admin(), "PATCH", &self.path, MERGE, change)
            .await
    }

    async fn put_status(&self, status: Value) -> Answer {
        let mut object = self.get().await;
        object["status"] = status;
        let path = format!("{}/status", self.path);
        self.cluster
            .raw(&self.writer, "PUT", &path, JSON, object.to_string())
            .await
    }

    /// Asserts that a change of the status is refused with these words, and that nothing moved.
    async fn holds(&self, status: Value, words: &str) {
        let before = self.get().await;
        let answer = self.status(status.clone()).await;
        let message = refusal(&answer, 422);
        assert!(message.contains(words), "{status}: {message}");
        assert_eq!(self.get().await, before);
    }
}

fn one_use() -> Value {
    json!({
        "operation": "UPDATE", "operationID": "op-1", "targetUID": "9", "version": "v1",
        "contentDigest": digest('a'), "optionsDigest": digest('b'), "policySetHash": digest('e'),
        "first": {"resourceVersion": "5", "generation": 1}, "shown": {"resourceVersion": "5", "generation": 1},
        "witnessMoves": 0, "at": "2026-11-30T00:01:00.000000Z", "replica": "w-1", "effect": "Pending",
    })
}

async fn used_once() -> Record {
    let record = Record::grant().await;
    accepted(
        &record
            .status(json!({"used": 1, "uses": {UID: one_use()}}))
            .await,
    );
    record
}

#[tokio::test]
async fn v19_status_null_does_not_reset_a_grant() {
    let record = used_once().await;
    record
        .holds(Value::Null, "`status` must not be removed")
        .await;
    record
        .holds(
            json!({"uses": null}),
            "must keep every use whose effect is \"Pending\"",
        )
        .await;
    record
        .holds(json!({"used": null}), "`status.used` must not fall")
        .await;
    record
        .holds(
            json!({"uses": {UID: null}}),
            "must keep every use whose effect is \"Pending\"",
        )
        .await;
    for status in [json!({}), Value::Null] {
        let message = refusal(&record.put_status(status).await, 422);
        assert!(message.contains("`status.used` must not fall"), "{message}");
    }
    // Through the main resource a status is not written at all.
    let object = record.get().await;
    let patch = json!({"status": null}).to_string();
    accepted(
        &record
            .cluster
            .raw(&record.writer, "PATCH", &record.path, MERGE, patch)
            .await,
    );
    assert_eq!(record.get().await["status"], object["status"]);
}

#[tokio::test]
async fn used_never_falls_and_never_exceeds_what_was_granted() {
    let record = used_once().await;
    record
        .holds(json!({"used": 0}), "`status.used` must not fall")
        .await;
    record
        .holds(
            json!({"used": 41}),
            "`status.used` must not exceed `spec.uses`",
        )
        .await;
    accepted(&record.status(json!({"used": 40})).await);
}

#[tokio::test]
async fn every_new_use_is_counted() {
    let record = used_once().await;
    let words = "`status.used` must count every new entry";
    record
        .holds(json!({"uses": {OTHER: one_use()}}), words)
        .await;
    let third = OTHER.replace("002", "003");
    record
        .holds(
            json!({"used": 2, "uses": {OTHER: one_use(), third: one_use()}}),
            words,
        )
        .await;
    accepted(
        &record
            .status(json!({"used": 2, "uses": {OTHER: one_use()}}))
            .await,
    );
}

#[tokio::test]
async fn a_use_is_keyed_by_the_uid_of_its_review() {
    let record = Record::grant().await;
    record
        .holds(
            json!({"used": 1, "uses": {"1": one_use()}}),
            "keyed by uids of admission reviews",
        )
        .await;
}

#[tokio::test]
async fn what_was_recorded_of_a_use_stays() {
    let record = used_once().await;
    let words = "an entry of `status.uses` must keep";
    let moved = json!({"shown": {"resourceVersion": "6"}, "witnessMoves": 1});
    accepted(&record.status(json!({"uses": {UID: moved}})).await);
    for change in [
        json!({"first": {"resourceVersion": "6"}}),
        json!({"first": null}),
        json!({"contentDigest": digest('c')}),
        json!({"optionsDigest": digest('c')}),
        json!({"policySetHash": digest('c')}),
        json!({"witnessMoves": 0}),
    ] {
        record.holds(json!({"uses": {UID: change}}), words).await;
    }
    record
        .holds(
            json!({"uses": {UID: {"witnessMoves": null}}}),
            "witnessMoves: Required value",
        )
        .await;
    record
        .holds(
            json!({"uses": {UID: {"witnessMoves": 11}}}),
            "should be less than or equal to 10",
        )
        .await;
    accepted(
        &record
            .status(json!({"uses": {UID: {"effect": "Confirmed"}}}))
            .await,
    );
    record
        .holds(json!({"uses": {UID: {"effect": "Pending"}}}), words)
        .await;
}

#[tokio::test]
async fn a_settled_use_may_leave() {
    let record = used_once().await;
    accepted(
        &record
            .status(json!({"uses": {UID: {"effect": "NotObserved"}}}))
            .await,
    );
    let kept = accepted(&record.status(json!({"uses": {UID: null}})).await);
    assert_eq!(kept["status"]["used"], 1);
}

#[tokio::test]
async fn w10_the_33rd_open_use_is_refused() {
    let record = Record::grant().await;
    let uses = |count: usize| -> Value {
        (0..count)
            .map(|n| (format!("{}{n:03}", &UID[..33]), one_use()))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    record
        .holds(
            json!({"used": 33, "uses": uses(33)}),
            "at most 32 uses whose effect is \"Pending\"",
        )
        .await;
    accepted(&record.status(json!({"used": 32, "uses": uses(32)})).await);
}

#[tokio::test]
async fn a_grant_that_has_ended_is_not_used_and_does_not_come_back() {
    let revoked = used_once().await;
    accepted(&revoked.spec(json!({"revoked": true})).await);
    let again = json!({"used": 2, "uses": {OTHER: one_use()}});
    revoked
        .holds(
            again.clone(),
            "no use of a grant that has ended or was revoked",
        )
        .await;

    let stale = used_once().await;
    accepted(&stale.status(json!({"phase": "Stale"})).await);
    stale
        .holds(again, "no use of a grant that has ended or was revoked")
        .await;
    for phase in [json!("Active"), json!("Expired"), Value::Null] {
        stale
            .holds(
                json!({"phase": phase}),
                "`status.phase` must stay as it is once it is final",
            )
            .await;
    }
}

#[tokio::test]
async fn of_a_grant_only_revoked_changes_and_only_to_true() {
    let record = Record::grant().await;
    let before = record.get().await;
    let spec = before["spec"].as_object().unwrap();
    for member in spec.keys() {
        refusal(&record.spec(json!({member: null})).await, 422);
    }
    for (change, words) in [
        (json!({"uses": 39}), "`spec.uses` must stay as it is"),
        (
            json!({"action": {"name": "other"}}),
            "`spec.action` must stay as it is",
        ),
        (
            json!({"requester": {"agent": "other"}}),
            "`spec.requester` must stay as it is",
        ),
        (
            json!({"state": "{\"/spec/replicas\":1}"}),
            "`spec.state` must stay as it is",
        ),
        (
            json!({"notAfter": "2026-12-30T00:10:00.000000Z"}),
            "`spec.notAfter` must stay as it is",
        ),
        (
            json!({"policies": []}),
            "`spec.policies` must stay as it is",
        ),
        (
            json!({"base": {"generation": 2}}),
            "`spec.base` must stay as it is",
        ),
    ] {
        let message = refusal(&record.spec(change).await, 422);
        assert!(message.contains(words), "{message}");
    }
    accepted(&record.spec(json!({"revoked": true})).await);
    for value in [json!(false), Value::Null] {
        let message = refusal(&record.spec(json!({"revoked": value})).await, 422);
        assert!(
            message.contains("`spec.revoked` must stay true"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn a_request_never_changes() {
    let record = Record::request().await;
    for change in [
        json!({"change": "{\"a\":1}"}),
        json!({"diff": null}),
        json!({"requester": {"agent": "other"}}),
    ] {
        let message = refusal(&record.spec(change).await, 422);
        assert!(message.contains("a request never changes"), "{message}");
    }
}

#[tokio::test]
async fn v19_a_request_that_ended_stays_as_it_ended() {
    let record = Record::request().await;
    let vote = json!({
        "decision": {"name": "d-1", "uid": "1"}, "username": "ana@example.com", "verdict": "Approve",
        "at": "2026-11-30T00:01:00.000000Z", "counted": true,
    });
    let ended = json!({
        "phase": "Approved", "endedAt": "2026-11-30T00:01:00.000000Z", "grant": {"name": "gr-1"}, "votes": [vote],
    });
    accepted(&record.status(ended).await);
    record
        .holds(Value::Null, "`status` must not be removed")
        .await;
    for phase in [json!("Denied"), Value::Null] {
        record
            .holds(json!({"phase": phase}), "`status.phase` must stay as it is")
            .await;
    }
    for at in [json!("2026-11-30T00:02:00.000000Z"), Value::Null] {
        record
            .holds(
                json!({"endedAt": at}),
                "`status.endedAt` must stay as it is",
            )
            .await;
    }
    record
        .holds(json!({"grant": null}), "a request has one grant, ever")
        .await;
    record
        .holds(
            json!({"grant": {"name": "gr-2"}}),
            "a request has one grant, ever",
        )
        .await;
    accepted(&record.status(json!({"grant": {"uid": "1"}})).await);
    for uid in [json!("2"), Value::Null] {
        record
            .holds(
                json!({"grant": {"uid": uid}}),
                "a request has one grant, ever",
            )
            .await;
    }
    record
        .holds(json!({"votes": []}), "`status.votes` must keep every vote")
        .await;
    let mut turned = vote.clone();
    turned["verdict"] = json!("Deny");
    record
        .holds(
            json!({"votes": [turned]}),
            "`status.votes` must keep every vote",
        )
        .await;
    let mut recounted = vote;
    recounted["counted"] = json!(false);
    recounted["whyNot"] = json!("approver left the group");
    accepted(&record.status(json!({"votes": [recounted]})).await);
}

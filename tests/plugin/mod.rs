//! `kubectl grantgate` against a real API server: found by kubectl, safe to look at, and clear when it refuses.
//!
//! In this file no component of grantgate runs: the kinds are installed, requests are filed by the administrator, the author of a decision
//! is filled in by a policy of the API server itself, and the test writes down what the controller would.

use grantgate::{
    api::{ApprovalRequest, Grant},
    cli::seen::prefix,
    decide::{canonical, visible::is_hidden},
};
use jiff::Timestamp;
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use self::stage::{Filed, stage};
use crate::cluster::{
    User,
    wait::{PATIENCE, eventually},
};

mod flow;
mod stage;

fn now() -> Timestamp {
    grantgate::cluster::clock::Clock::local()
}

fn hidden(text: &str) -> Vec<char> {
    text.chars()
        .filter(|c| *c != '\n' && *c != '→' && is_hidden(*c))
        .collect()
}

#[tokio::test]
async fn kubectl_finds_the_plugin_on_its_path() {
    let cluster = stage().await;
    let kubectl = cluster.kubectl(&User::dan());
    let version = kubectl.run(["grantgate", "version"]).await.expect_ok();
    assert!(
        version.contains("grantgate.dev/v1alpha1 is served"),
        "{version}"
    );
    let help = kubectl.run(["grantgate", "--help"]).await.expect_ok();
    assert!(help.contains("Usage: kubectl grantgate"), "{help}");
    // Its exit code also tells of files beside it that cargo leaves and nobody can execute.
    let listed = kubectl.run(["plugin", "list"]).await.stdout;
    assert!(listed.contains("/kubectl-grantgate\n"), "{listed}");
}

#[tokio::test]
async fn hostile_text_is_visible_in_every_format() {
    let cluster = stage().await;
    let evil = "\u{1b}[2J\u{7}\u{202e}\u{200b}\u{9b}31m\t\r\nState  Approved";
    let text = json!(evil).to_string();
    let filed = Filed::new(
        &cluster,
        json!({
            "change": text, "state": text,
            "diff": [
                {"path": format!("/metadata/annotations/{evil}"), "from": text, "to": json!({evil: [evil]}).to_string()},
                {"path": "/not/json", "to": evil},
            ],
        }),
    )
    .await;
    cluster
        .bind(&User::ana(), "grantgate-approver", Some(&filed.namespace))
        .await;
    for command in [
        "pending",
        "show ar-7f3k",
        "diff ar-7f3k",
        "wait ar-7f3k --timeout 1s",
        "approve ar-7f3k --digest 00000000",
    ] {
        for format in ["table", "wide", "json", "yaml", "name"] {
            let output = filed
                .run(&cluster, &User::ana(), &format!("{command} -o {format}"))
                .await;
            let both = format!("{}{}", output.stdout, output.stderr);
            assert_eq!(hidden(&both), [], "{command} -o {format}: {both:?}");
            assert!(
                !both.lines().any(|line| line.starts_with("State  Approved")),
                "{command} -o {format}: {both}"
            );
        }
    }
    let shown = filed
        .run(&cluster, &User::ana(), "show ar-7f3k")
        .await
        .expect_ok();
    for part in [
        "/metadata/annotations/<U+001B>[2J<U+0007><U+202E>",
        "| <U+001B>[2J",
        "| State  Approved",
        "/not/json",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[tokio::test]
async fn what_waits_is_listed_and_an_empty_list_says_so() {
    let cluster = stage().await;
    let filed = Filed::new(&cluster, json!({})).await;
    let ana = User::ana();
    cluster
        .bind(&ana, "grantgate-approver", Some(&filed.namespace))
        .await;
    let table = filed.run(&cluster, &ana, "pending").await.expect_ok();
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        row[..4],
        ["ar-7f3k", "UPDATE", "deployments/api/scale", "oidc:ops-bot"]
    );
    assert_eq!(row[5..7], ["0/2", prefix(&filed.digest).as_str()]);
    let names = filed
        .run(&cluster, &ana, "pending -o name")
        .await
        .expect_ok();
    assert_eq!(names, "approvalrequest.grantgate.dev/ar-7f3k\n");
    let all = cluster
        .kubectl(&User::admin())
        .run(["grantgate", "pending", "-A", "-o", "json"])
        .await
        .expect_ok();
    let all: Value = serde_json::from_str(&all).unwrap();
    assert_eq!(all["code"], 0);
    assert!(
        all["items"]
            .as_array()
            .unwrap()
            .iter()
            .any(|item| item["metadata"]["namespace"] == json!(filed.namespace))
    );
    filed.status(&cluster, json!({"phase": "Denied"})).await;
    let empty = filed.run(&cluster, &ana, "pending").await;
    assert_eq!((empty.code, empty.stdout.as_str()), (Some(0), ""));
    assert!(
        empty
            .stderr
            .contains("Nothing waits for a person in namespace"),
        "{}",
        empty.stderr
    );
}

#[tokio::test]
async fn a_refusal_names_the_missing_right_and_its_command_gives_it() {
    let cluster = stage().await;
    let filed = Filed::new(&cluster, json!({})).await;
    let ben = User::ben();
    let refused = filed.run(&cluster, &ben, "pending").await;
    assert_eq!(refused.code, Some(6), "{refused:?}");
    let missing = format!(
        "RBAC: ben@example.com lacks verb list on approvalrequests.grantgate.dev in namespace {}",
        filed.namespace
    );
    assert!(refused.stderr.contains(&missing), "{refused:?}");

    // May read, may not decide: both lists are told apart before anything is sent.
    let read = json!([{"apiGroups": ["grantgate.dev"], "resources": ["approvalrequests"], "verbs": ["get", "list", "watch"]}]);
    for user in [&ben, &User::dan()] {
        cluster
            .allow(user, Some(&filed.namespace), read.clone())
            .await;
    }
    let line = "approve ar-7f3k --digest DIGEST";
    let stranger = filed.run(&cluster, &User::dan(), line).await;
    assert_eq!(stranger.code, Some(6), "{stranger:?}");
    assert!(stranger.stderr.contains("policy membership: ClusterApprovalPolicy/production-changes wants 2 of group sre-oncall"), "{stranger:?}");
    let refused = filed.run(&cluster, &ben, line).await;
    assert_eq!(refused.code, Some(6), "{refused:?}");
    let missing = "lacks verb approve on clusterapprovalpolicies.grantgate.dev production-changes";
    assert!(
        refused.stderr.contains(missing) && !refused.stderr.contains("policy membership"),
        "{refused:?}"
    );

    // The verb, but not the right to create decisions: the API server refuses, and the same question is answered.
    let verb = json!([{"apiGroups": ["grantgate.dev"], "resources": ["clusterapprovalpolicies"], "verbs": ["approve"]}]);
    cluster.allow(&ben, Some(&filed.namespace), verb).await;
    let refused = filed.run(&cluster, &ben, line).await;
    assert_eq!(refused.code, Some(6), "{refused:?}");
    assert!(
        refused
            .stderr
            .contains("lacks verb create on approvaldecisions.grantgate.dev"),
        "{refused:?}"
    );
    assert_eq!(filed.decisions(&cluster).await.len(), 0);

    // The command that it prints is the remedy.
    let command = refused
        .stderr
        .lines()
        .find_map(|line| line.trim().strip_prefix("kubectl "))
        .unwrap()
        .to_owned();
    cluster
        .kubectl(&User::admin())
        .run(command.split(' '))
        .await
        .expect_ok();
    let dry = format!("{line} --dry-run=server");
    eventually("the right is known", PATIENCE, async || {
        filed.run(&cluster, &ben, &dry).await.ok().then_some(())
    })
    .await
    .unwrap();
    assert_eq!(
        filed.decisions(&cluster).await.len(),
        0,
        "a dry run stores nothing"
    );
}

#[tokio::test]
async fn what_differs_or_is_over_is_refused_with_its_own_code() {
    let cluster = stage().await;
    let filed = Filed::new(&cluster, json!({})).await;
    let ana = User::ana();
    cluster
        .bind(&ana, "grantgate-approver", Some(&filed.namespace))
        .await;
    let past = json!({"deadline": "2026-01-01T10:00:00.000000Z"});
    Filed::in_namespace(&cluster, &filed.namespace, "ar-late", past).await;
    for (line, code) in [
        ("approve ar-7f3k --digest 00000000", 7),
        ("approve ar-7f3k --digest DIGEST0000000", 7),
        ("approve ar-7f3k --digest 0000000", 2),
        ("approve ar-7f3k", 2),
        ("approve ar-none --digest DIGEST", 1),
        ("deny ar-late", 5),
        ("wait ar-7f3k --timeout 1s", 4),
        ("wait ar-late --timeout 1s", 5),
        ("diff ar-7f3k", 1),
        ("show ar-7f3k", 0),
    ] {
        let output = filed.run(&cluster, &ana, line).await;
        assert_eq!(output.code, Some(code), "{line}: {output:?}");
    }
    filed.status(&cluster, json!({"phase": "Denied"})).await;
    for (line, code) in [
        ("approve ar-7f3k --digest DIGEST", 5),
        ("deny ar-7f3k", 3),
        ("wait ar-7f3k", 5),
    ] {
        let output = filed.run(&cluster, &ana, &format!("{line} -o json")).await;
        assert_eq!(output.code, Some(code), "{line}: {output:?}");
        if !line.starts_with("deny") {
            let document: Value = serde_json::from_str(&output.stdout).unwrap();
            assert_eq!(document["code"], code, "{line}");
        }
    }
    assert_eq!(filed.decisions(&cluster).await.len(), 0, "nothing was sent");
}

#[tokio::test]
async fn an_approval_carries_the_whole_digest_and_reports_how_it_counts() {
    let cluster = stage().await;
    let filed = Filed::new(&cluster, json!({})).await;
    let ana = User::ana();
    cluster
        .bind(&ana, "grantgate-approver", Some(&filed.namespace))
        .await;
    let line = "approve ar-7f3k --digest DIGEST --once --for 5m --reason CHG-881";
    let (output, ()) = tokio::join!(
        filed.run(&cluster, &ana, line),
        filed.count(&cluster, true, json!({}))
    );
    let said = output.expect_ok();
    let expected = "approvalrequest.grantgate.dev/ar-7f3k approved (1 of 2; waiting for 2 of group sre-oncall or user ben@example.com";
    assert!(said.starts_with(expected), "{said}");
    let decisions = filed.decisions(&cluster).await;
    let spec = &decisions[0].spec;
    assert_eq!(
        (decisions.len(), spec.requests[0].digest.as_str()),
        (1, filed.digest.as_str())
    );
    assert_eq!(spec.approver.as_ref().unwrap().username, "ana@example.com");
    assert_eq!(
        (
            spec.validity.as_ref().unwrap().uses,
            spec.validity.as_ref().unwrap().duration_seconds
        ),
        (Some(1), Some(300))
    );
    let again = filed
        .run(&cluster, &ana, "approve ar-7f3k --digest DIGEST")
        .await;
    assert_eq!(again.code, Some(3), "{again:?}");
}

#[tokio::test]
async fn a_vote_that_does_not_count_or_is_not_counted_says_so() {
    let cluster = stage().await;
    let ignored = Filed::new(&cluster, json!({})).await;
    let ana = User::ana();
    cluster
        .bind(&ana, "grantgate-approver", Some(&ignored.namespace))
        .await;
    let line = "approve ar-7f3k --digest DIGEST";
    let (output, ()) = tokio::join!(
        ignored.run(&cluster, &ana, line),
        ignored.count(&cluster, false, json!({}))
    );
    assert_eq!(output.code, Some(6), "{output:?}");
    assert!(output.stderr.contains("it came too early"), "{output:?}");

    let waiting = Filed::new(&cluster, json!({})).await;
    cluster
        .bind(&ana, "grantgate-approver", Some(&waiting.namespace))
        .await;
    let output = waiting
        .run(&cluster, &ana, "deny ar-7f3k --reason no --timeout 1s")
        .await;
    assert_eq!(output.code, Some(4), "{output:?}");
    assert!(
        output.stderr.contains("nobody has counted it"),
        "{output:?}"
    );
    assert_eq!(waiting.decisions(&cluster).await.len(), 1);
}

#[tokio::test]
async fn waiting_ends_when_the_request_is_decided() {
    let cluster = stage().await;
    let filed = Filed::new(&cluster, json!({})).await;
    let ops_bot = User::ops_bot();
    // Agents may get their request, and neither list nor watch.
    let get = json!([{"apiGroups": ["grantgate.dev"], "resources": ["approvalrequests"], "verbs": ["get"]}]);
    cluster.allow(&ops_bot, Some(&filed.namespace), get).await;
    let decided = async {
        filed
            .status(
                &cluster,
                json!({"phase": "Approved", "grant": {"name": "gr-7f3k"}}),
            )
            .await;
        filed
            .status(&cluster, json!({"grant": {"name": "gr-7f3k", "uid": "g1"}}))
            .await;
    };
    let (output, ()) = tokio::join!(
        filed.run(&cluster, &ops_bot, "wait ar-7f3k --timeout 60s"),
        decided
    );
    let said = output.expect_ok();
    assert!(said.contains("Approved, grant gr-7f3k"), "{said}");
}

#[tokio::test]
async fn revoking_turns_one_field_and_names_uses_that_may_still_land() {
    let cluster = stage().await;
    let filed = Filed::new(&cluster, json!({})).await;
    let ana = User::ana();
    cluster
        .bind(&ana, "grantgate-approver", Some(&filed.namespace))
        .await;
    let grants: Api<Grant> = Api::namespaced(cluster.admin(), &filed.namespace);
    let requests: Api<DynamicObject> = Api::namespaced_with(
        cluster.admin(),
        &filed.namespace,
        &kube::core::ApiResource::erase::<ApprovalRequest>(&()),
    );
    let request = requests.get(&filed.name).await.unwrap();
    let spec = &request.data["spec"];
    let later = now() + jiff::SignedDuration::from_mins(10);
    let mut body = json!({
        "apiVersion": "grantgate.dev/v1alpha1", "kind": "Grant", "metadata": {"name": "gr-7f3k"},
        "spec": {
            "requestRef": {"name": filed.name, "uid": request.metadata.uid}, "uses": 2,
            "notBefore": format!("{:.6}", now()), "notAfter": format!("{later:.6}"),
        },
    });
    for member in [
        "actionKey",
        "requester",
        "action",
        "base",
        "changeDigest",
        "state",
        "stateDigest",
        "binding",
        "policies",
        "policySetHash",
    ] {
        body["spec"][member] = spec[member].clone();
    }
    let path = format!(
        "/apis/grantgate.dev/v1alpha1/namespaces/{}/grants",
        filed.namespace
    );
    let answer = cluster
        .raw(
            &User::admin(),
            "POST",
            &path,
            "application/json",
            body.to_string(),
        )
        .await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let some = canonical::digest("{}");
    let used = json!({
        "operation": "UPDATE", "operationID": format!("op-{}", "a".repeat(26)), "targetUID": "t1", "version": "v1",
        "contentDigest": some, "optionsDigest": some, "first": {"resourceVersion": "881"}, "shown": {"resourceVersion": "881"},
        "witnessMoves": 0, "policySetHash": some, "at": format!("{:.6}", now()), "replica": "r1", "effect": "Pending",
    });
    let patch = Patch::Merge(
        json!({"status": {"used": 1, "uses": {"0a1b2c3d-0000-4000-8000-000000000000": used}}}),
    );
    grants
        .patch_status("gr-7f3k", &PatchParams::default(), &patch)
        .await
        .unwrap();

    let active = filed.run(&cluster, &ana, "grants").await.expect_ok();
    assert!(
        active.contains("Active") && active.contains("1/2"),
        "{active}"
    );
    let said = filed
        .run(&cluster, &ana, "revoke gr-7f3k --reason wrong")
        .await
        .expect_ok();
    assert!(said.starts_with("grant.grantgate.dev/gr-7f3k revoked\n  a use recorded before may still land within 34 s:\n"), "{said}");
    assert!(said.contains("may still land until"), "{said}");
    let grant = grants.get("gr-7f3k").await.unwrap();
    assert_eq!(grant.spec.revoked, Some(true));
    assert!(
        filed
            .run(&cluster, &ana, "grants")
            .await
            .expect_ok()
            .contains("Revoked")
    );
    assert_eq!(
        filed.run(&cluster, &ana, "revoke gr-7f3k").await.code,
        Some(3)
    );
    assert_eq!(
        filed.run(&cluster, &ana, "revoke gr-none").await.code,
        Some(1)
    );
    assert_eq!(
        filed
            .run(&cluster, &User::dan(), "revoke gr-7f3k")
            .await
            .code,
        Some(6)
    );
}

#[tokio::test]
async fn somebody_can_be_impersonated_as_with_kubectl() {
    let cluster = stage().await;
    let filed = Filed::new(&cluster, json!({})).await;
    let line = "approve ar-7f3k --digest DIGEST --dry-run=server --as ana@example.com --as-group sre-oncall";
    let refused = filed.run(&cluster, &User::admin(), line).await;
    assert_eq!(refused.code, Some(6), "{refused:?}");
    assert!(
        refused
            .stderr
            .contains("ana@example.com lacks verb get on approvalrequests.grantgate.dev"),
        "{refused:?}"
    );
    let refused = filed.run(&cluster, &User::dan(), line).await;
    assert_eq!(refused.code, Some(6), "{refused:?}");
    assert!(refused.stderr.contains("verb impersonate"), "{refused:?}");
    cluster
        .bind(&User::ana(), "grantgate-approver", Some(&filed.namespace))
        .await;
    let said = filed.run(&cluster, &User::admin(), line).await.expect_ok();
    assert!(
        said.contains("approved (server dry run, nothing is stored)"),
        "{said}"
    );
}

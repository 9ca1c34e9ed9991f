//! Every recorded review, decided. One agent with surface Policies, and only the default policy: what is left asks.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use super::*;
use crate::{
    api::{AgentIdentity, ClusterApprovalPolicy},
    decide::{
        json,
        mount::Mounts,
        policy::Policy,
        redact::Redactor,
        resolve::Policies,
        resources::{Resources, Versions},
        subject::Agents,
        world::Namespace,
    },
};

pub(super) fn world() -> World {
    let identity: AgentIdentity = serde_json::from_value(serde_json::json!({
        "apiVersion": "grantgate.dev/v1alpha1", "kind": "AgentIdentity", "metadata": {"name": "ops-bot", "uid": "a1"},
        "spec": {"owner": {"group": "team-platform"}, "surface": "Policies", "subjects": [
            {"user": "agent"}, {"serviceAccount": {"namespace": "agents", "name": "ops-bot"}}]},
    }))
    .unwrap();
    let policy: ClusterApprovalPolicy = serde_json::from_value(serde_json::json!({
        "apiVersion": "grantgate.dev/v1alpha1", "kind": "ClusterApprovalPolicy",
        "metadata": {"name": "grantgate-default", "uid": "p1", "generation": 1},
        "spec": {"effect": "RequireApproval", "targets": [{"kubernetes": {"scope": "All"}}],
            "approvers": {"required": [{"count": 1, "from": []}]}},
    }))
    .unwrap();
    let mut resources = Resources::default();
    for (group, names) in [
        (
            "",
            "configmaps pods services secrets serviceaccounts nodes namespaces",
        ),
        ("apps", "deployments replicasets"),
        ("batch", "jobs"),
        ("certificates.k8s.io", "certificatesigningrequests"),
    ] {
        for name in names.split(' ') {
            resources.insert(
                group,
                name,
                Versions::BuiltIn {
                    preferred: "v1".into(),
                },
            );
        }
    }
    resources.insert(
        "example.com",
        "widgets",
        Versions::Custom {
            storage: "v1".into(),
            stored: vec!["v1".into()],
        },
    );
    let namespaces: BTreeMap<String, Namespace> = ["web", "shop", "gc1"]
        .map(|name| {
            (
                name.to_owned(),
                Namespace {
                    labels: BTreeMap::new(),
                    active: true,
                },
            )
        })
        .into();
    World {
        system_namespace: "grantgate-system".into(),
        canary: "system:serviceaccount:grantgate-system:grantgate-canary".into(),
        agents: Arc::new(Agents::of([Agent::from(&identity)])),
        policies: Arc::new(Policies::new([Policy::compile_cluster(&policy)])),
        mounts: Arc::new(Mounts::new([])),
        namespaces: Arc::new(namespaces),
        resources: Arc::new(resources),
        redactor: Arc::new(Redactor::new("k1", &[7; 32])),
    }
}

/// The assessment in one word: `ask`, `no-change`, `dry-run`, `exempt`, the detail word of a denial, or `unready`.
fn word(world: &World, text: &str) -> String {
    let document = json::read(text).unwrap();
    let review = match Review::of(&document) {
        Ok(review) => review,
        Err(error) => return format!("unreadable: {error}"),
    };
    match assess(world, &document, &review).assessment {
        Assessment::Canary => "canary".into(),
        Assessment::Ask(_) => "ask".into(),
        Assessment::Unready(_) => "unready".into(),
        Assessment::Deny(denial) => denial.cause.into(),
        Assessment::Allow(free) => match free.because {
            FreeBecause::NoChange => "no-change".into(),
            FreeBecause::DryRun => "dry-run".into(),
            FreeBecause::Exempt(_) => "exempt".into(),
        },
    }
}

/// What is not an ordinary change that asks: the same table that the webhook is held to.
fn otherwise() -> BTreeMap<String, String> {
    include_str!("../../../tests/reviews/decided.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
        .map(|(name, word)| (name.to_owned(), word.to_owned()))
        .collect()
}

#[test]
fn every_recorded_review_is_decided_as_its_name_claims() {
    let world = world();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reviews");
    let otherwise = otherwise();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let expected = otherwise.get(&name).map_or("ask", String::as_str);
        let decided = word(&world, &fs::read_to_string(&path).unwrap());
        if decided != expected {
            wrong.push(format!("{name}: {decided}, expected {expected}"));
        }
        seen += 1;
    }
    assert!(seen >= 90, "{seen} reviews");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn recorded(name: &str) -> String {
    fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/reviews/{name}.json")),
    )
    .unwrap()
}

fn proposal(text: &str) -> Proposal {
    let document = json::read(text).unwrap();
    let review = Review::of(&document).unwrap();
    match assess(&world(), &document, &review).assessment {
        Assessment::Ask(proposal) => *proposal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_agent_writes_none_of_our_own_kinds() {
    let text = recorded("update-replicas-by-put").replace(
        r#""group":"apps","version":"v1","resource":"deployments""#,
        r#""group":"grantgate.dev","version":"v1alpha1","resource":"grants""#,
    );
    assert_eq!(word(&world(), &text), "OwnKinds");
}

#[test]
fn another_served_version_is_refused_as_such() {
    let text = recorded("update-replicas-by-put").replace(
        r#""group":"apps","version":"v1","resource""#,
        r#""group":"apps","version":"v1beta1","resource""#,
    );
    assert_eq!(word(&world(), &text), "Version");
}

#[test]
fn a_resource_or_namespace_that_is_not_known_is_unready() {
    let text = recorded("update-replicas-by-put");
    assert_eq!(
        word(
            &world(),
            &text.replace(r#""resource":"deployments""#, r#""resource":"gadgets""#)
        ),
        "unready"
    );
    assert_eq!(
        word(
            &world(),
            &text.replace(r#""namespace":"web""#, r#""namespace":"new""#)
        ),
        "unready"
    );
}

#[test]
fn what_is_nested_too_deep_is_refused_in_words() {
    let deep = format!("{}{}", r#"{"a":"#.repeat(300), "1") + &"}".repeat(300);
    let text = recorded("create-dry-run").replace(
        r#""dryRun":true"#,
        &format!(r#""dryRun":false,"deep":{deep}"#),
    );
    assert_eq!(word(&world(), &text), "TooDeep");
}

#[test]
fn the_same_end_state_by_four_patches_is_one_proposal() {
    let digests: std::collections::BTreeSet<String> =
        ["put", "json-patch", "merge-patch", "strategic-merge-patch"]
            .map(|verb| {
                proposal(&recorded(&format!("update-replicas-by-{verb}")))
                    .bound
                    .change_digest
            })
            .into();
    assert_eq!(digests.len(), 1);
}

#[test]
fn a_generated_name_is_left_out_of_what_is_asked() {
    let first = proposal(&recorded("create-generatename-collision-call-1"));
    let second = proposal(&recorded("create-generatename-collision-call-2"));
    assert_eq!(
        (
            first.action.name.as_deref(),
            first.action.generate_name.as_deref()
        ),
        (None, Some("job-"))
    );
    assert_eq!(first.action_key, second.action_key);
    assert_eq!(first.bound.change_digest, second.bound.change_digest);
    assert_ne!(first.object_uid, second.object_uid);
}

#[test]
fn v12_a_client_chosen_name_is_not_covered_by_its_generate_name() {
    let chosen = recorded("create-generatename-collision-call-1").replace("job-72776", "coredns");
    assert_eq!(proposal(&chosen).action.name.as_deref(), Some("coredns"));
}

#[test]
fn no_secret_value_is_in_a_proposal() {
    let proposal = proposal(&recorded("update-secret-value"));
    let shown = format!(
        "{} {} {:?}",
        proposal.bound.change, proposal.bound.state, proposal.bound.diff
    );
    assert!(shown.contains("hmac:k1:"), "{shown}");
    let document_text = recorded("update-secret-value");
    let document = json::read(&document_text).unwrap();
    for side in ["/request/object/data", "/request/oldObject/data"] {
        for (_, value) in document.root().at(side).unwrap().entries() {
            assert!(
                !shown.contains(value.as_str().unwrap()),
                "a value of the Secret is shown"
            );
        }
    }
}

#[test]
fn deletions_and_finalizers_are_destructive_facts() {
    let kinds = |name: &str| {
        proposal(&recorded(name))
            .facts
            .into_iter()
            .map(|fact| fact.kind)
            .collect::<Vec<_>>()
    };
    assert!(kinds("delete-deployment-foreground").contains(&"Irreversible".to_owned()));
    assert!(
        kinds("update-removes-last-finalizer-and-thereby-deletes")
            .contains(&"Destructive".to_owned())
    );
    assert!(kinds("update-managedfields-only").contains(&"FieldOwnership".to_owned()));
    assert!(!kinds("update-replicas-by-put").contains(&"Destructive".to_owned()));
}

/// The world with one more cluster policy.
fn world_with(spec: serde_json::Value) -> World {
    let policy = |name: &str, spec: serde_json::Value| {
        Policy::compile_cluster(
            &serde_json::from_value::<ClusterApprovalPolicy>(serde_json::json!({
                "apiVersion": "grantgate.dev/v1alpha1", "kind": "ClusterApprovalPolicy",
                "metadata": {"name": name, "uid": name, "generation": 1}, "spec": spec,
            }))
            .unwrap(),
        )
    };
    let default = serde_json::json!({"effect": "RequireApproval", "targets": [{"kubernetes": {"scope": "All"}}],
        "approvers": {"required": [{"count": 1, "from": []}]}});
    World {
        policies: Arc::new(Policies::new([
            policy("grantgate-default", default),
            policy(
                "free",
                serde_json::json!({"effect": "Exempt", "targets": [{"kubernetes": {"scope": "All"}}]}),
            ),
            policy("more", spec),
        ])),
        ..world()
    }
}

#[test]
fn a_name_sent_together_with_its_prefix_is_the_name_that_policies_see() {
    let text = recorded("create-generatename-collision-call-1");
    for narrowed in [
        serde_json::json!({"scope": "All", "names": ["job-72776"]}),
        serde_json::json!({"scope": "All", "when": "request.name.startsWith('job-')"}),
    ] {
        let world = world_with(
            serde_json::json!({"effect": "RequireApproval", "targets": [{"kubernetes": narrowed}],
            "approvers": {"required": [{"count": 1, "from": [{"group": "sre"}]}]}}),
        );
        assert_eq!(word(&world, &text), "ask");
    }
    let other = world_with(serde_json::json!({"effect": "RequireApproval",
        "targets": [{"kubernetes": {"scope": "All", "names": ["coredns"]}}],
        "approvers": {"required": [{"count": 1, "from": [{"group": "sre"}]}]}}));
    assert_eq!(word(&other, &text), "exempt", "it is another name");
}

#[test]
fn a_namespace_that_is_there_and_not_known_yet_is_not_judged_by_labels_that_the_write_sets() {
    let review = |operation: &str, old: serde_json::Value| {
        serde_json::json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "00000000-0000-0000-0000-000000000001", "operation": operation, "dryRun": false,
            "kind": {"group": "", "version": "v1", "kind": "Namespace"}, "resource": {"group": "", "version": "v1", "resource": "namespaces"},
            "name": "fresh", "namespace": "fresh", "userInfo": {"username": "agent"}, "options": {},
            "object": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fresh", "uid": "n1", "labels": {"env": "dev"}}},
            "oldObject": old,
        }})
        .to_string()
    };
    let old = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fresh", "uid": "n1", "labels": {"env": "prod"}}});
    assert_eq!(word(&world(), &review("UPDATE", old)), "unready");
    assert_eq!(
        word(&world(), &review("CREATE", serde_json::Value::Null)),
        "ask"
    );
}

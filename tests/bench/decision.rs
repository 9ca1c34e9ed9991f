//! The decision of one Deployment review of about 5 KB, in process: a ratio to merely parsing it.

use std::{collections::BTreeMap, hint::black_box, path::Path, sync::Arc, time::Instant};

use grantgate::{
    api::{AgentIdentity, ClusterApprovalPolicy},
    decide::{
        assess::{self, Assessment},
        json,
        mount::Mounts,
        policy::Policy,
        redact::Redactor,
        resolve::Policies,
        resources::{Resources, Versions},
        review::Review,
        subject::{Agent, Agents},
        world::{Namespace, World},
    },
};
use k8s_openapi::api::authentication::v1::UserInfo;
use kube::core::{DynamicObject, GroupVersionKind, GroupVersionResource};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::percentiles;

const ROUNDS: usize = 2000;

/// The members of kube's `AdmissionReview<DynamicObject>`, typed as there; its own type would need a feature of kube that nothing
/// else here needs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TypedReview {
    request: TypedRequest,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TypedRequest {
    uid: String,
    kind: GroupVersionKind,
    resource: GroupVersionResource,
    name: String,
    namespace: Option<String>,
    operation: String,
    user_info: UserInfo,
    object: Option<DynamicObject>,
    old_object: Option<DynamicObject>,
    dry_run: bool,
    options: Option<Value>,
}

fn world() -> World {
    let identity: AgentIdentity = serde_json::from_value(json!({
        "apiVersion": "grantgate.dev/v1alpha1", "kind": "AgentIdentity", "metadata": {"name": "ops-bot", "uid": "a1"},
        "spec": {"owner": {"group": "team"}, "surface": "Policies", "subjects": [{"user": "agent"}]},
    }))
    .unwrap();
    let policy: ClusterApprovalPolicy = serde_json::from_value(json!({
        "apiVersion": "grantgate.dev/v1alpha1", "kind": "ClusterApprovalPolicy", "metadata": {"name": "all", "uid": "p1", "generation": 1},
        "spec": {"effect": "RequireApproval", "approvers": {"required": [{"count": 1, "from": []}]},
            "targets": [{"kubernetes": {"scope": "All", "when": "object.spec.replicas != oldObject.spec.replicas"}}]},
    }))
    .unwrap();
    let mut resources = Resources::default();
    resources.insert(
        "apps",
        "deployments",
        Versions::BuiltIn {
            preferred: "v1".into(),
        },
    );
    World {
        system_namespace: "grantgate-system".into(),
        canary: "canary".into(),
        agents: Arc::new(Agents::of([Agent::from(&identity)])),
        policies: Arc::new(Policies::new([Policy::compile_cluster(&policy)])),
        mounts: Arc::new(Mounts::new([])),
        namespaces: Arc::new(BTreeMap::from([(
            "web".to_owned(),
            Namespace {
                labels: BTreeMap::new(),
                active: true,
            },
        )])),
        resources: Arc::new(resources),
        redactor: Arc::new(Redactor::new("k1", &[7; 32])),
    }
}

fn timed(mut work: impl FnMut()) -> f64 {
    let begun = Instant::now();
    work();
    begun.elapsed().as_secs_f64() * 1e6
}

/// Prints the ratios.
pub fn run() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reviews/update-replicas-by-put.json");
    let text = std::fs::read_to_string(path).unwrap();
    let world = world();
    let decide = || {
        let document = json::read(&text).unwrap();
        let review = Review::of(&document).unwrap();
        let assessed = assess::assess(&world, &document, &review);
        assert!(matches!(assessed.assessment, Assessment::Ask(_)));
        black_box(assessed);
    };
    let typed = || {
        let request = serde_json::from_str::<TypedReview>(&text).unwrap().request;
        let TypedRequest {
            uid,
            kind,
            resource,
            name,
            namespace,
            operation,
            user_info,
            object,
            old_object,
            dry_run,
            options,
        } = request;
        black_box((uid, kind, resource, name, namespace, operation));
        black_box((user_info, object, old_object, dry_run, options));
    };
    let read = || {
        black_box(json::read(&text).unwrap().depth());
    };
    for _ in 0..200 {
        decide();
        typed();
        read();
    }
    let (mut decided, mut parsed, mut readings) = (Vec::new(), Vec::new(), Vec::new());
    // Interleaved, so that whatever else the machine does meets all three alike.
    for _ in 0..ROUNDS {
        decided.push(timed(decide));
        parsed.push(timed(typed));
        readings.push(timed(read));
    }
    let (decision, decision_99) = percentiles(&mut decided);
    let (typed, _) = percentiles(&mut parsed);
    let (read, _) = percentiles(&mut readings);
    println!(
        "decision of a {} byte Deployment review, {ROUNDS} rounds",
        text.len()
    );
    println!(
        "  ours, whole (read, compare, policies, CEL, digests)  {decision:8.1} us   p99/p50 {:.1}",
        decision_99 / decision
    );
    println!(
        "  kube's typed AdmissionReview, parsed only            {typed:8.1} us   decision / typed parse {:.2}",
        decision / typed
    );
    println!(
        "  our reader alone                                     {read:8.1} us   decision / reader {:.2}",
        decision / read
    );
}

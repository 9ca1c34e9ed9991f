//! What an agent with every right in its namespace, or a flood of calls, might try.

use serde_json::{Value, json};

use crate::{
    cluster::{User, install},
    stack::{Agent, Stack, installed},
};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// One call: method, path below the namespace (`core:` or `apps:` says which API), content type, body.
type Attempt = (&'static str, String, &'static str, Value);

/// What of the namespace an agent could have changed, as admin sees it.
async fn seen(stack: &Stack<'_>, namespace: &str) -> Value {
    let admin = User::admin();
    let mut all = json!({});
    for path in [
        format!("/api/v1/namespaces/{namespace}"),
        format!("/api/v1/namespaces/{namespace}/configmaps"),
        format!("/api/v1/namespaces/{namespace}/pods"),
        format!("/api/v1/namespaces/{namespace}/serviceaccounts"),
        format!("/apis/apps/v1/namespaces/{namespace}/deployments"),
        format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"),
        format!("/apis/grantgate.dev/v1alpha1/namespaces/{namespace}/approvalpolicies"),
        format!("/apis/grantgate.dev/v1alpha1/namespaces/{namespace}/approvaldecisions"),
        format!("/apis/grantgate.dev/v1alpha1/namespaces/{namespace}/grants"),
    ] {
        let mut body = stack
            .call(&admin, "GET", &path, JSON, &Value::Null)
            .await
            .expect_ok();
        // Controllers report status, and that moves revisions.
        let strip = |object: &mut Value| {
            object["status"] = Value::Null;
            object["metadata"]["resourceVersion"] = Value::Null;
            object["metadata"]["managedFields"] = Value::Null;
            object["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = Value::Null;
        };
        match body["items"].as_array_mut() {
            Some(items) => {
                // Ana makes room.
                items.retain(|item| item["spec"]["approver"]["username"] != User::ana().name);
                items.iter_mut().for_each(strip);
            }
            None => strip(&mut body),
        }
        body["metadata"]["resourceVersion"] = Value::Null;
        all[path] = body;
    }
    all
}

fn attempts(deployment: &Value, settings: &Value) -> Vec<Attempt> {
    let mut other_image = deployment.clone();
    other_image["spec"]["template"]["spec"]["containers"][0]["image"] = json!("evil.example/a:1");
    let mut annotated = deployment.clone();
    annotated["metadata"]["annotations"]["a"] = json!("b");
    let mut other_data = settings.clone();
    other_data["data"]["mode"] = json!("fast");
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "00000000-0000-0000-0000-000000000000"}]);
    let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}, "data": {"a": "b"}});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "more"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "another"}]});
    let policy = json!({"apiVersion": "grantgate.dev/v1alpha1", "kind": "ApprovalPolicy", "metadata": {"name": "free"},
        "spec": {"effect": "Exempt", "targets": [{"kubernetes": {"scope": "All"}}]}});
    let not_dry = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
    let at = |path: &str| path.to_owned();
    let settings = "core:/configmaps/settings";
    let api = "apps:/deployments/api";
    vec![
        ("PUT", at(api), JSON, other_image),
        ("PUT", format!("{api}/status"), JSON, annotated),
        ("PUT", at(settings), JSON, other_data),
        (
            "PATCH",
            at(settings),
            MERGE,
            json!({"data": {"mode": "fast"}}),
        ),
        (
            "PATCH",
            at(settings),
            STRATEGIC,
            json!({"data": {"$patch": "replace", "b": "c"}}),
        ),
        (
            "PATCH",
            at(settings),
            JSON_PATCH,
            json!([{"op": "remove", "path": "/data"}]),
        ),
        (
            "PATCH",
            format!("{settings}?fieldManager=kubectl&force=true"),
            APPLY,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"mode": "applied"}}),
        ),
        ("PATCH", at(settings), MERGE, json!({"immutable": true})),
        (
            "PATCH",
            at(settings),
            MERGE,
            json!({"metadata": {"finalizers": ["example.com/hold"]}}),
        ),
        (
            "PATCH",
            at(settings),
            MERGE,
            json!({"metadata": {"ownerReferences": owner}}),
        ),
        (
            "PATCH",
            format!("{api}/scale"),
            MERGE,
            json!({"spec": {"replicas": 0}}),
        ),
        (
            "PATCH",
            format!("{api}/status"),
            MERGE,
            json!({"metadata": {"finalizers": ["example.com/hold"]}}),
        ),
        (
            "POST",
            at("core:/configmaps"),
            JSON,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}}),
        ),
        (
            "PATCH",
            at("core:/configmaps/made?fieldManager=a"),
            APPLY,
            manifest.clone(),
        ),
        ("POST", at("core:/configmaps"), JSON, manifest),
        (
            "DELETE",
            at(settings),
            JSON,
            json!({"gracePeriodSeconds": 0}),
        ),
        (
            "DELETE",
            at(settings),
            JSON,
            json!({"orphanDependents": true}),
        ),
        ("DELETE", format!("{settings}?dryRun=All"), JSON, not_dry),
        ("DELETE", at("core:/configmaps"), JSON, Value::Null),
        (
            "DELETE",
            at("core:/configmaps?fieldSelector=metadata.name%3Dsettings"),
            JSON,
            Value::Null,
        ),
        (
            "DELETE",
            at("core:/pods/p"),
            JSON,
            json!({"gracePeriodSeconds": 0}),
        ),
        (
            "POST",
            at("core:/pods/p/eviction"),
            JSON,
            json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}),
        ),
        (
            "POST",
            at("core:/pods/p/binding"),
            JSON,
            json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}),
        ),
        (
            "POST",
            at("core:/bindings"),
            JSON,
            json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}),
        ),
        (
            "PATCH",
            at("core:/pods/p/ephemeralcontainers"),
            STRATEGIC,
            json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "evil.example/a:1"}]}}),
        ),
        (
            "POST",
            at("core:/serviceaccounts/default/token"),
            JSON,
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}),
        ),
        (
            "POST",
            at("core:/serviceaccounts/default/token?dryRun=All"),
            JSON,
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}),
        ),
        ("POST", at("rbac:/rolebindings"), JSON, binding),
        (
            "PATCH",
            at("core:"),
            MERGE,
            json!({"metadata": {"labels": {"env": "dev"}}}),
        ),
        (
            "PUT",
            at("core:/finalize"),
            JSON,
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "?"}, "spec": {"finalizers": []}}),
        ),
        ("DELETE", at("core:"), JSON, Value::Null),
        ("POST", at("ours:/approvalpolicies"), JSON, policy),
        ("DELETE", at("ours:/approvalrequests"), JSON, Value::Null),
    ]
}

fn path(attempt: &str, namespace: &str) -> String {
    let (api, rest) = attempt.split_once(':').unwrap();
    let root = match api {
        "core" => "/api/v1",
        "apps" => "/apis/apps/v1",
        "rbac" => "/apis/rbac.authorization.k8s.io/v1",
        _ => "/apis/grantgate.dev/v1alpha1",
    };
    format!("{root}/namespaces/{namespace}{rest}")
}

async fn with_every_right(stack: &Stack<'_>, prefix: &str) -> Agent {
    let agent = stack.agent(prefix).await;
    let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    stack
        .cluster
        .allow(&agent.user, Some(&agent.namespace), everything)
        .await;
    agent
}

#[tokio::test]
async fn no_way_of_writing_goes_round_the_gate() {
    let stack = installed().await;
    let agent = with_every_right(stack, "ways").await;
    let namespace = &agent.namespace;
    let admin = User::admin();
    stack
        .call(&admin, "POST", &path("core:/pods", namespace), JSON, &json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p"}, "spec": {"schedulerName": "none", "containers": [{"name": "app", "image": "registry.example/api:1"}]}}))
        .await
        .expect_ok();
    let get = async |attempt: &str| {
        stack
            .call(&admin, "GET", &path(attempt, namespace), JSON, &Value::Null)
            .await
            .expect_ok()
    };
    let deployment = get("apps:/deployments/api").await;
    let settings = get("core:/configmaps/settings").await;
    let before = seen(stack, namespace).await;
    let mut wrong = Vec::new();
    for (method, attempt, content_type, mut body) in attempts(&deployment, &settings) {
        if body["metadata"]["name"] == "?" {
            body["metadata"]["name"] = json!(namespace);
        }
        let answer = stack
            .call(
                &agent.user,
                method,
                &path(&attempt, namespace),
                content_type,
                &body,
            )
            .await;
        let ours = matches!(answer.reason(), "ApprovalPending" | "NotApprovable")
            || (attempt.starts_with("ours:") && answer.reason() == "Forbidden");
        if answer.status != 403 || !ours {
            wrong.push(format!("{method} {attempt} {body}: {answer:?}"));
        }
        // Decided, it makes room: only so many may wait at once.
        let request = answer.request().filter(|(home, _)| home == namespace);
        if let Some((_, name)) = request {
            let request = stack.request(namespace, &name).await;
            // Two attempts may ask the same; the second no is refused.
            if let Err(error) = stack.vote(&User::ana(), &request, "Deny").await {
                assert!(error.to_string().contains("was denied"), "{error}");
            }
        }
    }
    let after = seen(stack, namespace).await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(before, after, "nothing was changed");
}

#[tokio::test]
async fn a_name_sent_with_its_prefix_hides_from_no_policy() {
    let stack = installed().await;
    let agent = stack.agent("prefix").await;
    let more = format!("{}-names", agent.name);
    stack
        .put_policy(
            &more,
            json!({
                "targets": [{"kubernetes": {"scope": "All", "when": "request.name.startsWith('prod-')",
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": agent.namespace}}}}],
                "approvers": {"required": [{"count": 1, "from": [{"user": "bob@example.com"}]}]},
            }),
        )
        .await;
    let collection = path("core:/configmaps", &agent.namespace);
    for metadata in [
        json!({"name": "prod-bcdfg", "generateName": "prod-"}),
        json!({"generateName": "prod-"}),
        json!({"name": "prod-bcdfg"}),
    ] {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        let stopped = stack
            .call(&agent.user, "POST", &collection, JSON, &body)
            .await
            .expect_refused("ApprovalPending");
        let request = stack.request_of(&stopped).await;
        let named: Vec<&str> = request
            .spec
            .policies
            .iter()
            .map(|policy| policy.name.as_str())
            .collect();
        assert!(named.contains(&more.as_str()), "{metadata}: {named:?}");
    }
}

#[tokio::test]
async fn a_flood_of_one_agent_ends_at_twenty_requests_and_stops_no_other() {
    let stack = installed().await;
    let flooding = stack.agent("flood").await;
    let quiet = stack.agent("quiet").await;
    let mut refused = 0;
    for n in 0..24 {
        let answer = stack.label(&flooding, &format!("t{n}")).await;
        assert_eq!(answer.status, 403, "{answer:?}");
        refused += usize::from(answer.has_cause("TooManyPending"));
    }
    assert_eq!(stack.requests(&flooding.namespace).await.len(), 20);
    assert_eq!(refused, 4);
    stack
        .label(&flooding, "t0")
        .await
        .expect_refused("ApprovalPending");
    stack
        .label(&quiet, "B")
        .await
        .expect_refused("ApprovalPending");
}

#[tokio::test]
async fn others_make_webhook_configurations_under_generated_names() {
    let cluster = install::installed().await;
    for resource in [
        "validatingwebhookconfigurations",
        "mutatingwebhookconfigurations",
    ] {
        let answer = cluster
            .raw(
                &User::admin(),
                "POST",
                &format!("/apis/admissionregistration.k8s.io/v1/{resource}"),
                JSON,
                json!({"metadata": {"generateName": "foreign-"}, "webhooks": []})
                    .to_string()
                    .into_bytes(),
            )
            .await;
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
}

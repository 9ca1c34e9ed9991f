//! Policies inside the API server: whose words are whose, who touches records, and who touches the installation.

use grantgate::manifests::{CONTROLLER, GATE, NAMESPACE, UNINSTALL, WEBHOOK};
use serde_json::{Value, json};

use crate::cluster::http::{Answer, Tls, send};
use crate::cluster::install::installed;
use crate::cluster::wait::{PATIENCE, eventually};
use crate::cluster::{Cluster, Options, User};
use crate::kinds::{accepted, account, author, collection, decision, grant, refusal, request};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";

async fn create(cluster: &Cluster, user: &User, path: &str, object: &Value) -> Answer {
    cluster
        .raw(user, "POST", path, JSON, object.to_string())
        .await
}

async fn patch(cluster: &Cluster, user: &User, path: &str, change: Value) -> Answer {
    cluster
        .raw(user, "PATCH", path, MERGE, change.to_string())
        .await
}

async fn delete(cluster: &Cluster, user: &User, path: &str) -> Answer {
    cluster.raw(user, "DELETE", path, JSON, "").await
}

/// A namespace with an approver in it.
async fn stage(cluster: &Cluster) -> (String, String) {
    let namespace = cluster.namespace("authors", &[]).await;
    cluster
        .bind(&User::ana(), "grantgate-approver", Some(&namespace))
        .await;
    let decisions = collection(Some(&namespace), "approvaldecisions");
    (namespace, decisions)
}

#[tokio::test]
async fn v18_a_forged_approver_is_refused() {
    let cluster = installed().await;
    let (_namespace, decisions) = stage(cluster).await;
    let (ana, ben) = (User::ana(), User::ben());
    let forged = |member: &str, value: Value| {
        let mut approver = author(&ana);
        approver[member] = value;
        approver
    };
    for approver in [
        author(&ben),
        forged("username", json!(ben.name)),
        forged("uid", json!("")),
        forged("groups", json!([])),
        forged(
            "groups",
            json!(["sre-oncall", "sre-leads", "system:authenticated"]),
        ),
    ] {
        for user in [&ana, &User::admin()] {
            let answer = create(
                cluster,
                user,
                &decisions,
                &decision("d-1", Some(approver.clone())),
            )
            .await;
            let message = refusal(&answer, 403);
            assert!(
                message.contains("leave") && message.contains("it is filled in"),
                "{message}"
            );
        }
    }
    accepted(
        &create(
            cluster,
            &ana,
            &decisions,
            &decision("d-1", Some(author(&ana))),
        )
        .await,
    );
}

#[tokio::test]
async fn v18_without_the_stamp_no_vote_is_stored() {
    let cluster = installed().await;
    let (_namespace, decisions) = stage(cluster).await;
    for approver in [None, Some(Value::Null)] {
        let message = refusal(
            &create(
                cluster,
                &User::ana(),
                &decisions,
                &decision("d-1", approver),
            )
            .await,
            422,
        );
        assert!(
            message.contains("spec.approver: Required value"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn v18_what_a_stamp_fills_in_satisfies_schema_and_policy() {
    let cluster = installed().await;
    let (namespace, decisions) = stage(cluster).await;
    // Stands in for the mutating webhook, in this namespace alone.
    let name = format!("stamp-{namespace}");
    let expression = r#"[JSONPatch{op: "add", path: "/spec/approver", value: Object.spec.approver{
        username: request.userInfo.username, uid: request.userInfo.uid, groups: request.userInfo.groups}}]"#;
    let stamp = json!({"metadata": {"name": name}, "spec": {
        "failurePolicy": "Fail", "reinvocationPolicy": "IfNeeded",
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "resourceRules": [{"operations": ["CREATE"], "apiGroups": ["grantgate.dev"], "apiVersions": ["*"], "resources": ["approvaldecisions"]}],
        },
        "matchConditions": [{"name": "unstamped", "expression": "!has(object.spec.approver)"}],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
    }});
    let admin = User::admin();
    accepted(
        &create(
            cluster,
            &admin,
            &format!("{ADMISSION}/mutatingadmissionpolicies"),
            &stamp,
        )
        .await,
    );
    let bound = json!({"metadata": {"name": name}, "spec": {"policyName": name}});
    accepted(
        &create(
            cluster,
            &admin,
            &format!("{ADMISSION}/mutatingadmissionpolicybindings"),
            &bound,
        )
        .await,
    );
    let stored = eventually("the stamp is in force", PATIENCE, async || {
        let answer = create(cluster, &User::ana(), &decisions, &decision("d-1", None)).await;
        (answer.status == 201).then(|| answer.json().unwrap())
    });
    assert_eq!(
        stored.await.unwrap()["spec"]["approver"],
        author(&User::ana())
    );
    let forged = decision("d-2", Some(author(&User::ben())));
    refusal(
        &create(cluster, &User::ana(), &decisions, &forged).await,
        403,
    );
}

#[tokio::test]
async fn a_decision_brings_no_owner_and_no_finalizer() {
    let cluster = installed().await;
    let (_namespace, decisions) = stage(cluster).await;
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "1"}]);
    for (member, value) in [
        ("ownerReferences", owner),
        ("finalizers", json!(["example.com/keep"])),
    ] {
        let mut decision = decision("d-1", Some(author(&User::ana())));
        decision["metadata"][member] = value;
        let message = refusal(
            &create(cluster, &User::ana(), &decisions, &decision).await,
            403,
        );
        assert!(
            message.contains("without owner references and finalizers"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn a_decision_never_changes() {
    let cluster = installed().await;
    let (_namespace, decisions) = stage(cluster).await;
    accepted(
        &create(
            cluster,
            &User::ana(),
            &decisions,
            &decision("d-1", Some(author(&User::ana()))),
        )
        .await,
    );
    let path = format!("{decisions}/d-1");
    let turned = json!({"spec": {"verdict": "Deny"}});
    let message = refusal(&patch(cluster, &User::admin(), &path, turned).await, 422);
    assert!(message.contains("a decision never changes"), "{message}");
    // A policy takes a moment to be in use after it was installed.
    let mut tries = 0;
    eventually("the policy is in use", PATIENCE, async || {
        tries += 1;
        let labelled = json!({"metadata": {"labels": {"a": format!("b{tries}")}}});
        (patch(cluster, &User::admin(), &path, labelled).await.status == 403).then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn only_the_controller_makes_grants_and_only_the_webhook_files_requests() {
    let cluster = installed().await;
    let namespace = cluster.namespace("authors", &[]).await;
    let (controller, webhook) = (
        account(cluster, CONTROLLER).await,
        account(cluster, WEBHOOK).await,
    );
    let grants = collection(Some(&namespace), "grants");
    let message = refusal(
        &create(cluster, &User::admin(), &grants, &grant("gr-1")).await,
        403,
    );
    assert!(
        message.contains("grants are made by the controller"),
        "{message}"
    );
    refusal(
        &create(cluster, &webhook, &grants, &grant("gr-1")).await,
        403,
    );
    accepted(&create(cluster, &controller, &grants, &grant("gr-1")).await);

    let requests = collection(Some(&namespace), "approvalrequests");
    let message = refusal(
        &create(cluster, &User::admin(), &requests, &request("ar-1")).await,
        403,
    );
    assert!(
        message.contains("requests are filed by grantgate itself"),
        "{message}"
    );
    refusal(
        &create(cluster, &controller, &requests, &request("ar-1")).await,
        403,
    );
    accepted(&create(cluster, &webhook, &requests, &request("ar-1")).await);
}

#[tokio::test]
async fn records_are_not_removed_by_hand_and_only_we_write_status() {
    let cluster = installed().await;
    let (namespace, _decisions) = stage(cluster).await;
    let grants = collection(Some(&namespace), "grants");
    accepted(
        &create(
            cluster,
            &account(cluster, CONTROLLER).await,
            &grants,
            &grant("gr-1"),
        )
        .await,
    );
    let path = format!("{grants}/gr-1");
    for path in [&path, &grants] {
        let message = refusal(&delete(cluster, &User::admin(), path).await, 403);
        assert!(
            message.contains("records are not deleted by hand"),
            "{message}"
        );
    }
    let change = json!({"status": {"phase": "Stale"}});
    let message = refusal(
        &patch(
            cluster,
            &User::admin(),
            &format!("{path}/status"),
            change.clone(),
        )
        .await,
        403,
    );
    assert!(
        message.contains("status is written by grantgate only"),
        "{message}"
    );
    for (member, value) in [
        ("labels", json!({"a": "b"})),
        ("finalizers", json!(["example.com/keep"])),
        (
            "ownerReferences",
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "1"}]),
        ),
    ] {
        let change = json!({"metadata": {member: value}});
        let message = refusal(&patch(cluster, &User::ana(), &path, change).await, 403);
        assert!(
            message.contains("only spec.revoked may be changed"),
            "{message}"
        );
    }
    accepted(
        &patch(
            cluster,
            &User::ana(),
            &path,
            json!({"spec": {"revoked": true}}),
        )
        .await,
    );
    accepted(
        &patch(
            cluster,
            &account(cluster, WEBHOOK).await,
            &format!("{path}/status"),
            change,
        )
        .await,
    );
}

#[tokio::test]
async fn a_namespace_that_holds_records_can_be_removed() {
    let cluster = installed().await;
    let namespace = cluster.namespace("authors", &[]).await;
    let grants = collection(Some(&namespace), "grants");
    accepted(
        &create(
            cluster,
            &account(cluster, CONTROLLER).await,
            &grants,
            &grant("gr-1"),
        )
        .await,
    );
    let path = format!("/api/v1/namespaces/{namespace}");
    accepted(&delete(cluster, &User::admin(), &path).await);
    let gone = eventually("the namespace is gone", PATIENCE, async || {
        let answer = cluster.raw(&User::admin(), "GET", &path, JSON, "").await;
        (answer.status == 404).then_some(())
    });
    gone.await.unwrap();
}

#[tokio::test]
async fn agents_write_neither_our_kinds_nor_webhook_configurations() {
    let cluster = installed().await;
    let namespace = cluster.namespace("agents", &[]).await;
    let bot = cluster.service_account(&namespace, "bot").await;
    let named = cluster.certificate_user(&format!("{namespace}-bot"), None);
    let grouped = cluster.certificate_user(
        &format!("{namespace}-any"),
        Some(&format!("{namespace}-bots")),
    );
    let identity = json!({
        "apiVersion": "grantgate.dev/v1alpha1", "kind": "AgentIdentity", "metadata": {"name": namespace},
        "spec": {"owner": {"group": "team"}, "subjects": [
            {"serviceAccount": {"namespace": namespace, "name": "bot"}},
            {"user": named.name},
            {"group": format!("{namespace}-bots")},
        ]},
    });
    let policies = format!("{}?dryRun=All", collection(None, "clusterapprovalpolicies"));
    let policy = json!({
        "apiVersion": "grantgate.dev/v1alpha1", "kind": "ClusterApprovalPolicy", "metadata": {"name": namespace},
        "spec": {"effect": "Exempt", "targets": [{"kubernetes": {"scope": "All"}}]},
    });
    let webhooks = format!("{ADMISSION}/validatingwebhookconfigurations?dryRun=All");
    let configuration = json!({"metadata": {"name": namespace}, "webhooks": []});
    for user in [&bot, &named, &grouped] {
        cluster.bind(user, "cluster-admin", None).await;
        // Before they are declared, they are people to us.
        accepted(&create(cluster, user, &policies, &policy).await);
    }
    let identities = collection(None, "agentidentities");
    let path = format!("{identities}/{namespace}");
    accepted(&create(cluster, &User::admin(), &identities, &identity).await);
    for user in [&bot, &named, &grouped] {
        let words = "an agent writes neither grantgate's kinds nor admission webhooks";
        let refused = eventually("the declaration is known", PATIENCE, async || {
            let answer = create(cluster, user, &policies, &policy).await;
            (answer.status == 403 && answer.text().contains(words)).then_some(())
        });
        refused.await.unwrap();
        assert!(
            refusal(&create(cluster, user, &webhooks, &configuration).await, 403).contains(words)
        );
        assert!(
            refusal(
                &patch(
                    cluster,
                    user,
                    &path,
                    json!({"spec": {"surface": "Policies"}})
                )
                .await,
                403
            )
            .contains(words)
        );
        assert!(refusal(&delete(cluster, user, &path).await, 403).contains(words));
        assert!(refusal(&delete(cluster, user, &identities).await, 403).contains(words));
        refusal(
            &patch(
                cluster,
                user,
                &format!("{path}/status"),
                json!({"status": {"conditions": []}}),
            )
            .await,
            403,
        );
    }
    accepted(&create(cluster, &User::admin(), &policies, &policy).await);
    accepted(&create(cluster, &User::admin(), &webhooks, &configuration).await);
    accepted(&delete(cluster, &User::admin(), &path).await);
}

/// A write by somebody whose credential carries an extra key, as impersonation lets the administrator play it.
async fn with_extra(cluster: &Cluster, key: &str) -> Answer {
    let policy = json!({
        "apiVersion": "grantgate.dev/v1alpha1", "kind": "ClusterApprovalPolicy", "metadata": {"name": "by-extra"},
        "spec": {"effect": "Exempt", "targets": [{"kubernetes": {"scope": "All"}}]},
    });
    let endpoint = cluster.endpoint(0);
    let bearer = format!("Bearer {}", User::admin().token().unwrap());
    let header = format!("impersonate-extra-{key}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", JSON),
        ("impersonate-user", "somebody"),
        ("impersonate-group", "system:masters"),
        (header.as_str(), "x"),
    ];
    let url = format!(
        "{}{}?dryRun=All",
        endpoint.url,
        collection(None, "clusterapprovalpolicies")
    );
    let tls = Tls::trusting(&endpoint.authority_der).unwrap();
    send(&tls, http::Method::POST, &url, &headers, policy.to_string())
        .await
        .unwrap()
}

#[tokio::test]
async fn the_extra_key_of_agents_counts_in_any_case() {
    let cluster = installed().await;
    // The policy asks its parameters: at least one identity must be declared.
    let name = format!("extra-{}", cluster.next());
    let identity = json!({
        "apiVersion": "grantgate.dev/v1alpha1", "kind": "AgentIdentity", "metadata": {"name": name},
        "spec": {"owner": {"group": "team"}, "subjects": [{"user": name}]},
    });
    accepted(
        &create(
            cluster,
            &User::admin(),
            &collection(None, "agentidentities"),
            &identity,
        )
        .await,
    );
    for key in [
        "grantgate.dev%2fagent",
        "grantgate.dev%2F%41gent",
        "%47rantgate.dev%2fAGENT",
    ] {
        let refused = eventually("the key is found", PATIENCE, async || {
            let answer = with_extra(cluster, key).await;
            (answer.status == 403 && answer.text().contains("an agent writes neither"))
                .then_some(())
        });
        refused.await.unwrap();
    }
    accepted(&with_extra(cluster, "example.com%2fagent").await);
}

#[tokio::test]
async fn strangers_with_every_right_do_not_touch_the_installation_and_administrators_do() {
    let cluster = Cluster::start(Options::default()).await;
    cluster.install().await.unwrap();
    let dan = User::dan();
    let rules = json!([{
        "apiGroups": ["admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", ""],
        "resources": ["*"], "verbs": ["*"],
    }]);
    cluster.allow(&dan, None, rules).await;
    let webhooks = format!("{ADMISSION}/validatingwebhookconfigurations");
    let gate = json!({"metadata": {"name": GATE}, "webhooks": []});
    let controller = account(&cluster, CONTROLLER).await;
    accepted(&create(&cluster, &controller, &webhooks, &gate).await);
    let foreign = json!({"metadata": {"name": "foreign"}, "webhooks": []});
    accepted(&create(&cluster, &dan, &webhooks, &foreign).await);
    refusal(
        &patch(
            &cluster,
            &controller,
            &format!("{webhooks}/foreign"),
            json!({"metadata": {"labels": {"a": "b"}}}),
        )
        .await,
        403,
    );

    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    eventually("the installation is protected", PATIENCE, async || {
        let path = format!("{webhooks}/{GATE}?dryRun=All");
        (delete(&cluster, &dan, &path).await.status == 403).then_some(())
    })
    .await
    .unwrap();
    // A whole collection is removed object by object, and each review then names nothing.
    for path in [
        format!("{webhooks}/{GATE}"),
        webhooks.clone(),
        format!("{definitions}/grants.grantgate.dev"),
        definitions.to_owned(),
        format!("/api/v1/namespaces/{NAMESPACE}"),
    ] {
        let message = refusal(&delete(&cluster, &dan, &path).await, 403);
        assert!(
            message.contains("needs verb administer on installations.grantgate.dev"),
            "{message}"
        );
    }
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    for path in [
        format!("{webhooks}/{GATE}"),
        format!("/api/v1/namespaces/{NAMESPACE}"),
    ] {
        refusal(&patch(&cluster, &dan, &path, label.clone()).await, 403);
        accepted(&patch(&cluster, &User::admin(), &path, label.clone()).await);
    }
    accepted(&patch(&cluster, &dan, "/api/v1/namespaces/default", label.clone()).await);
    let uninstall = account(&cluster, UNINSTALL).await;
    accepted(&delete(&cluster, &uninstall, &format!("{webhooks}/{GATE}")).await);
    accepted(
        &delete(
            &cluster,
            &uninstall,
            &format!("{ADMISSION}/validatingadmissionpolicybindings/grantgate-self"),
        )
        .await,
    );
}

#[tokio::test]
async fn the_policies_are_checked_by_type_without_a_warning() {
    let cluster = installed().await;
    for name in grantgate::manifests::POLICIES {
        let path = format!("{ADMISSION}/validatingadmissionpolicies/{name}");
        let status = eventually("the controller has checked it", PATIENCE, async || {
            let policy = cluster
                .raw(&User::admin(), "GET", &path, JSON, "")
                .await
                .json()
                .ok()?;
            policy["status"]
                .get("observedGeneration")
                .is_some()
                .then(|| policy["status"].clone())
        });
        let warnings = status.await.unwrap()["typeChecking"]["expressionWarnings"].clone();
        assert_eq!(warnings, Value::Null, "{name}");
    }
}

#[tokio::test]
async fn v20_an_approver_of_one_namespace_is_no_approver_of_another() {
    let cluster = installed().await;
    let (here, there) = (
        cluster.namespace("here", &[]).await,
        cluster.namespace("there", &[]).await,
    );
    cluster
        .bind(&User::ben(), "grantgate-approver", Some(&here))
        .await;
    for (namespace, allowed) in [(&here, true), (&there, false)] {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": User::ben().name, "resourceAttributes": {
                "namespace": namespace, "verb": "approve", "group": "grantgate.dev",
                "resource": "clusterapprovalpolicies", "name": "production-changes",
            }},
        });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let answer = create(cluster, &account(cluster, WEBHOOK).await, path, &review).await;
        assert_eq!(
            accepted(&answer)["status"]["allowed"],
            allowed,
            "{namespace}"
        );
    }
}

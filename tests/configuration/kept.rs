//! What is kept: repaired when it drifts, by one leader, until it is taken away.

use std::sync::Arc;

use grantgate::{
    cluster::clock::Clock,
    control::{
        canary::{self, Proof},
        configuration,
        servers::Servers,
    },
};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Namespace, Secret},
    events::v1::Event,
};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;

use super::{
    PATIENCE, Played, apply_all, identity, mutating, open_namespace, validating, wait_condition,
};
use crate::{
    cluster::{Cluster, Options, User, process::Process, wait::eventually},
    stack::{SYSTEM, Setup, Stack},
};

async fn start(cluster: &Cluster) -> Stack<'_> {
    let stack = Stack::start(cluster, Setup::default()).await;
    apply_all(
        &stack,
        &[identity("ops-bot", json!([{"user": "oidc:ops-bot"}]))],
    )
    .await;
    wait_condition(&stack, "ops-bot", "Enforced", ("True", "Proven")).await;
    stack
}

fn leases(cluster: &Cluster) -> Api<Lease> {
    Api::namespaced(cluster.admin(), SYSTEM)
}

async fn guard_since(cluster: &Cluster) -> Option<String> {
    let lease = leases(cluster).get("grantgate-installation").await.ok()?;
    lease
        .metadata
        .annotations?
        .remove("grantgate.dev/guard-since")
}

#[tokio::test]
async fn with_no_agent_declared_the_gate_is_proven_all_the_same() {
    let cluster = Cluster::start(Options::default()).await;
    let mut stack = Stack::start(&cluster, Setup::default()).await;
    let controller = stack.controller.as_mut().unwrap();
    controller
        .wait_for_log("entries: [Enforced]", PATIENCE)
        .await
        .unwrap();
    let gate = validating(&cluster).get("grantgate-gate").await.unwrap();
    let installed = configuration::installed(&gate);
    assert_eq!(installed.len(), 1);
    assert!(installed[0].subjects.is_empty());
    let policies: Api<grantgate::api::ClusterApprovalPolicy> = Api::all(cluster.admin());
    let default = policies.get("grantgate-default").await.unwrap();
    assert_eq!(
        default.spec,
        grantgate::control::default_policy::object().spec
    );
}

#[tokio::test]
async fn canaries_prove_and_disprove_the_gate_through_each_api_server() {
    let cluster = Cluster::start(Options {
        servers: 2,
        ..Options::default()
    })
    .await;
    let mut stack = start(&cluster).await;
    let identities: Api<grantgate::api::AgentIdentity> = Api::all(cluster.admin());
    let seen = identities.get("ops-bot").await.unwrap().status.unwrap();
    let urls: Vec<String> = (0..2)
        .map(|server| cluster.endpoint(server).url.clone())
        .collect();
    let shown: Vec<String> = seen
        .endpoints
        .iter()
        .map(|endpoint| endpoint.url.clone())
        .collect();
    assert_eq!(shown, urls);
    assert!(seen.endpoints.iter().all(|endpoint| endpoint.enforced));

    // The same call as the controller's, by its account, while it is not there to repair anything.
    stack
        .controller
        .as_mut()
        .unwrap()
        .terminate()
        .await
        .unwrap();
    let account = cluster
        .service_account(SYSTEM, "grantgate-controller")
        .await;
    let mut config = Config::new(urls[0].parse().unwrap());
    config.root_cert = Some(vec![cluster.endpoint(0).authority_der.clone()]);
    config.auth_info.token = Some(account.token().unwrap().to_owned().into());
    config.default_retry = false;
    let both: Vec<http::Uri> = urls.iter().map(|url| url.parse().unwrap()).collect();
    let servers = Servers::new(&config, &both, Arc::new(Clock::default())).unwrap();
    let gate = validating(&cluster).get("grantgate-gate").await.unwrap();
    let mut entries = configuration::installed(&gate);
    let proofs = async |entries: &[configuration::Installed]| {
        let proven = canary::prove(&servers, SYSTEM, entries).await;
        proven
            .into_iter()
            .flat_map(|server| server.entries)
            .collect::<Vec<_>>()
    };
    assert_eq!(proofs(&entries).await, [Proof::Enforced, Proof::Enforced]);

    let current = std::mem::replace(&mut entries[0].digest, "0".repeat(64));
    let unknown = |proof: &Proof| matches!(proof, Proof::Unknown(_));
    assert!(
        proofs(&entries).await.iter().all(unknown),
        "another digest proves nothing"
    );
    entries[0].digest = current;

    stack.front.sever(true);
    assert!(
        proofs(&entries).await.iter().all(unknown),
        "a gate that is down proves nothing"
    );
    stack.front.sever(false);

    validating(&cluster)
        .delete("grantgate-gate", &DeleteParams::default())
        .await
        .unwrap();
    eventually("no gate through either server", PATIENCE, async || {
        (proofs(&entries).await == [Proof::NotEnforced, Proof::NotEnforced]).then_some(())
    })
    .await
    .unwrap();
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(cluster.admin(), SYSTEM);
    assert!(
        maps.get_opt("grantgate-canary").await.unwrap().is_none(),
        "nothing is stored"
    );

    let recipe = stack
        .controller_recipe("again", &Setup::default())
        .await
        .unwrap();
    stack.controller = Some(Process::start(recipe).unwrap());
    wait_condition(&stack, "ops-bot", "Enforced", ("True", "Proven")).await;
    eventually("the gate is there again", PATIENCE, async || {
        (proofs(&entries).await == [Proof::Enforced, Proof::Enforced]).then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn drift_is_repaired_and_votes_are_proven_anew() {
    let cluster = Cluster::start(Options::default()).await;
    let stack = start(&cluster).await;
    let first = eventually("decisions are proven", PATIENCE, async || {
        guard_since(&cluster).await
    })
    .await
    .unwrap();

    for name in ["grantgate-gate", "grantgate-guard"] {
        let mut object = validating(&cluster).get(name).await.unwrap();
        object.webhooks.as_mut().unwrap()[0].failure_policy = Some("Ignore".to_owned());
        let params = PostParams::default();
        validating(&cluster)
            .replace(name, &params, &object)
            .await
            .unwrap();
        eventually("it fails closed again", PATIENCE, async || {
            let object = validating(&cluster).get(name).await.ok()?;
            (object.webhooks?[0].failure_policy.as_deref() == Some("Fail")).then_some(())
        })
        .await
        .unwrap();
    }
    let gone = DeleteParams::default();
    validating(&cluster)
        .delete("grantgate-gate", &gone)
        .await
        .unwrap();
    mutating(&cluster)
        .delete("grantgate-stamp", &gone)
        .await
        .unwrap();
    eventually("both are there again", PATIENCE, async || {
        validating(&cluster).get("grantgate-gate").await.ok()?;
        mutating(&cluster).get("grantgate-stamp").await.ok()
    })
    .await
    .unwrap();
    let second = eventually("decisions are proven anew", PATIENCE, async || {
        guard_since(&cluster).await.filter(|since| *since != first)
    })
    .await
    .unwrap();
    assert!(second > first);

    // Without the binding nothing is proven.
    let kubectl = cluster.kubectl(&User::admin());
    let binding = [
        "get",
        "validatingadmissionpolicybinding",
        "grantgate-authorship",
        "-o",
        "json",
    ];
    let text = kubectl.run(binding).await.expect_ok();
    kubectl
        .run([
            "delete",
            "validatingadmissionpolicybinding",
            "grantgate-authorship",
        ])
        .await
        .expect_ok();
    let mut controller = stack.controller.unwrap();
    controller
        .wait_for_log("grantgate-authorship is not there", PATIENCE)
        .await
        .unwrap();
    let second = guard_since(&cluster).await.unwrap();
    let mut binding: serde_json::Value = serde_json::from_str(&text).unwrap();
    binding["metadata"] = json!({"name": "grantgate-authorship"});
    kubectl
        .run_with_input(["create", "-f", "-"], &binding.to_string())
        .await
        .expect_ok();
    eventually("decisions are proven once more", PATIENCE, async || {
        guard_since(&cluster).await.filter(|since| *since > second)
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn one_of_two_controllers_leads_and_hands_over_when_told_to_stop() {
    let cluster = Cluster::start(Options::default()).await;
    let mut stack = start(&cluster).await;
    let secrets: Api<Secret> = Api::namespaced(cluster.admin(), SYSTEM);
    let made = async || {
        let one = secrets.get("grantgate-serving-cert").await.unwrap().data;
        (
            one,
            secrets.get("grantgate-fingerprint-key").await.unwrap().data,
        )
    };
    let before = made().await;
    let recipe = stack
        .controller_recipe("second", &Setup::default())
        .await
        .unwrap();
    let mut second = Process::start(recipe).unwrap();
    second.wait_for_log("starting", PATIENCE).await.unwrap();
    let holder = async || {
        leases(&cluster)
            .get("grantgate-controller")
            .await
            .ok()?
            .spec?
            .holder_identity
    };
    assert_eq!(holder().await.as_deref(), Some("controller"));

    let first = stack.controller.as_mut().unwrap();
    let status = first.terminate().await.unwrap();
    assert!(status.success(), "{status}");
    let given_back = holder().await.unwrap_or_default();
    assert!(
        given_back.is_empty() || given_back == "second",
        "{given_back}"
    );
    second.wait_for_log("leads", PATIENCE).await.unwrap();
    eventually("the second holds the Lease", PATIENCE, async || {
        (holder().await? == "second").then_some(())
    })
    .await
    .unwrap();

    apply_all(
        &stack,
        &[identity("late", json!([{"group": "late-agents"}]))],
    )
    .await;
    wait_condition(&stack, "late", "Enforced", ("True", "Proven")).await;
    assert_eq!(made().await, before, "certificate and key are made once");
}

#[tokio::test]
async fn removing_an_identity_is_told_and_its_subjects_are_sent_for_a_while() {
    let cluster = Cluster::start(Options::default()).await;
    let mut stack = start(&cluster).await;
    let identities: Api<grantgate::api::AgentIdentity> = Api::all(cluster.admin());
    identities
        .delete("ops-bot", &DeleteParams::default())
        .await
        .unwrap();
    let events: Api<Event> = Api::namespaced(cluster.admin(), "default");
    let event = eventually("an Event about the removal", PATIENCE, async || {
        let all = events.list(&ListParams::default()).await.ok()?.items;
        all.into_iter()
            .find(|event| event.reason.as_deref() == Some("IdentitiesRemoved"))
    })
    .await
    .unwrap();
    assert!(event.note.unwrap().contains("user oidc:ops-bot"));
    let controller = stack.controller.as_mut().unwrap();
    controller
        .wait_for_log("\"transition\":\"IdentitiesRemoved\"", PATIENCE)
        .await
        .unwrap();
    let sent = async || {
        let gate = validating(&cluster).get("grantgate-gate").await.unwrap();
        !configuration::installed(&gate)[0].subjects.is_empty()
    };
    assert!(sent().await, "at first it is still sent");
    let gone = async || (!sent().await).then_some(());
    eventually("it is no longer sent", PATIENCE, gone)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_subject_of_two_identities_and_an_account_of_ours_are_invalid() {
    let cluster = Cluster::start(Options::default()).await;
    let stack = start(&cluster).await;
    let kubectl = cluster.kubectl(&User::admin());
    let refused = async |object: serde_json::Value| {
        let answer = kubectl
            .run_with_input(["apply", "--server-side", "-f", "-"], &object.to_string())
            .await;
        assert!(!answer.ok());
        answer.stderr
    };
    let own = json!([{"serviceAccount": {"namespace": SYSTEM, "name": "grantgate-webhook"}}]);
    let words = refused(identity("own", own.clone())).await;
    assert!(words.contains("own accounts"), "{words}");
    let shared = json!([{"user": "oidc:ops-bot"}]);
    let words = refused(identity("shared", shared.clone())).await;
    assert!(words.contains("ops-bot already"), "{words}");

    // Written while no guard is there, both are found all the same, and our account is not gated.
    let mut stack = stack;
    stack
        .controller
        .as_mut()
        .unwrap()
        .terminate()
        .await
        .unwrap();
    validating(&cluster)
        .delete("grantgate-guard", &DeleteParams::default())
        .await
        .unwrap();
    eventually("written without a guard", PATIENCE, async || {
        let text = format!(
            "{}\n---\n{}",
            identity("own", own.clone()),
            identity("shared", shared.clone())
        );
        let applied = kubectl
            .run_with_input(["apply", "--server-side", "-f", "-"], &text)
            .await;
        applied.ok().then_some(())
    })
    .await
    .unwrap();
    let recipe = stack
        .controller_recipe("again", &Setup::default())
        .await
        .unwrap();
    stack.controller = Some(Process::start(recipe).unwrap());
    for name in ["own", "shared", "ops-bot"] {
        wait_condition(&stack, name, "Valid", ("False", "Invalid")).await;
    }
    wait_condition(&stack, "own", "Enforced", ("False", "NotSent")).await;
    wait_condition(&stack, "ops-bot", "Enforced", ("True", "Proven")).await;
}

#[tokio::test]
async fn v16_a_namespace_with_records_can_be_deleted_while_the_guard_is_down() {
    let cluster = Cluster::start(Options {
        controller_manager: true,
        ..Options::default()
    })
    .await;
    let mut stack = start(&cluster).await;
    let namespace = open_namespace(&cluster, "v16").await;
    let agent = Played::named("oidc:ops-bot");
    let requests: Api<grantgate::api::ApprovalRequest> =
        Api::namespaced(cluster.admin(), &namespace);
    let filed = async |client: &Api<grantgate::api::ApprovalRequest>| {
        let stopped = agent.writes(&cluster, 0, &namespace).await;
        assert_eq!(stopped.status, 403, "{}", stopped.text());
        let all = client.list(&ListParams::default()).await.ok()?.items;
        (!all.is_empty()).then_some(())
    };
    eventually("a request is filed", PATIENCE, async || {
        filed(&requests).await
    })
    .await
    .unwrap();
    apply_all(
        &stack,
        &[json!({
            "apiVersion": "grantgate.dev/v1alpha1", "kind": "ApprovalPolicy",
            "metadata": {"name": "theirs", "namespace": namespace},
            "spec": {
                "effect": "RequireApproval", "targets": [{"kubernetes": {"scope": "All"}}],
                "approvers": {"required": [{"count": 1, "from": [{"user": "ana@example.com"}]}]},
            },
        })],
    )
    .await;

    stack
        .controller
        .as_mut()
        .unwrap()
        .terminate()
        .await
        .unwrap();
    stack.webhooks[0].terminate().await.unwrap();
    let stopped = agent.writes(&cluster, 0, &namespace).await;
    assert!(
        stopped.status >= 400,
        "agents are refused while we are down"
    );
    let person = Played::named("dan@example.com");
    assert_eq!(person.writes(&cluster, 0, &namespace).await.status, 201);

    let namespaces: Api<Namespace> = Api::all(cluster.admin());
    namespaces
        .delete(&namespace, &DeleteParams::default())
        .await
        .unwrap();
    eventually("the namespace is gone", PATIENCE, async || {
        namespaces
            .get_opt(&namespace)
            .await
            .ok()?
            .is_none()
            .then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn cleanup_takes_bindings_and_configurations_away_and_says_what_that_means() {
    let cluster = Cluster::start(Options::default()).await;
    let mut stack = start(&cluster).await;
    let namespace = open_namespace(&cluster, "cleanup").await;
    let agent = Played::named("oidc:ops-bot");
    assert_eq!(agent.writes(&cluster, 0, &namespace).await.status, 403);
    stack
        .controller
        .as_mut()
        .unwrap()
        .terminate()
        .await
        .unwrap();

    let account = cluster.service_account(SYSTEM, "grantgate-uninstall").await;
    let program = crate::cluster::tools::grantgate();
    let clean = async || {
        let tool = cluster.tool(&program.display().to_string(), cluster.kubeconfig(&account));
        tool.run(["cleanup"]).await
    };
    let said = clean().await.expect_ok();
    let (binding, gate) = (
        "policy binding grantgate-self removed",
        "configuration grantgate-gate removed",
    );
    assert!(
        said.find(binding).unwrap() < said.find(gate).unwrap(),
        "{said}"
    );
    assert!(said.contains("nothing waits for a person"), "{said}");
    assert!(said.contains("user oidc:ops-bot"), "{said}");
    let client: Client = cluster.admin();
    let bindings: Api<
        k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding,
    > = Api::all(client);
    assert!(
        bindings
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
    assert!(
        validating(&cluster)
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
    assert!(
        mutating(&cluster)
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
    eventually("the agent is not stopped any more", PATIENCE, async || {
        (agent.writes(&cluster, 0, &namespace).await.status == 201).then_some(())
    })
    .await
    .unwrap();
    let again = clean().await.expect_ok();
    assert!(again.contains("grantgate-gate was not there"), "{again}");
}

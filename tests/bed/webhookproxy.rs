//! Several servers behind one URL: spread, chosen, passed over when down. Two API servers stand in for two replicas.

use http::Method;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::faults::Moment;
use crate::cluster::http::{Tls, send};
use crate::cluster::wait::{PATIENCE, eventually};
use crate::cluster::webhookproxy::{Passthrough, WebhookProxy};
use crate::cluster::{Cluster, Options, Part, shared};

fn addresses(cluster: &Cluster) -> Vec<String> {
    (0..2)
        .map(|number| {
            cluster
                .endpoint(number)
                .url
                .trim_start_matches("https://")
                .to_owned()
        })
        .collect()
}

#[tokio::test]
async fn requests_are_spread_and_a_replica_that_is_down_is_passed_over() {
    let cluster = Cluster::start(Options {
        servers: 2,
        ..Options::default()
    })
    .await;
    let front = WebhookProxy::start(
        &cluster.authority().server(&[]).unwrap(),
        &addresses(&cluster),
    );
    let tls = Tls::trusting(&cluster.authority().der()).unwrap();
    let url = format!("{}/version?timeout=10s", front.url());
    let get = async || send(&tls, Method::GET, &url, &[], "").await;
    let backends = || -> Vec<usize> {
        front
            .faults()
            .seen()
            .iter()
            .filter_map(|seen| seen.backend)
            .collect()
    };
    for _ in 0..4 {
        assert_eq!(get().await.unwrap().status, 200);
    }
    assert_eq!(backends(), [0, 1, 0, 1]);
    assert_eq!(front.faults().seen()[0].query, "timeout=10s");

    cluster.kill(Part::Server(0)).await.unwrap();
    front.faults().forget();
    for _ in 0..4 {
        assert_eq!(get().await.unwrap().status, 200);
    }
    assert_eq!(backends(), [1, 1, 1, 1]);

    front.choose(Some(0));
    assert!(get().await.is_err(), "the chosen one is down");
    front.choose(Some(1));
    let trap = front
        .faults()
        .cut(Moment::After, 1, |seen| seen.path == "/version");
    assert!(get().await.is_err());
    assert_eq!(
        trap.sprung().await.status,
        Some(200),
        "the replica had answered"
    );
    assert_eq!(get().await.unwrap().status, 200);
}

#[tokio::test]
async fn bytes_passed_through_show_the_replicas_own_certificate() {
    let cluster = shared().await;
    let front = Passthrough::start(&addresses(cluster));
    let tls = Tls::trusting(&cluster.authority().der()).unwrap();
    let url = format!("{}/version", front.url());
    for only in [Some(0), Some(1), None] {
        front.choose(only);
        assert_eq!(
            send(&tls, Method::GET, &url, &[], "").await.unwrap().status,
            200
        );
    }
    front.sever(true);
    assert!(send(&tls, Method::GET, &url, &[], "").await.is_err());
}

#[tokio::test]
async fn a_front_with_a_foreign_certificate_is_not_trusted() {
    let cluster = shared().await;
    let foreign = crate::cluster::pki::Authority::new("foreign").unwrap();
    let front = WebhookProxy::start(&foreign.server(&[]).unwrap(), &addresses(cluster));
    let url = format!("{}/version", front.url());
    let trusted = Tls::trusting(&foreign.der()).unwrap();
    assert_eq!(
        send(&trusted, Method::GET, &url, &[], "")
            .await
            .unwrap()
            .status,
        200
    );
    let other = Tls::trusting(&cluster.authority().der()).unwrap();
    assert!(send(&other, Method::GET, &url, &[], "").await.is_err());
}

#[tokio::test]
async fn an_api_server_trusts_the_front_and_its_review_is_seen_there() {
    let cluster = shared().await;
    let namespace = cluster.namespace("reviewed", &[]).await;
    let front = WebhookProxy::start(&cluster.authority().server(&[]).unwrap(), &[]);
    let name = format!("front-{namespace}.example.com");
    let configuration: ValidatingWebhookConfiguration = serde_json::from_value(json!({
        "metadata": {"name": name},
        "webhooks": [{
            "name": name,
            "clientConfig": {"url": format!("{}/gate", front.url()), "caBundle": ByteString(cluster.authority().pem().into())},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }],
    }))
    .unwrap();
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(cluster.admin());
    configurations
        .create(&PostParams::default(), &configuration)
        .await
        .unwrap();

    // No replica stands behind it, so what comes is cut, and the API server must refuse.
    let maps: Api<ConfigMap> = Api::namespaced(cluster.admin(), &namespace);
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"generateName": "a-"}})).unwrap();
    let refused = async || maps.create(&PostParams::default(), &map).await.err();
    let error = eventually("the API server calls the front", PATIENCE, refused)
        .await
        .unwrap();
    assert!(error.to_string().contains(&name), "{error}");
    let seen = front.faults().seen();
    assert_eq!(
        (seen[0].method.as_str(), seen[0].path.as_str()),
        ("POST", "/gate")
    );
    let review: Value = serde_json::from_slice(&seen[0].body).unwrap();
    assert_eq!(review["kind"], "AdmissionReview");
    assert_eq!(review["request"]["namespace"], namespace);
    configurations
        .delete(&name, &DeleteParams::default())
        .await
        .unwrap();
}

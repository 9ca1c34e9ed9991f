//! What the controller keeps: exactly the declared identities are sent to the gate, it is proven through each API server, and what
//! somebody changes comes back.

mod forged;
mod found;
mod kept;
mod sent;

use std::time::Duration;

use hyper::body::Bytes;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

use crate::{
    cluster::{
        Cluster, User,
        http::{Answer, Tls, send},
        wait::eventually,
    },
    stack::Stack,
};

/// Rounds of the controller come by themselves every ten seconds, and several may be needed.
const PATIENCE: Duration = Duration::from_secs(120);

/// Somebody whom the administrator plays.
#[derive(Clone, Debug, Default)]
struct Played {
    user: String,
    groups: Vec<String>,
    extra: Vec<(String, String)>,
}

impl Played {
    fn named(user: &str) -> Self {
        Self {
            user: user.to_owned(),
            ..Self::default()
        }
    }

    fn in_groups(mut self, groups: impl IntoIterator<Item = String>) -> Self {
        self.groups.extend(groups);
        self
    }

    /// `key` as it stands in the header's name, percent-encoded where it must be.
    fn with_extra(mut self, key: &str, value: &str) -> Self {
        self.extra.push((key.to_owned(), value.to_owned()));
        self
    }

    async fn call(
        &self,
        cluster: &Cluster,
        server: usize,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Answer {
        let endpoint = cluster.endpoint(server);
        let bearer = format!("Bearer {}", User::admin().token().unwrap());
        let extra: Vec<(String, &str)> = self
            .extra
            .iter()
            .map(|(key, value)| (format!("impersonate-extra-{key}"), value.as_str()))
            .collect();
        let mut headers = vec![
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json"),
            ("impersonate-user", self.user.as_str()),
        ];
        headers.extend(
            self.groups
                .iter()
                .map(|group| ("impersonate-group", group.as_str())),
        );
        headers.extend(extra.iter().map(|(key, value)| (key.as_str(), *value)));
        let tls = Tls::trusting(&endpoint.authority_der).unwrap();
        let url = format!("{}{path}", endpoint.url);
        let body = Bytes::from(body.to_string());
        send(&tls, method.parse().unwrap(), &url, &headers, body)
            .await
            .unwrap()
    }

    /// Tries to create a ConfigMap through API server `server`.
    async fn writes(&self, cluster: &Cluster, server: usize, namespace: &str) -> Answer {
        let name = format!("tried-{}", cluster.next());
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        self.call(cluster, server, "POST", &path, &body).await
    }
}

/// A namespace in which everybody may edit: who is stopped there is stopped by the gate.
async fn open_namespace(cluster: &Cluster, prefix: &str) -> String {
    let namespace = cluster.namespace(prefix, &[]).await;
    let kubectl = cluster.kubectl(&User::admin());
    // ClusterRole `edit` is filled by a controller, which not every cluster here has.
    let role = "role everybody --verb=create --resource=configmaps";
    let binding = "rolebinding everybody --role=everybody --group=system:authenticated";
    for made in [role, binding] {
        let words = ["create"].into_iter().chain(made.split(' '));
        kubectl
            .run(words.chain(["-n", &namespace]))
            .await
            .expect_ok();
    }
    let nobody = Played::named("nobody@example.com");
    for server in 0..cluster.servers() {
        eventually("everybody may edit", PATIENCE, async || {
            let answer = nobody.writes(cluster, server, &namespace).await;
            (answer.status == 201).then_some(())
        })
        .await
        .unwrap();
    }
    namespace
}

/// An AgentIdentity without a surface list.
fn identity(name: &str, subjects: Value) -> Value {
    json!({
        "apiVersion": "grantgate.dev/v1alpha1",
        "kind": "AgentIdentity",
        "metadata": {"name": name},
        "spec": {"owner": {"group": "team-platform"}, "surface": "Policies", "subjects": subjects},
    })
}

fn validating(cluster: &Cluster) -> Api<ValidatingWebhookConfiguration> {
    Api::all(cluster.admin())
}

fn mutating(cluster: &Cluster) -> Api<MutatingWebhookConfiguration> {
    Api::all(cluster.admin())
}

/// The condition of an AgentIdentity as soon as `wanted` holds for its status and reason.
async fn wait_condition(stack: &Stack<'_>, name: &str, kind: &str, wanted: (&str, &str)) -> String {
    let api: Api<grantgate::api::AgentIdentity> = Api::all(stack.cluster.admin());
    let what = format!("{name}: {kind} is {wanted:?}");
    eventually(&what, PATIENCE, async || {
        let conditions = api.get(name).await.ok()?.status?.conditions;
        let found = conditions.into_iter().find(|known| known.type_ == kind)?;
        (found.status == wanted.0 && found.reason == wanted.1).then_some(found.message)
    })
    .await
    .unwrap()
}

/// Applies many objects at once.
async fn apply_all(stack: &Stack<'_>, objects: &[Value]) {
    let text: Vec<String> = objects.iter().map(Value::to_string).collect();
    let kubectl = stack.cluster.kubectl(&User::admin());
    kubectl
        .run_with_input(["apply", "--server-side", "-f", "-"], &text.join("\n---\n"))
        .await
        .expect_ok();
}

#[tokio::test]
async fn the_api_server_refuses_conditions_that_are_longer_than_ours() {
    let cluster = Cluster::start(crate::cluster::Options::default()).await;
    let api = validating(&cluster);
    let with = |name: &str, length: usize| {
        let reach = grantgate::control::configuration::Reach::Url("https://127.0.0.1:1".to_owned());
        let entries = grantgate::decide::gate_entries::entries(&[], &Default::default(), "canary");
        let mut object = grantgate::control::configuration::gate(&entries, &reach, "");
        object.metadata.name = Some(name.to_owned());
        let webhook = &mut object.webhooks.as_mut().unwrap()[0];
        webhook.client_config.ca_bundle = None;
        let condition = &mut webhook.match_conditions.as_mut().unwrap()[0];
        let frame = "request.userInfo.username in ['']".len();
        condition.expression = format!(
            "request.userInfo.username in ['{}']",
            "x".repeat(length - frame)
        );
        assert_eq!(condition.expression.len(), length);
        object
    };
    let params = PostParams::default();
    let longest = grantgate::decide::gate_entries::MAX_CONDITION;
    api.create(&params, &with("fits", longest)).await.unwrap();
    let refused = api.create(&params, &with("too-long", 100_001)).await;
    assert!(
        matches!(&refused, Err(kube::Error::Api(status)) if status.code == 422),
        "{refused:?}"
    );
}

//! Roles to play in a cluster: clients, kubeconfigs, ServiceAccounts, namespaces and rights.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use hyper::body::Bytes;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleBinding};
use kube::api::{Api, PostParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::http::{Answer, Tls, send};
use super::wait::{PATIENCE, eventually};
use super::{Cluster, Endpoint, User};

/// These panic with the reason: a test that cannot set its stage has nothing to go on with.
impl Cluster {
    /// A client of `user` through the first API server, for the runtime that it is called on.
    pub fn client(&self, user: &User) -> Client {
        self.client_at(0, user)
    }

    /// A client of `user` through API server `number`.
    pub fn client_at(&self, number: usize, user: &User) -> Client {
        user.client(self.endpoint(number)).unwrap()
    }

    /// A client of the administrator.
    pub fn admin(&self) -> Client {
        self.client(&User::admin())
    }

    /// A kubeconfig file of `user` for the first API server.
    pub fn kubeconfig(&self, user: &User) -> PathBuf {
        self.kubeconfig_via(self.endpoint(0), user)
    }

    /// A kubeconfig file of `user` for any endpoint: another API server, or a proxy before one.
    pub fn kubeconfig_via(&self, endpoint: &Endpoint, user: &User) -> PathBuf {
        let name: String = user
            .name
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || c == '.' {
                    c
                } else {
                    '-'
                }
            })
            .collect();
        let path = self
            .dir()
            .join(format!("{name}-{}.kubeconfig", self.next()));
        fs::write(&path, user.kubeconfig(endpoint)).unwrap();
        path
    }

    /// A user that the API server knows by a client certificate: any name, at most one group, no restart needed.
    pub fn certificate_user(&self, name: &str, group: Option<&str>) -> User {
        User::by_certificate(name, group, self.authority().client(name, group).unwrap())
    }

    /// A ServiceAccount, made when absent, with a fresh token (and so with a `credential-id` of its own).
    pub async fn service_account(&self, namespace: &str, name: &str) -> User {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin(), namespace);
        ensure(&accounts, json!({"metadata": {"name": name}})).await;
        // A day: what the demonstration starts must outlast the usual hour.
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(24 * 60 * 60),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let made = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await;
        let token = made
            .unwrap()
            .status
            .context("a token request without a token")
            .unwrap()
            .token;
        User::service_account(namespace, name, token)
    }

    /// A namespace that no other test has: `PREFIX-NUMBER`.
    pub async fn namespace(&self, prefix: &str, labels: &[(&str, &str)]) -> String {
        let name = format!("{prefix}-{}", self.next());
        let labels: serde_json::Map<String, Value> = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect();
        ensure(
            &Api::<Namespace>::all(self.admin()),
            json!({"metadata": {"name": name, "labels": labels}}),
        )
        .await;
        name
    }

    /// Lets `user` do what a ClusterRole says, in one namespace or (`None`) everywhere; returns when every API server knows.
    pub async fn bind(&self, user: &User, role: &str, namespace: Option<&str>) {
        let body = json!({
            "metadata": {"name": format!("bed-{}", self.next())},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user.name}],
        });
        match namespace {
            Some(namespace) => {
                ensure(
                    &Api::<RoleBinding>::namespaced(self.admin(), namespace),
                    body,
                )
                .await
            }
            None => ensure(&Api::<ClusterRoleBinding>::all(self.admin()), body).await,
        }
        let role = Api::<ClusterRole>::all(self.admin())
            .get(role)
            .await
            .unwrap();
        for rule in role.rules.iter().flatten() {
            self.wait_for_right(user, rule, namespace).await;
        }
    }

    /// As [`Cluster::bind`], with rules instead of a role: `json!([{"apiGroups": ["apps"], "resources": …, "verbs": …}])`.
    pub async fn allow(&self, user: &User, namespace: Option<&str>, rules: Value) {
        let name = format!("bed-{}", self.next());
        ensure(
            &Api::<ClusterRole>::all(self.admin()),
            json!({"metadata": {"name": name}, "rules": rules}),
        )
        .await;
        self.bind(user, &name, namespace).await;
    }

    /// One request as the user sends it, with nothing in between: `path` with its query, any bytes as body.
    pub async fn raw(
        &self,
        user: &User,
        method: &str,
        path: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> Answer {
        self.try_raw(0, user, method, path, content_type, body)
            .await
            .unwrap()
    }

    /// As [`Cluster::raw`], of API server `number`; an error when no answer came.
    pub async fn try_raw(
        &self,
        number: usize,
        user: &User,
        method: &str,
        path: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> Result<Answer> {
        let endpoint = self.endpoint(number);
        let tls = match user.certificate() {
            Some(pair) => Tls::showing(&endpoint.authority_der, pair)?,
            None => Tls::trusting(&endpoint.authority_der)?,
        };
        let bearer = user.token().map(|token| format!("Bearer {token}"));
        let mut headers = vec![
            ("content-type", content_type),
            ("accept", "application/json"),
        ];
        headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
        send(
            &tls,
            method.parse()?,
            &format!("{}{path}", endpoint.url),
            &headers,
            body,
        )
        .await
    }

    /// API servers learn rights from a watch; until then they refuse what has been granted.
    async fn wait_for_right(&self, user: &User, rule: &PolicyRule, namespace: Option<&str>) {
        let first =
            |list: &Option<Vec<String>>| list.as_ref().and_then(|list| list.first().cloned());
        let (Some(resource), Some(verb)) = (first(&rule.resources), rule.verbs.first()) else {
            return;
        };
        let (resource, subresource) = resource.split_once('/').unwrap_or((&resource, ""));
        let review: SubjectAccessReview = serde_json::from_value(json!({"metadata": {}, "spec": {
            "user": user.name,
            "groups": user.groups,
            "resourceAttributes": {
                "namespace": namespace, "verb": verb, "group": first(&rule.api_groups), "resource": resource,
                "subresource": subresource, "name": first(&rule.resource_names),
            },
        }}))
        .unwrap();
        for number in 0..self.servers() {
            let reviews: Api<SubjectAccessReview> =
                Api::all(self.client_at(number, &User::admin()));
            let what = format!(
                "{} may {verb} {resource} through API server {number}",
                user.name
            );
            let allowed = async || {
                let answer = reviews.create(&PostParams::default(), &review).await.ok()?;
                answer.status?.allowed.then_some(())
            };
            eventually(&what, PATIENCE, allowed).await.unwrap();
        }
    }
}

/// Creates an object; one that is there already will do.
async fn ensure<K>(api: &Api<K>, object: Value)
where
    K: Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    match api
        .create(
            &PostParams::default(),
            &serde_json::from_value(object).unwrap(),
        )
        .await
    {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
        Err(error) => panic!("cannot create: {error}"),
    }
}

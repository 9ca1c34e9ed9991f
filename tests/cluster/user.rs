//! Who calls: users known by token, by certificate, or as a ServiceAccount; and how they say so.

use anyhow::Result;
use kube::config::AuthInfo;
use kube::{Client, Config};
use serde_json::{Value, json};

use super::pki::Certificate;

/// Someone the API server knows.
#[derive(Debug, Clone)]
pub struct User {
    /// The name in `userInfo.username`.
    pub name: String,
    /// The groups given to it (the API server adds `system:authenticated`).
    pub groups: Vec<String>,
    credential: Credential,
}

/// What it shows to the API server.
#[derive(Debug, Clone)]
enum Credential {
    /// A bearer token: from the token file, or a ServiceAccount's.
    Token(String),
    /// A client certificate. Works only where TLS ends at the API server itself, so not through a proxy.
    Certificate(Certificate),
}

/// Where an API server, or a proxy before one, is reached.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// `https://127.0.0.1:PORT`.
    pub url: String,
    /// The authority that signed its certificate, as PEM.
    pub authority_pem: String,
    /// The same as DER.
    pub authority_der: Vec<u8>,
}

impl User {
    /// `system:masters`: RBAC does not bind it, admission does.
    pub fn admin() -> User {
        User::by_token("admin", &["system:masters"])
    }

    /// An approver, in the group `sre-oncall`.
    pub fn ana() -> User {
        User::by_token("ana@example.com", &["sre-oncall"])
    }

    /// An approver by name, in no group.
    pub fn ben() -> User {
        User::by_token("ben@example.com", &[])
    }

    /// To whom things escalate, in the group `sre-leads`.
    pub fn cleo() -> User {
        User::by_token("cleo@example.com", &["sre-leads"])
    }

    /// A person with no part in anything.
    pub fn dan() -> User {
        User::by_token("dan@example.com", &[])
    }

    /// An agent known by its user name alone.
    pub fn ops_bot() -> User {
        User::by_token("oidc:ops-bot", &[])
    }

    /// An agent known by its group, `ai-agents`.
    pub fn dev_bot() -> User {
        User::by_token("oidc:dev-bot", &["ai-agents"])
    }

    /// Everyone that each cluster's token file holds.
    pub fn everyone() -> Vec<User> {
        vec![
            User::admin(),
            User::ana(),
            User::ben(),
            User::cleo(),
            User::dan(),
            User::ops_bot(),
            User::dev_bot(),
        ]
    }

    /// A user for the token file: known to the clusters that are started with it. Several groups are possible only here.
    pub fn by_token(name: &str, groups: &[&str]) -> User {
        let token = format!("token-of-{}", name.replace(['@', ':'], "-"));
        User {
            name: name.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            credential: Credential::Token(token),
        }
    }

    pub(super) fn by_certificate(
        name: &str,
        group: Option<&str>,
        certificate: Certificate,
    ) -> User {
        User {
            name: name.to_owned(),
            groups: group.into_iter().map(str::to_owned).collect(),
            credential: Credential::Certificate(certificate),
        }
    }

    pub(super) fn service_account(namespace: &str, name: &str, token: String) -> User {
        User {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
            ],
            credential: Credential::Token(token),
        }
    }

    /// Its bearer token; users with a certificate have none.
    pub fn token(&self) -> Option<&str> {
        match &self.credential {
            Credential::Token(token) => Some(token),
            Credential::Certificate(_) => None,
        }
    }

    /// Its client certificate, if it has one.
    pub fn certificate(&self) -> Option<&Certificate> {
        match &self.credential {
            Credential::Token(_) => None,
            Credential::Certificate(certificate) => Some(certificate),
        }
    }

    /// A row of the token file. The uid is a function of the name, so it is the same after a restart.
    pub(super) fn token_row(&self) -> Option<String> {
        // An empty column would be one group with an empty name.
        let groups = match self.groups.as_slice() {
            [] => String::new(),
            groups => format!(",\"{}\"", groups.join(",")),
        };
        self.token()
            .map(|token| format!("{token},{name},uid-of-{name}{groups}\n", name = self.name))
    }

    /// A client of its own for this runtime, without kube's repeats: a test must see the first answer.
    pub fn client(&self, at: &Endpoint) -> Result<Client> {
        let mut config = Config::new(at.url.parse()?);
        config.root_cert = Some(vec![at.authority_der.clone()]);
        config.auth_info = serde_json::from_value::<AuthInfo>(self.auth_info())?;
        config.default_retry = false;
        Ok(Client::try_from(config)?)
    }

    /// The text of a kubeconfig with this one context.
    pub fn kubeconfig(&self, at: &Endpoint) -> String {
        let config: Value = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{
                "name": "cluster",
                "cluster": {"server": at.url, "certificate-authority-data": base64(&at.authority_pem)},
            }],
            "users": [{"name": self.name, "user": self.auth_info()}],
            "contexts": [{"name": "context", "context": {"cluster": "cluster", "user": self.name}}],
            "current-context": "context",
        });
        // JSON is YAML.
        format!("{config:#}\n")
    }

    /// The user's entry as kubeconfig files have it.
    fn auth_info(&self) -> Value {
        match &self.credential {
            Credential::Token(token) => json!({"token": token}),
            Credential::Certificate(pair) => json!({
                "client-certificate-data": base64(&pair.certificate),
                "client-key-data": base64(&pair.key),
            }),
        }
    }
}

/// Standard base64, by way of the type that Kubernetes' own objects use.
fn base64(text: &str) -> Value {
    json!(k8s_openapi::ByteString(text.as_bytes().to_vec()))
}

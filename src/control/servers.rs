//! The API servers of the cluster, each addressed by itself: what one of them enforces says nothing about another.
//!
//! Those that stand behind Service `kubernetes` are found by its EndpointSlices, unless they are given. Where that cannot be read, or none
//! of them can be reached from here, the one of the kubeconfig is what is known.

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client, Config,
    api::{ListParams, PostParams},
    config::AuthInfo,
};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::cluster::{
    client::{self, CallError, ConnectError, within},
    clock::Clock,
};

/// Life of the canary's token: the shortest that API servers give.
const TOKEN_SECONDS: i64 = 600;
/// A token is replaced after so long.
const TOKEN_USED_FOR: Duration = Duration::from_secs(300);
const LIMIT: Duration = Duration::from_secs(10);
/// How long an address may take to show that somebody is there.
const REACH: Duration = Duration::from_secs(3);
/// Addresses that are tried at most; as many as a status can show.
const MOST: usize = 32;

/// One API server.
#[derive(Clone)]
pub struct Server {
    /// Its URL, as shown in status.
    pub url: String,
    /// A client with the controller's own account.
    pub own: Client,
    config: Config,
}

/// All that are known, and the canary's token.
pub struct Servers {
    known: RwLock<Arc<Vec<Server>>>,
    config: Config,
    given: bool,
    clock: Arc<Clock>,
    token: Mutex<Option<(String, Instant)>>,
}

/// Why no call can be made as the canary.
#[derive(Debug, thiserror::Error)]
pub enum CanaryError {
    /// No token was given.
    #[error("no token for the canary's account: {0}")]
    Token(#[from] CallError),
    /// The API server answered without a token.
    #[error("the API server answered a token request without a token")]
    NoToken,
    /// No client could be made.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

impl Servers {
    /// Those at `urls`, trusted and authenticated to as in `config`; none given: the one of `config` until others are found.
    pub fn new(
        config: &Config,
        urls: &[http::Uri],
        clock: Arc<Clock>,
    ) -> Result<Self, ConnectError> {
        let servers = Self {
            known: RwLock::default(),
            config: config.clone(),
            given: !urls.is_empty(),
            clock,
            token: Mutex::default(),
        };
        let urls = match urls {
            [] => std::slice::from_ref(&config.cluster_url),
            given => given,
        };
        let all = urls.iter().map(|url| servers.at(url));
        let all = all.collect::<Result<_, _>>()?;
        servers.set(all);
        Ok(servers)
    }

    /// Those that are known, in the order given or of their addresses.
    pub fn all(&self) -> Arc<Vec<Server>> {
        self.known
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, servers: Vec<Server>) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(servers);
    }

    fn at(&self, url: &http::Uri) -> Result<Server, ConnectError> {
        let mut config = self.config.clone();
        config.cluster_url = url.clone();
        if *url != self.config.cluster_url && !self.given {
            // A certificate names the Service for certain, and the address of one server perhaps.
            let known = self.config.cluster_url.host();
            let known = known.map(|host| host.trim_matches(['[', ']']).to_owned());
            config.tls_server_name = config.tls_server_name.or(known);
        }
        Ok(Server {
            url: url.to_string().trim_end_matches('/').to_owned(),
            own: client::connect(config.clone(), self.clock.clone())?,
            config,
        })
    }

    /// Looks for API servers again, unless they were given. Whether they are others now.
    pub async fn look(&self, client: &Client) -> bool {
        if self.given {
            return false;
        }
        let before = self.all();
        let found = self.found(client, &before).await;
        let urls = |servers: &[Server]| -> Vec<String> {
            servers.iter().map(|server| server.url.clone()).collect()
        };
        if urls(&found) == urls(&before) {
            return false;
        }
        tracing::info!(servers = ?urls(&found), "API servers to prove the gate through");
        self.set(found);
        true
    }

    async fn found(&self, client: &Client, before: &[Server]) -> Vec<Server> {
        let own = || self.at(&self.config.cluster_url).into_iter().collect();
        let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
        let of_kubernetes = ListParams::default().labels("kubernetes.io/service-name=kubernetes");
        let listed = match within(LIMIT, slices.list(&of_kubernetes)).await {
            Ok(listed) => addresses(&listed.items),
            Err(error) => {
                tracing::warn!(%error, "the API servers' addresses cannot be read");
                // One failed call says nothing about what was found.
                return before.to_vec();
            }
        };
        let mut servers = Vec::new();
        let mut fresh = false;
        for url in listed.into_iter().take(MOST) {
            let known = before.iter().find(|server| server.url == url);
            let made = match known {
                Some(known) => Some(known.clone()),
                None => url.parse().ok().and_then(|url| self.at(&url).ok()),
            };
            fresh |= known.is_none();
            servers.extend(made);
        }
        if servers.is_empty() {
            return own();
        }
        if fresh {
            let reached = servers.iter().map(|server| reaches(&server.own));
            let reached = futures::future::join_all(reached).await;
            if !reached.contains(&true) {
                return own();
            }
        }
        servers
    }

    /// A client of one server as the account `name` in `namespace`.
    pub async fn as_canary(
        &self,
        server: &Server,
        namespace: &str,
        name: &str,
    ) -> Result<Client, CanaryError> {
        let token = self.token(&server.own, namespace, name).await?;
        let mut config = server.config.clone();
        config.auth_info = AuthInfo {
            token: Some(token.into()),
            ..AuthInfo::default()
        };
        Ok(client::connect(config, self.clock.clone())?)
    }

    async fn token(
        &self,
        client: &Client,
        namespace: &str,
        name: &str,
    ) -> Result<String, CanaryError> {
        let now = Instant::now();
        let mut known = self.token.lock().await;
        if let Some((token, made)) = known.as_ref()
            && now.duration_since(*made) < TOKEN_USED_FOR
        {
            return Ok(token.clone());
        }
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(TOKEN_SECONDS),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let api: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
        let made = within(
            LIMIT,
            api.create_token_request(name, &PostParams::default(), &request),
        )
        .await?;
        let token = made
            .status
            .map(|status| status.token)
            .ok_or(CanaryError::NoToken)?;
        *known = Some((token.clone(), now));
        Ok(token)
    }

    /// Forgets the token: it was refused.
    pub async fn forget_token(&self) {
        *self.token.lock().await = None;
    }
}

/// Whether somebody who is trusted answers, whatever it is.
async fn reaches(client: &Client) -> bool {
    match within(REACH, client.apiserver_version()).await {
        Ok(_) | Err(CallError::Api(kube::Error::Api(_))) => true,
        Err(error) => {
            tracing::debug!(%error, "an API server's address cannot be reached");
            false
        }
    }
}

/// The URLs that slices name, in order.
fn addresses(slices: &[EndpointSlice]) -> BTreeSet<String> {
    let mut urls = BTreeSet::new();
    for slice in slices {
        let ports = slice.ports.iter().flatten();
        let https = ports.filter(|port| port.name.as_deref() == Some("https"));
        for port in https.filter_map(|port| port.port) {
            for endpoint in &slice.endpoints {
                let conditions = endpoint.conditions.as_ref();
                if conditions.and_then(|conditions| conditions.ready) == Some(false) {
                    continue;
                }
                for address in &endpoint.addresses {
                    urls.insert(match slice.address_type.as_str() {
                        "IPv6" => format!("https://[{address}]:{port}"),
                        _ => format!("https://{address}:{port}"),
                    });
                }
            }
        }
    }
    urls
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn every_ready_address_of_service_kubernetes_is_a_server() {
        let slice =
            |value: serde_json::Value| -> EndpointSlice { serde_json::from_value(value).unwrap() };
        let both = [
            slice(json!({
                "metadata": {"name": "kubernetes"}, "addressType": "IPv4",
                "endpoints": [
                    {"addresses": ["10.0.0.2"]},
                    {"addresses": ["10.0.0.1"], "conditions": {"ready": true}},
                    {"addresses": ["10.0.0.3"], "conditions": {"ready": false}},
                ],
                "ports": [{"name": "https", "port": 6443}, {"name": "metrics", "port": 9}],
            })),
            slice(json!({
                "metadata": {"name": "kubernetes-6"}, "addressType": "IPv6",
                "endpoints": [{"addresses": ["fd00::1"]}], "ports": [{"name": "https", "port": 6443}],
            })),
        ];
        let urls: Vec<String> = addresses(&both).into_iter().collect();
        assert_eq!(
            urls,
            [
                "https://10.0.0.1:6443",
                "https://10.0.0.2:6443",
                "https://[fd00::1]:6443"
            ]
        );
        assert!(addresses(&[]).is_empty());
    }
}

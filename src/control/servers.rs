//! The API servers of the cluster, each addressed by itself: what one of them enforces says nothing about another.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client, Config, api::PostParams, config::AuthInfo};
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
    /// In the order given.
    pub servers: Vec<Server>,
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
    /// Those at `urls`, trusted and authenticated to as in `config`; none given: the one of `config`.
    pub fn new(
        config: &Config,
        urls: &[http::Uri],
        clock: Arc<Clock>,
    ) -> Result<Self, ConnectError> {
        let urls = match urls {
            [] => std::slice::from_ref(&config.cluster_url),
            given => given,
        };
        let servers = urls.iter().map(|url| {
            let mut config = config.clone();
            config.cluster_url = url.clone();
            Ok(Server {
                url: url.to_string().trim_end_matches('/').to_owned(),
                own: client::connect(config.clone(), clock.clone())?,
                config,
            })
        });
        Ok(Self {
            servers: servers.collect::<Result<_, ConnectError>>()?,
            clock,
            token: Mutex::default(),
        })
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

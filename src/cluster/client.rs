//! The API server's client: no silent retries, a deadline on each call, and the server's clock observed.

use std::{sync::Arc, time::Duration};

use kube::{Client, Config, client::ClientBuilder, config::KubeConfigOptions};

use super::clock::{Clock, ObserveDate};

/// How long one call may take.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the API server is and how to reach it.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ConnectOptions {
    /// Kubeconfig file; without it KUBECONFIG, the default file, or the pod's own account.
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<std::path::PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// Why no client could be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be read.
    #[error("cannot read the kubeconfig: {0}")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// Neither a kubeconfig nor a pod's account is there.
    #[error("cannot tell how to reach the API server: {0}")]
    Infer(#[from] kube::config::InferConfigError),
    /// The configuration does not make a client.
    #[error("cannot make a client: {0}")]
    Client(#[from] kube::Error),
}

impl ConnectOptions {
    /// The configuration, with the library's own retries off: it repeats writes, and a landed write would come back as a conflict.
    pub async fn config(&self) -> Result<Config, ConnectError> {
        let mut config = match &self.kubeconfig {
            Some(path) => {
                let kubeconfig = kube::config::Kubeconfig::read_from(path)?;
                let options = KubeConfigOptions {
                    context: self.context.clone(),
                    ..KubeConfigOptions::default()
                };
                Config::from_custom_kubeconfig(kubeconfig, &options).await?
            }
            None => Config::infer().await?,
        };
        config.default_retry = false;
        config.connect_timeout = Some(Duration::from_secs(5));
        // Watches end after 10 s by themselves; nothing else may hang longer.
        config.read_timeout = Some(Duration::from_secs(20));
        config.write_timeout = Some(Duration::from_secs(10));
        Ok(config)
    }
}

/// A client that shows the answers' times to a clock.
pub fn connect(config: Config, clock: Arc<Clock>) -> Result<Client, ConnectError> {
    Ok(ClientBuilder::try_from(config)?
        .with_layer(&ObserveDate(clock))
        .build())
}

/// A call that took too long, or the error it came to.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No answer in time: whether it had an effect is not known.
    #[error("no answer of the API server within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// An answer that is an error, or no answer.
    #[error("{0}")]
    Api(#[from] kube::Error),
}

impl CallError {
    /// The compare-and-swap lost.
    pub fn is_conflict(&self) -> bool {
        self.status()
            .is_some_and(|status| status.code == 409 && status.reason != "AlreadyExists")
    }

    /// A name that is taken.
    pub fn is_already_exists(&self) -> bool {
        self.status()
            .is_some_and(|status| status.code == 409 && status.reason == "AlreadyExists")
    }

    /// Nothing of that name.
    pub fn is_not_found(&self) -> bool {
        self.status().is_some_and(|status| status.code == 404)
    }

    /// The server said no and did nothing: any answer below 500 but a time-out.
    pub fn is_definite(&self) -> bool {
        self.status()
            .is_some_and(|status| status.code < 500 && status.code != 408 && status.code != 429)
    }

    fn status(&self) -> Option<&kube::core::Status> {
        match self {
            Self::Api(kube::Error::Api(status)) => Some(status),
            _ => None,
        }
    }
}

/// Bounds one call.
pub async fn within<T>(
    limit: Duration,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(CallError::TimedOut(limit)),
    }
}

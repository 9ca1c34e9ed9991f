//! `grantgate controller`: one replica of the controller. All replicas watch; the one that leads works.

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context as _, bail};
use clap::Args;
use grantgate::{
    cluster::{
        background,
        client::{self, ConnectOptions},
        clock::Clock,
        lease,
        view::View,
    },
    control::{
        Context, certificate, configuration::Reach, installation, records, servers::Servers,
    },
    decide::redact::Redactor,
    manifests::NAMESPACE,
    serve::{self, Metrics, Readiness},
};
use tokio::task::JoinSet;

use super::webhook::told_to_stop;

/// Lease of the replica that leads.
const LEASE: &str = "grantgate-controller";

/// Arguments of `grantgate controller`.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    connect: ConnectOptions,
    /// Namespace of the installation.
    #[arg(long, env = "GRANTGATE_NAMESPACE", default_value = NAMESPACE, value_name = "NAME")]
    namespace: String,
    /// Base URL of a webhook outside of the cluster, e.g. https://127.0.0.1:9443; without it Service grantgate-webhook is called.
    #[arg(long, value_name = "URL", value_parser = base_url)]
    webhook_url: Option<http::Uri>,
    /// An API server through which the gate is proven; may be given several times. Without it those behind Service kubernetes, as far as
    /// they are reached, else the kubeconfig's.
    #[arg(long = "api-server", value_name = "URL", value_parser = base_url)]
    api_servers: Vec<http::Uri>,
    /// Where probes and metrics are answered without TLS.
    #[arg(long, value_name = "ADDRESS")]
    probe_bind: Option<SocketAddr>,
    /// Name of this replica; the pod's name in a cluster.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    identity: Option<String>,
}

/// `https://HOST[:PORT]`: API servers and webhooks are reached by TLS only, and paths are ours.
fn base_url(text: &str) -> anyhow::Result<http::Uri> {
    let url: http::Uri = text.parse()?;
    if url.scheme_str() != Some("https") || url.host().is_none_or(str::is_empty) {
        bail!("give it as https://HOST:PORT");
    }
    if !matches!(url.path(), "" | "/") || url.query().is_some() {
        bail!("give it without a path: it is added");
    }
    Ok(url)
}

/// Works until SIGTERM or SIGINT.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(control(arguments))
}

async fn control(arguments: Arguments) -> anyhow::Result<()> {
    let clock = Arc::new(Clock::default());
    let config = arguments.connect.config().await?;
    let servers = Arc::new(Servers::new(
        &config,
        &arguments.api_servers,
        clock.clone(),
    )?);
    let client = client::connect(config, clock.clone())?;
    let replica = arguments
        .identity
        .clone()
        .unwrap_or_else(|| format!("local-{}", std::process::id()));

    let view = View::new(&arguments.namespace, Redactor::unset(), clock.clone());
    let mut background = view.start(&client);
    let readiness = Readiness::new();
    let metrics = Arc::new(Metrics::new());
    let fresh = view.clone();
    readiness.judged("view", move || {
        fresh.ready().map(|_| ()).map_err(|error| error.to_string())
    });
    let aged = view.clone();
    metrics.read_snapshot_age_from(move || Some(aged.age()));
    if let Some(address) = arguments.probe_bind {
        let (_, probes) = serve::probes(address, readiness, metrics.clone()).await?;
        background.spawn(probes);
    }

    let context = Arc::new(Context {
        client: client.clone(),
        view,
        namespace: arguments.namespace.as_str().into(),
        replica: replica.as_str().into(),
        guard_since: Default::default(),
        unkept: Default::default(),
        metrics,
    });
    tracing::info!(replica, namespace = arguments.namespace, "starting");
    let able = context.clone();
    let (mut leads, lease) =
        lease::run_for_leader(&client, &arguments.namespace, LEASE, &replica, move || {
            able.fit()
        });
    let mut work = JoinSet::new();
    let stop = told_to_stop();
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            changed = leads.changed() => {
                if changed.is_err() {
                    bail!("the task that renews the Lease has ended");
                }
                // Whatever was half done is planned anew by whoever leads next.
                work.shutdown().await;
                context.unkept.set(None);
                if *leads.borrow_and_update() {
                    tracing::info!(replica, "leads");
                    start(&mut work, &context, &arguments, &servers);
                } else {
                    tracing::info!(replica, "does not lead");
                }
            }
            // Nothing that works ends by itself: another replica, or this one started again, does better than half the work.
            words = background::first_to_end(&mut work), if !work.is_empty() => {
                bail!("a part of the controller has ended: {words}");
            }
            words = background::first_to_end(&mut background) => {
                bail!("a part of the controller has ended: {words}");
            }
        }
    }
    tracing::info!(replica, "told to stop");
    work.shutdown().await;
    drop(leads);
    lease.await.context("the Lease was not given back")?;
    Ok(())
}

/// Starts all that the leader does. Each part runs until it is aborted.
fn start(
    work: &mut JoinSet<()>,
    context: &Arc<Context>,
    arguments: &Arguments,
    servers: &Arc<Servers>,
) {
    let reach = match &arguments.webhook_url {
        Some(url) => Reach::Url(url.to_string()),
        None => Reach::Service {
            namespace: arguments.namespace.clone(),
        },
    };
    let settings = installation::Settings {
        reach,
        names: certificate::names(&arguments.namespace, arguments.webhook_url.as_ref()),
        servers: servers.clone(),
    };
    work.spawn(installation::run(context.clone(), settings));
    work.spawn(records::run(context.clone()));
}

#[cfg(test)]
mod tests {
    use super::base_url;

    #[test]
    fn a_base_url_is_https_and_has_no_path() {
        for good in [
            "https://127.0.0.1:9443",
            "https://webhook.example.com/",
            "https://[::1]:1",
        ] {
            assert!(base_url(good).is_ok(), "{good}");
        }
        for bad in [
            "http://127.0.0.1",
            "https://h/gate",
            "https://h/?a",
            "127.0.0.1:1",
            "/x",
        ] {
            assert!(base_url(bad).is_err(), "{bad}");
        }
    }
}

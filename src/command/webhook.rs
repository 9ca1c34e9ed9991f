//! `grantgate webhook`: one replica of the gate, the guard and the stamp.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::{Context, bail};
use clap::Args;
use grantgate::{
    cluster::{
        background,
        client::{self, ConnectOptions},
        clock::Clock,
        lease::Heartbeat,
        ledger::Ledger,
        secrets,
        view::View,
    },
    decide::redact::Redactor,
    manifests::NAMESPACE,
    serve::{
        self, Limits, Material, Metrics, Readiness, ServeOptions, TlsSource, admission::Admission,
        gate::Gate, guard::Guard,
    },
};
use tokio::{sync::watch, task::JoinSet};
use tokio_util::task::TaskTracker;

/// Arguments of `grantgate webhook`.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    connect: ConnectOptions,
    /// Namespace of the installation.
    #[arg(long, env = "GRANTGATE_NAMESPACE", default_value = NAMESPACE, value_name = "NAME")]
    namespace: String,
    /// Where the API server's calls are answered; port 0 takes a free one.
    #[arg(long, default_value = "0.0.0.0:9443", value_name = "ADDRESS")]
    bind: SocketAddr,
    /// Where probes and metrics are answered without TLS.
    #[arg(long, value_name = "ADDRESS")]
    probe_bind: Option<SocketAddr>,
    /// A file that gets the bound addresses, one a line.
    #[arg(long, value_name = "FILE")]
    addr_file: Option<PathBuf>,
    /// Certificate chain (PEM) instead of the one in Secret grantgate-serving-cert; read again when it changes.
    #[arg(long, requires = "tls_key", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Private key (PEM) of `--tls-cert`.
    #[arg(long, requires = "tls_cert", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Name of this replica; the pod's name in a cluster.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    identity: Option<String>,
    /// Seconds to serve on, not ready, after being told to stop.
    #[arg(long, default_value_t = 5, value_name = "SECONDS")]
    linger: u64,
}

/// Serves until SIGTERM or SIGINT.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(serve(arguments))
}

async fn serve(arguments: Arguments) -> anyhow::Result<()> {
    let clock = Arc::new(Clock::default());
    let config = arguments.connect.config().await?;
    let client = client::connect(config, clock.clone())?;
    let identity = arguments
        .identity
        .clone()
        .unwrap_or_else(|| format!("local-{}", std::process::id()));

    let view = View::new(&arguments.namespace, Redactor::unset(), clock.clone());
    let mut background = JoinSet::new();
    let readiness = Readiness::new();
    let metrics = Arc::new(Metrics::new());

    let (material, certificate) = watch::channel(None);
    background.spawn(follow_secrets(
        client.clone(),
        arguments.namespace.clone(),
        view.clone(),
        readiness.clone(),
        arguments.tls_cert.is_none().then_some(material),
    ));
    let reached = view.clone();
    let (heartbeat, mut beating) = Heartbeat::start(
        &client,
        &arguments.namespace,
        format!("grantgate-webhook-{identity}"),
        move || reached.reached(),
    );

    let (viewed, watched, announced) = (view.clone(), client.clone(), heartbeat.clone());
    background.spawn(async move {
        announced.announced().await;
        let ended = background::first_to_end(&mut viewed.start(&watched)).await;
        tracing::error!(ended, "a watch ended");
    });

    let fresh = view.clone();
    readiness.judged("view", move || {
        fresh.ready().map(|_| ()).map_err(|error| error.to_string())
    });
    let beat = heartbeat.clone();
    readiness.judged("lease", move || beat.holds());
    let aged = view.clone();
    metrics.read_snapshot_age_from(move || Some(aged.age()));

    let ledger = Ledger {
        client: client.clone(),
        index: view.index.clone(),
        replica: identity.as_str().into(),
    };
    let keyed = readiness.clone();
    let alive = Arc::new(move || {
        heartbeat.holds()?;
        match keyed
            .report()
            .missing()
            .into_iter()
            .find(|missing| missing.name == FINGERPRINT_KEY)
        {
            Some(missing) => Err(missing.reason),
            None => Ok(()),
        }
    });
    let admission = Arc::new(Admission {
        gate: Gate::new(view.clone(), ledger.clone(), alive),
        guard: Guard {
            view: view.clone(),
            ledger,
        },
        metrics: metrics.clone(),
        tasks: TaskTracker::new(),
    });
    let options = ServeOptions {
        bind: arguments.bind,
        probe_bind: arguments.probe_bind,
        addr_file: arguments.addr_file,
        tls: match (arguments.tls_cert, arguments.tls_key) {
            (Some(cert), Some(key)) => TlsSource::Files {
                cert,
                key,
                every: Duration::from_secs(1),
            },
            _ => TlsSource::Secret(certificate),
        },
        limits: Limits {
            linger: Duration::from_secs(arguments.linger),
            ..Limits::default()
        },
    };
    tracing::info!(identity, namespace = arguments.namespace, "starting");
    let broken = OnceLock::new();
    let stop = async {
        // A replica whose watches or sign of life have ended can never be ready again: it ends, and is started anew.
        let words = tokio::select! {
            () = told_to_stop() => return,
            words = background::first_to_end(&mut background) => words,
            ended = &mut beating => background::how(ended),
        };
        tracing::error!(words, "a part of this replica has ended");
        let _ = broken.set(words);
    };
    let drained = serve::run(options, admission.clone(), readiness, metrics, stop).await?;
    admission.finish().await;
    tracing::info!(cut = drained.cut, "stopped");
    match broken.get() {
        Some(words) => bail!("a part of this replica has ended: {words}"),
        None => Ok(()),
    }
}

/// Name of the readiness condition on the fingerprint key: without it Secret values could not be compared.
const FINGERPRINT_KEY: &str = "fingerprint key";

/// Reads the installation's Secrets by name, again and again: its account may not watch Secrets.
async fn follow_secrets(
    client: kube::Client,
    namespace: String,
    view: Arc<View>,
    readiness: Readiness,
    material: Option<watch::Sender<Option<Material>>>,
) {
    readiness.missing(
        FINGERPRINT_KEY,
        format!("Secret {} was not read yet", secrets::FINGERPRINT),
    );
    let mut known_key = None;
    let mut ticks = tokio::time::interval(Duration::from_secs(2));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match secrets::read(&client, &namespace, secrets::FINGERPRINT).await {
            Ok(Some(secret)) if secret.data != known_key => match secrets::redactor(&secret) {
                Some(redactor) => {
                    view.set_redactor(redactor);
                    known_key = secret.data;
                    readiness.holds(FINGERPRINT_KEY);
                }
                None => readiness.missing(
                    FINGERPRINT_KEY,
                    format!("Secret {} cannot be used", secrets::FINGERPRINT),
                ),
            },
            Ok(Some(_)) => {}
            Ok(None) => readiness.missing(
                FINGERPRINT_KEY,
                format!("there is no Secret {} yet", secrets::FINGERPRINT),
            ),
            // The key that is known goes on serving.
            Err(error) => tracing::warn!(%error, "cannot read the fingerprint key"),
        }
        let Some(material) = &material else { continue };
        match secrets::read(&client, &namespace, secrets::SERVING).await {
            Ok(secret) => {
                let read = secret.as_ref().and_then(secrets::material);
                if read.is_some() {
                    material.send_if_modified(|known| {
                        let changed = *known != read;
                        *known = read;
                        changed
                    });
                }
            }
            Err(error) => tracing::warn!(%error, "cannot read the serving certificate"),
        }
    }
}

/// Resolves at SIGTERM or SIGINT.
pub async fn told_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut terminate), Ok(mut interrupt)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) else {
        // Without handlers the default action ends the process.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

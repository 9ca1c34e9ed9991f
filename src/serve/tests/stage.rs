//! A running server with admission logic that a test scripts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;

use super::super::certs::{Contents, Names, mint};
use super::super::*;
use super::peer::Peer;

pub(super) const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

pub(super) struct Scripted<F>(pub(super) F);

impl<F> Admit for Scripted<F>
where
    F: Fn(AdmissionPath, Arc<Body>, Budget) -> BoxFuture<'static, Answer> + Send + Sync + 'static,
{
    fn admit(
        self: Arc<Self>,
        path: AdmissionPath,
        body: Arc<Body>,
        budget: Budget,
    ) -> BoxFuture<'static, Answer> {
        (self.0)(path, body, budget)
    }
}

/// Answers with the endpoint and the number of bytes that came.
pub(super) fn echo() -> Arc<dyn Admit> {
    Arc::new(Scripted(
        |path: AdmissionPath, body: Arc<Body>, _| -> BoxFuture<'static, Answer> {
            Box::pin(async move {
                Answer::Review(format!(
                    r#"{{"path":"{}","bytes":{}}}"#,
                    path.word(),
                    body.len()
                ))
            })
        },
    ))
}

pub(super) struct Stage {
    pub(super) addrs: BoundAddrs,
    pub(super) bundle: String,
    pub(super) readiness: Readiness,
    pub(super) metrics: Arc<Metrics>,
    pub(super) certificates: Certificates,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Drained>,
}

pub(super) fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Limits under which nothing times out while a test runs, and a drain does not linger.
pub(super) fn limits() -> Limits {
    let long = Duration::from_secs(600);
    Limits {
        head: long,
        handshake: long,
        idle: long,
        drain: long,
        linger: Duration::ZERO,
        ..Limits::default()
    }
}

pub(super) fn certificate() -> Contents {
    let names = Names::of_service("grantgate-system").and_host("127.0.0.1");
    mint(
        &Contents::default(),
        &names,
        crate::cluster::clock::Clock::local(),
    )
    .unwrap()
}

impl Stage {
    /// A server with a certificate, ready.
    pub(super) async fn start(admit: Arc<dyn Admit>, limits: Limits) -> Self {
        let contents = certificate();
        let (_sender, receiver) = watch::channel(contents.serving());
        let mut stage = Self::start_with(admit, limits, TlsSource::Secret(receiver)).await;
        stage.bundle = contents.ca_bundle;
        let mut changes = stage.certificates.changes();
        changes.wait_for(|count| *count > 0).await.unwrap();
        stage
    }

    pub(super) async fn start_with(admit: Arc<dyn Admit>, limits: Limits, tls: TlsSource) -> Self {
        let options = ServeOptions {
            bind: loopback(),
            probe_bind: Some(loopback()),
            tls,
            addr_file: None,
            limits,
        };
        let (readiness, metrics) = (Readiness::new(), Arc::new(Metrics::new()));
        let server = Server::bind(options, admit, readiness.clone(), Arc::clone(&metrics))
            .await
            .unwrap();
        let (addrs, certificates) = (server.addrs(), server.certificates());
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(server.run(async {
            let _told_or_dropped = stopped.await;
        }));
        Self {
            addrs,
            bundle: String::new(),
            readiness,
            metrics,
            certificates,
            stop,
            running,
        }
    }

    pub(super) async fn peer(&self) -> Peer<TlsStream<TcpStream>> {
        Peer::tls(self.addrs.tls, &self.bundle, &["h2", "http/1.1"])
            .await
            .unwrap()
    }

    /// Tells the server to stop; the handle ends when it has drained.
    pub(super) fn stop(self) -> JoinHandle<Drained> {
        self.stop.send(()).unwrap();
        self.running
    }
}

pub(super) fn review(filler: usize) -> String {
    format!(
        r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"{UID}","object":"{}"}}}}"#,
        "x".repeat(filler)
    )
}

//! Two ways to put several webhook replicas behind one URL, as a Service does in a cluster.

use std::sync::Arc;

use anyhow::Result;
use tokio::net::{TcpListener, TcpStream};

use super::faults::{Faults, Switches};
use super::http::Tls;
use super::pki::Certificate;
use super::proxy::{Backends, Proxy, RUNTIME};

/// Ends TLS with a certificate of its own and spreads *requests*: round robin over the replicas that can be reached. Holds,
/// cuts, delays and counts reviews as its [`Faults`] say.
pub struct WebhookProxy {
    proxy: Proxy,
}

/// Passes bytes through and spreads *connections*: the API server meets the replica's own certificate.
pub struct Passthrough {
    port: u16,
    backends: Arc<Backends>,
    switches: tokio::sync::watch::Sender<Switches>,
}

impl WebhookProxy {
    /// In front of `backends` (`127.0.0.1:PORT`), with `certificate`: for instance `cluster.authority().server(&[])`.
    ///
    /// # Panics
    ///
    /// When it cannot listen or the certificate is none.
    pub fn start(certificate: &Certificate, backends: &[String]) -> WebhookProxy {
        // Which authority the replicas have is not what this tests: the API server's check of the front is.
        let backends = Backends::new(Tls::trusting_anyone().unwrap(), backends.to_vec());
        WebhookProxy {
            proxy: Proxy::start(certificate, backends).unwrap(),
        }
    }

    /// `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        self.proxy.url()
    }

    /// What it does to requests.
    pub fn faults(&self) -> &Arc<Faults> {
        self.proxy.faults()
    }

    /// Sends everything to one replica, also when that is down; `None`: each in turn.
    pub fn choose(&self, only: Option<usize>) {
        self.proxy.backends().choose(only);
    }

    /// Other replicas from now on.
    pub fn set_backends(&self, backends: &[String]) {
        self.proxy.backends().set(backends.to_vec());
    }
}

impl Passthrough {
    /// In front of `backends` (`127.0.0.1:PORT`).
    ///
    /// # Panics
    ///
    /// When it cannot listen.
    pub fn start(backends: &[String]) -> Passthrough {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let backends = Backends::new(Tls::trusting_anyone().unwrap(), backends.to_vec());
        let switches = tokio::sync::watch::Sender::new(Switches::default());
        let front = Passthrough {
            port,
            backends: Arc::clone(&backends),
            switches: switches.clone(),
        };
        RUNTIME.spawn(async move {
            let Ok(listener) = TcpListener::from_std(listener) else {
                return;
            };
            let mut closed = switches.subscribe();
            loop {
                let client = tokio::select! {
                    client = listener.accept() => client,
                    _ = closed.wait_for(|switches| switches.closed) => return,
                };
                let Ok((client, _)) = client else { continue };
                let (backends, mut ended) = (Arc::clone(&backends), switches.subscribe());
                tokio::spawn(async move {
                    tokio::select! {
                        _ = join(client, &backends) => {}
                        _ = ended.wait_for(|switches| switches.severed || switches.closed) => {}
                    }
                });
            }
        });
        front
    }

    /// `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Sends every new connection to one replica; `None`: each in turn.
    pub fn choose(&self, only: Option<usize>) {
        self.backends.choose(only);
    }

    /// Other replicas for new connections.
    pub fn set_backends(&self, backends: &[String]) {
        self.backends.set(backends.to_vec());
    }

    /// While true, connections are cut and new ones closed at once.
    pub fn sever(&self, severed: bool) {
        self.switches
            .send_modify(|switches| switches.severed = severed);
    }
}

impl Drop for Passthrough {
    fn drop(&mut self) {
        self.switches.send_modify(|switches| switches.closed = true);
    }
}

async fn join(mut client: TcpStream, backends: &Backends) -> Result<()> {
    client.set_nodelay(true)?;
    for (_, address) in backends.order() {
        if let Ok(mut backend) = TcpStream::connect(&address).await {
            backend.set_nodelay(true)?;
            tokio::io::copy_bidirectional(&mut client, &mut backend).await?;
            break;
        }
    }
    Ok(())
}

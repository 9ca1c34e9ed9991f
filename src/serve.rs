//! The serving shell: sockets, TLS, HTTP, probes and metrics around the admission logic.
//!
//! The transport decides nothing. It hands each review to an [`Admit`] and carries the answer out; what it says by
//! itself is a refusal: 400, 404, 405, 413, 415, or a denial with reason `ApprovalUnavailable` where the uid is known.
//!
//! # What memory a peer can take
//!
//! - *A connection*: at most 64 KiB of head or body in transit, 64 KiB of unread answers, and rustls' own record
//!   buffers of some 36 KiB; an idle one keeps only what it has grown to. [`Limits::connections`] bounds their number
//!   (512 in all: under 90 MiB), time-outs on handshake, head and idleness bound their life.
//! - *A request*: its body, once, in a buffer of the declared length, or one that doubles up to the limit where the
//!   length is not declared; 1 KiB of it where it is refused; and what reading it takes, 20 bytes for each value and key
//!   and the strings that hold escapes ([`crate::decide::json::bytes_to_read`]): up to ten times a body of nothing but
//!   small numbers. [`Limits::largest_body`] bounds one body and [`Limits::bodies_in_flight`] all of them together with
//!   what reading them takes, counted before it is taken and until the last holder lets go.
//!   The deadline of the call bounds how long an unfinished one is waited for.

mod accept;
mod activity;
pub mod admission;
mod admit;
mod answer;
pub mod certs;
pub mod gate;
pub mod guard;
mod http;
mod inflight;
pub mod metrics;
mod probes;
pub mod response;
pub mod stamp;
pub mod tls;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::cluster::clock::Clock;

use self::accept::Door;
use self::activity::Patience;
use self::http::Shell;
use self::inflight::InFlight;

pub use self::accept::Drained;
pub use self::admit::{AdmissionPath, Admit, Answer, Body, Budget};
pub use self::metrics::Metrics;
pub use self::probes::{Missing, Readiness, Report};
pub use self::tls::{Certificates, Material, TlsSource};

/// The name of the readiness condition on the serving certificate.
pub const CERTIFICATE: &str = "certificate";

/// The name of the readiness condition that ends when the process is told to stop.
pub const RUNNING: &str = "running";

/// How and where to serve.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Where the TLS port listens; port 0 takes a free one.
    pub bind: SocketAddr,
    /// Where a plain port for probes and metrics listens, if one is wanted: loopback, or a port of the pod.
    pub probe_bind: Option<SocketAddr>,
    /// Where the certificate comes from.
    pub tls: TlsSource,
    /// A file that gets the addresses once they are bound: the TLS port's on the first line, the probes' on the second.
    pub addr_file: Option<PathBuf>,
    /// Bounds.
    pub limits: Limits,
}

/// The bounds of the shell.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one body; more is HTTP 413. The API server writes `<`, `>` and `&` as six bytes each, and legal
    /// writes reach 16.8 MB.
    pub largest_body: u64,
    /// Bytes of all bodies in memory; what does not fit is `Busy`.
    pub bodies_in_flight: u64,
    /// Open connections on the TLS port.
    pub connections: usize,
    /// From accepting a connection to the end of its TLS handshake.
    pub handshake: Duration,
    /// From the first byte of a head to its last.
    pub head: Duration,
    /// Before the first request, and between two. Longer than the API server keeps idle connections (90 s), so that it closes first.
    pub idle: Duration,
    /// How long we still accept after we were told to stop, until whoever routes to us has seen that we are not ready.
    pub linger: Duration,
    /// How long requests in hand may take after that.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            largest_body: 24 << 20,
            bodies_in_flight: 96 << 20,
            connections: 512,
            handshake: Duration::from_secs(5),
            head: Duration::from_secs(5),
            idle: Duration::from_secs(180),
            linger: Duration::from_secs(5),
            drain: Duration::from_secs(32),
        }
    }
}

/// Where we listen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BoundAddrs {
    /// The TLS port.
    pub tls: SocketAddr,
    /// The plain port for probes.
    pub probes: Option<SocketAddr>,
}

/// Why we cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The port is taken, or not ours to take.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// What was asked for.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The addresses could not be written down.
    #[error("cannot write the bound addresses to {path}: {source}")]
    AddrFile {
        /// Where to.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The TLS library refuses its configuration.
    #[error("TLS configuration: {0}")]
    Tls(#[from] rustls::Error),
}

/// Bound, and not yet serving: connections wait in the kernel's queue until [`Server::run`].
pub struct Server {
    addrs: BoundAddrs,
    certificates: Certificates,
    source: TlsSource,
    doors: Vec<Door>,
    linger: Duration,
    readiness: Readiness,
    metrics: Arc<Metrics>,
}

/// Binds and serves until `shutdown` resolves, then drains. Tells nobody the addresses but the log and
/// [`ServeOptions::addr_file`]; who needs them takes [`Server::bind`].
pub async fn run(
    options: ServeOptions,
    admit: Arc<dyn Admit>,
    readiness: Readiness,
    metrics: Arc<Metrics>,
    shutdown: impl Future<Output = ()>,
) -> Result<Drained, ServeError> {
    Ok(Server::bind(options, admit, readiness, metrics)
        .await?
        .run(shutdown)
        .await)
}

/// Takes a plain port for probes and metrics alone, of a component that answers no admission. What comes back serves for as long as
/// it is polled.
pub async fn probes(
    address: SocketAddr,
    readiness: Readiness,
    metrics: Arc<Metrics>,
) -> Result<(SocketAddr, impl Future<Output = ()>), ServeError> {
    let limits = Limits::default();
    let (listener, bound) = listen(address).await?;
    let in_flight = InFlight::new(
        limits.bodies_in_flight,
        metrics.bodies_in_flight.clone(),
        metrics.bytes_in_flight.clone(),
    );
    let door = Door {
        listener,
        tls: None,
        shell: Arc::new(Shell {
            admit: None,
            largest_body: limits.largest_body,
            in_flight,
            readiness,
            metrics,
        }),
        connections: limits.connections,
        handshake: limits.handshake,
        patience: Patience {
            head: limits.head,
            idle: limits.idle,
        },
        drain: limits.drain,
    };
    tracing::info!(probes = %bound, "listening");
    Ok((bound, async move {
        // Never told to close: the sender lives as long as this.
        let (_open, closing) = watch::channel(false);
        door.serve(closing).await;
    }))
}

impl Server {
    /// Takes the ports, logs and writes down their addresses, and adds the conditions [`CERTIFICATE`] and [`RUNNING`]
    /// to `readiness`.
    pub async fn bind(
        options: ServeOptions,
        admit: Arc<dyn Admit>,
        readiness: Readiness,
        metrics: Arc<Metrics>,
    ) -> Result<Self, ServeError> {
        let limits = options.limits;
        let certificates = Certificates::new();
        let judged = certificates.clone();
        readiness.judged(CERTIFICATE, move || judged.in_date(Clock::local()));
        readiness.holds(RUNNING);
        let in_flight = InFlight::new(
            limits.bodies_in_flight,
            metrics.bodies_in_flight.clone(),
            metrics.bytes_in_flight.clone(),
        );
        let shell = |admit| {
            Arc::new(Shell {
                admit,
                largest_body: limits.largest_body,
                in_flight: Arc::clone(&in_flight),
                readiness: readiness.clone(),
                metrics: Arc::clone(&metrics),
            })
        };
        let door = |listener, tls, admit| Door {
            listener,
            tls,
            shell: shell(admit),
            connections: limits.connections,
            handshake: limits.handshake,
            patience: Patience {
                head: limits.head,
                idle: limits.idle,
            },
            drain: limits.drain,
        };
        let (listener, tls) = listen(options.bind).await?;
        let acceptor = TlsAcceptor::from(Arc::new(certificates.server_config()?));
        let mut doors = vec![door(listener, Some(acceptor), Some(admit))];
        let mut addrs = BoundAddrs { tls, probes: None };
        if let Some(address) = options.probe_bind {
            let (listener, bound) = listen(address).await?;
            addrs.probes = Some(bound);
            doors.push(door(listener, None, None));
        }
        if let Some(path) = &options.addr_file {
            addrs
                .write_to(path)
                .await
                .map_err(|source| ServeError::AddrFile {
                    path: path.clone(),
                    source,
                })?;
        }
        match addrs.probes {
            Some(probes) => tracing::info!(address = %addrs.tls, %probes, "listening"),
            None => tracing::info!(address = %addrs.tls, "listening"),
        }
        let linger = limits.linger;
        Ok(Self {
            addrs,
            certificates,
            source: options.tls,
            doors,
            linger,
            readiness,
            metrics,
        })
    }

    /// Where it listens.
    pub fn addrs(&self) -> BoundAddrs {
        self.addrs
    }

    /// The certificate it serves, for who wants to know when it changes.
    pub fn certificates(&self) -> Certificates {
        self.certificates.clone()
    }

    /// Serves until `shutdown` resolves. Then: not ready, but serving for [`Limits::linger`]; then nothing is
    /// accepted, kept connections are closed as they fall idle, and requests in hand have [`Limits::drain`]. The
    /// probes' port answers until the end. What was drained is that of the TLS port.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Drained {
        // Dropping the set ends what is left in it, also when this future itself is dropped.
        let mut following = JoinSet::new();
        following.spawn(self.certificates.follow(self.source, self.metrics));
        let (close, closing) = watch::channel(false);
        let (close_probes, closing_probes) = watch::channel(false);
        let mut doors = self.doors.into_iter();
        let mut reviews = JoinSet::new();
        let mut probes = JoinSet::new();
        if let Some(door) = doors.next() {
            reviews.spawn(door.serve(closing));
        }
        for door in doors {
            probes.spawn(door.serve(closing_probes.clone()));
        }
        shutdown.await;
        self.readiness.missing(RUNNING, "told to stop");
        tracing::info!(linger = ?self.linger, "told to stop");
        tokio::time::sleep(self.linger).await;
        close.send_replace(true);
        let drained = match reviews.join_next().await {
            Some(Ok(drained)) => drained,
            Some(Err(_)) | None => Drained::default(),
        };
        close_probes.send_replace(true);
        // Probes are not work in hand: whoever still holds a connection there is not waited for.
        probes.shutdown().await;
        tracing::info!(finished = drained.finished, cut = drained.cut, "drained");
        drained
    }
}

impl BoundAddrs {
    /// Writes the file as a whole or not at all: who waits for it never reads half of it.
    async fn write_to(&self, path: &Path) -> io::Result<()> {
        let mut text = format!("{}\n", self.tls);
        if let Some(probes) = self.probes {
            text.push_str(&format!("{probes}\n"));
        }
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}", std::process::id()));
        tokio::fs::write(&beside, text).await?;
        tokio::fs::rename(&beside, path).await
    }
}

async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ServeError> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    bound
        .await
        .map_err(|source| ServeError::Bind { address, source })
}

#[cfg(test)]
mod tests;

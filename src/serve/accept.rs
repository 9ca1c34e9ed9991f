//! The accept loop: connections from the listener to their end.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, timeout};
use tokio_rustls::TlsAcceptor;

use super::activity::{Activity, Patience, Watched};
use super::http::Shell;
use super::metrics::Cause;

/// The most of a head, and of a body in transit, that one connection buffers in front of us.
const READ_BUFFER: usize = 64 * 1024;

/// The most bytes of records that one connection holds for a peer that does not read.
const WRITE_BUFFER: usize = 64 * 1024;

/// After a failure to accept that is not the peer's, such as no free file descriptor.
const PAUSE: Duration = Duration::from_millis(50);

/// One listening port.
pub(super) struct Door {
    pub(super) listener: TcpListener,
    /// `None`: in the clear, for probes.
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) shell: Arc<Shell>,
    pub(super) connections: usize,
    pub(super) handshake: Duration,
    pub(super) patience: Patience,
    /// How long requests in hand may take once the door is closed.
    pub(super) drain: Duration,
}

/// What every connection of a door shares.
struct Common {
    tls: Option<TlsAcceptor>,
    shell: Arc<Shell>,
    handshake: Duration,
    patience: Patience,
}

/// How the connections of a door ended when it closed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Drained {
    /// Connections that finished what they had in hand.
    pub finished: usize,
    /// Connections that were cut because the time was over.
    pub cut: usize,
}

impl Door {
    /// Accepts until `closing` turns true, then lets requests in hand finish.
    ///
    /// At the cap nothing is accepted, and the kernel's queue holds who comes: a connection is dear only once its
    /// handshake has begun. Slow and idle ones make room by their time-outs.
    pub(super) async fn serve(self, mut closing: watch::Receiver<bool>) -> Drained {
        let permits = Arc::new(Semaphore::new(self.connections));
        let common = Arc::new(Common {
            tls: self.tls,
            shell: self.shell,
            handshake: self.handshake,
            patience: self.patience,
        });
        let mut connections = JoinSet::new();
        loop {
            // What has ended is let go of; otherwise the set would grow with every connection there ever was.
            while connections.try_join_next().is_some() {}
            let accepted = tokio::select! {
                biased;
                () = closed(&mut closing) => break,
                accepted = accept(&self.listener, &permits) => accepted,
            };
            match accepted {
                Ok((stream, permit)) => {
                    let connection = Connection {
                        common: Arc::clone(&common),
                        closing: closing.clone(),
                    };
                    connections.spawn(connection.run(stream, permit));
                }
                Err(problem) => {
                    tracing::warn!(%problem, "accepting a connection");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        drop(self.listener);
        let mut drained = Drained::default();
        let all_end = async {
            while let Some(_ended) = connections.join_next().await {
                drained.finished += 1;
            }
        };
        if timeout(self.drain, all_end).await.is_err() {
            drained.cut = connections.len();
            connections.shutdown().await;
        }
        drained
    }
}

struct Connection {
    common: Arc<Common>,
    closing: watch::Receiver<bool>,
}

impl Connection {
    async fn run(self, stream: TcpStream, _permit: OwnedSemaphorePermit) {
        let metrics = Arc::clone(&self.common.shell.metrics);
        let _open = Open::count(&metrics.connections);
        // Answers are small and awaited: none may wait for another packet.
        let _best_effort = stream.set_nodelay(true);
        let cut = match self.common.tls.clone() {
            None => self.drive(stream).await,
            Some(acceptor) => match timeout(self.common.handshake, acceptor.accept(stream)).await {
                Err(_) => Some("slow_handshake"),
                Ok(Err(problem)) => {
                    tracing::debug!(%problem, "a TLS handshake failed");
                    Some("handshake")
                }
                Ok(Ok(mut stream)) => {
                    stream.get_mut().1.set_buffer_limit(Some(WRITE_BUFFER));
                    self.drive(stream).await
                }
            },
        };
        if let Some(cause) = cut {
            metrics.cut.get_or_create(&Cause { cause }).inc();
        }
    }

    /// Serves requests until one side has enough. The cause, when it was us.
    async fn drive<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        mut self,
        stream: S,
    ) -> Option<&'static str> {
        let activity = Activity::new();
        let Patience { head, idle } = self.common.patience;
        let io = TokioIo::new(Watched {
            inner: stream,
            activity: activity.clone(),
        });
        let common = Arc::clone(&self.common);
        let requests = activity.clone();
        let service = service_fn(move |request| {
            let (common, requests) = (Arc::clone(&common), requests.clone());
            requests.serving();
            async move {
                let reply = common.shell.respond(request).await;
                requests.idle();
                Ok::<_, Infallible>(reply)
            }
        });
        let connection = http1::Builder::new()
            .header_read_timeout(None)
            .max_buf_size(READ_BUFFER)
            .serve_connection(io, service);
        let mut connection = std::pin::pin!(connection);
        let mut looks = tokio::time::interval((head.min(idle) / 2).max(Duration::from_millis(1)));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut draining = false;
        loop {
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(problem) = ended {
                        tracing::debug!(%problem, "a connection ended early");
                    }
                    return None;
                }
                () = closed(&mut self.closing), if !draining => {
                    draining = true;
                    connection.as_mut().graceful_shutdown();
                }
                _ = looks.tick() => {
                    if let Some(cause) = activity.overdue(self.common.patience, Instant::now()) {
                        return Some(cause);
                    }
                }
            }
        }
    }
}

/// Counts an open connection until dropped, also when its task is cut.
struct Open<'m>(&'m prometheus_client::metrics::gauge::Gauge);

impl<'m> Open<'m> {
    fn count(gauge: &'m prometheus_client::metrics::gauge::Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let permit = Arc::clone(permits)
        .acquire_owned()
        .await
        .map_err(io::Error::other)?;
    let (stream, _peer) = listener.accept().await?;
    Ok((stream, permit))
}

/// Waits until `closing` is true, or nobody is left to say so.
async fn closed(closing: &mut watch::Receiver<bool>) {
    let _gone_is_closed = closing.wait_for(|closing| *closing).await;
}

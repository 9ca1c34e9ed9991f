//! A reverse proxy on loopback: ends TLS, does what its [`Faults`] say, passes the rest on and streams the answers back.
//!
//! HTTP/1.1 on both sides, and no upgrades: `exec` and its like need the API server itself.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use anyhow::{Context, Result, anyhow};
use futures::stream;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::SignedDuration;
use jiff::fmt::rfc2822::{DateTimeParser, DateTimePrinter};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use super::faults::{Fate, Faults, Moment, Seen};
use super::http::Tls;
use super::pki::Certificate;

/// Proxies run apart from the tests' runtimes: a test that blocks its own thread must still be served.
pub(super) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("threads for the proxies")
});

/// Connections of one client connection to the backends, by their address.
type Senders = tokio::sync::Mutex<HashMap<String, SendRequest<Full<Bytes>>>>;
type Body = BoxBody<Bytes, anyhow::Error>;

/// Where requests go.
pub(super) struct Backends {
    tls: Tls,
    addresses: Mutex<Vec<String>>,
    /// The one that gets everything, when one was chosen.
    only: Mutex<Option<usize>>,
    turn: AtomicUsize,
}

/// A running proxy. Dropping it closes its port and every connection.
pub(super) struct Proxy {
    port: u16,
    faults: Arc<Faults>,
    backends: Arc<Backends>,
}

impl Backends {
    /// These addresses (`HOST:PORT`), spoken to as `tls` says.
    pub fn new(tls: Tls, addresses: Vec<String>) -> Arc<Backends> {
        Arc::new(Backends {
            tls,
            addresses: Mutex::new(addresses),
            only: Mutex::new(None),
            turn: AtomicUsize::new(0),
        })
    }

    pub fn set(&self, addresses: Vec<String>) {
        *self
            .addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    pub fn choose(&self, only: Option<usize>) {
        *self.only.lock().unwrap_or_else(PoisonError::into_inner) = only;
    }

    /// The backends to try, best first: the chosen one alone, else each in turn.
    pub fn order(&self) -> Vec<(usize, String)> {
        let addresses = self
            .addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let only = *self.only.lock().unwrap_or_else(PoisonError::into_inner);
        let mut order: Vec<(usize, String)> = addresses.iter().cloned().enumerate().collect();
        match only {
            Some(only) => order.retain(|(number, _)| *number == only),
            None if order.is_empty() => {}
            None => {
                let turn = self.turn.fetch_add(1, Ordering::Relaxed) % order.len();
                order.rotate_left(turn);
            }
        }
        order
    }
}

impl Proxy {
    /// Listens on a free port with `certificate`.
    pub fn start(certificate: &Certificate, backends: Arc<Backends>) -> Result<Proxy> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let acceptor = acceptor(certificate)?;
        let faults = Faults::new();
        let proxy = Proxy {
            port,
            faults: Arc::clone(&faults),
            backends: Arc::clone(&backends),
        };
        RUNTIME.spawn(async move {
            let Ok(listener) = TcpListener::from_std(listener) else {
                return;
            };
            let mut switches = faults.switches.subscribe();
            loop {
                let client = tokio::select! {
                    client = listener.accept() => client,
                    _ = switches.wait_for(|switches| switches.closed) => return,
                };
                let Ok((client, _)) = client else { continue };
                let (acceptor, faults, backends) =
                    (acceptor.clone(), Arc::clone(&faults), Arc::clone(&backends));
                tokio::spawn(async move {
                    let mut switches = faults.switches.subscribe();
                    tokio::select! {
                        // How a connection ended is what its client sees; there is nobody to tell here.
                        _ = serve(client, acceptor, Arc::clone(&faults), backends) => {}
                        _ = switches.wait_for(|switches| switches.severed || switches.closed) => {}
                    }
                });
            }
        });
        Ok(proxy)
    }

    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    pub fn faults(&self) -> &Arc<Faults> {
        &self.faults
    }

    pub fn backends(&self) -> &Backends {
        &self.backends
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.faults
            .switches
            .send_modify(|switches| switches.closed = true);
    }
}

fn acceptor(certificate: &Certificate) -> Result<TlsAcceptor> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = CertificateDer::pem_slice_iter(certificate.certificate.as_bytes())
        .collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes())?;
    let builder = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn serve(
    client: TcpStream,
    acceptor: TlsAcceptor,
    faults: Arc<Faults>,
    backends: Arc<Backends>,
) -> Result<()> {
    client.set_nodelay(true)?;
    let stream = acceptor.accept(client).await?;
    let senders = Arc::new(Senders::default());
    let service = service_fn(move |request| {
        let (faults, backends, senders) = (
            Arc::clone(&faults),
            Arc::clone(&backends),
            Arc::clone(&senders),
        );
        // hyper closes the connection on an error: that is how a request is cut.
        async move { pass(request, &faults, &backends, &senders).await }
    });
    hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await?;
    Ok(())
}

async fn pass(
    request: Request<Incoming>,
    faults: &Arc<Faults>,
    backends: &Backends,
    senders: &Senders,
) -> Result<Response<Body>> {
    let (mut head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let mut seen = faults.record(
        head.method.as_str(),
        head.uri.path(),
        head.uri.query().unwrap_or(""),
        body.clone(),
    );
    faults.wait_as_told(&seen).await;
    if let Some(answer) = carry_out(faults.fate(Moment::Before, &seen).await)? {
        return Ok(answer);
    }
    strip(&mut head.headers);
    let request = Request::from_parts(head, Full::new(body));
    let response = forward(request, &mut seen, backends, senders).await?;
    seen.status = Some(response.status().as_u16());
    faults.note(&seen);

    let (mut head, body) = response.into_parts();
    let body = if faults.awaits(Moment::After, &seen) && !seen.is_watch() {
        // Only a whole answer proves that the server is done.
        let whole = body.collect().await?.to_bytes();
        if let Some(answer) = carry_out(faults.fate(Moment::After, &seen).await)? {
            return Ok(answer);
        }
        Full::new(whole)
            .map_err(|never: Infallible| match never {})
            .boxed()
    } else if seen.is_watch() {
        stallable(body, faults)
    } else {
        body.map_err(anyhow::Error::from).boxed()
    };
    head.headers.remove(header::CONNECTION);
    shift_date(&mut head.headers, faults.switches.borrow().shift_seconds)?;
    Ok(Response::from_parts(head, body))
}

/// `None` when the request is to go on, an error when it is to be cut.
fn carry_out(fate: Fate) -> Result<Option<Response<Body>>> {
    let status = match fate {
        Fate::Pass => return Ok(None),
        Fate::Cut => return Err(anyhow!("cut")),
        Fate::Answer(status) => status,
    };
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": status,
        "message": "answered by the test's proxy", "reason": StatusCode::from_u16(status)?.canonical_reason(),
    });
    let body = Full::from(body.to_string())
        .map_err(|never: Infallible| match never {})
        .boxed();
    let builder = Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "application/json");
    Ok(Some(builder.body(body)?))
}

/// Sends to the first backend that can be reached.
async fn forward(
    request: Request<Full<Bytes>>,
    seen: &mut Seen,
    backends: &Backends,
    senders: &Senders,
) -> Result<Response<Incoming>> {
    let mut senders = senders.lock().await;
    let mut why = anyhow!("no backend");
    for (number, address) in backends.order() {
        let kept = match senders.remove(&address) {
            Some(mut sender) => sender.ready().await.is_ok().then_some(sender),
            None => None,
        };
        let mut sender = match kept {
            Some(sender) => sender,
            None => match connect(&backends.tls, &address).await {
                Ok(sender) => sender,
                Err(error) => {
                    why = error;
                    continue;
                }
            },
        };
        seen.backend = Some(number);
        let response = sender
            .send_request(request)
            .await
            .context("the backend hung up")?;
        senders.insert(address, sender);
        return Ok(response);
    }
    Err(why)
}

async fn connect(tls: &Tls, address: &str) -> Result<SendRequest<Full<Bytes>>> {
    let stream = tls.connect(address).await?;
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // Ends when the sender is dropped, or tells it of its end.
    tokio::spawn(connection);
    Ok(sender)
}

/// A watch's answer, whose parts wait while watches are stalled.
fn stallable(body: Incoming, faults: &Faults) -> Body {
    let switches = faults.switches.subscribe();
    let frames = stream::unfold((body, switches), |(mut body, mut switches)| async move {
        let frame = body.frame().await?;
        // Fails only when the proxy is gone, and then the connection goes too.
        let _ = switches.wait_for(|switches| !switches.stalled).await;
        Some((frame.map_err(anyhow::Error::from), (body, switches)))
    });
    BodyExt::boxed(StreamBody::new(frames))
}

/// What concerns one connection only is not passed on; hyper writes the length itself.
fn strip(headers: &mut HeaderMap) {
    let upgrade: [HeaderName; 5] = [
        header::CONNECTION,
        header::UPGRADE,
        header::TRANSFER_ENCODING,
        header::CONTENT_LENGTH,
        header::EXPECT,
    ];
    for name in upgrade {
        headers.remove(name);
    }
}

fn shift_date(headers: &mut HeaderMap, seconds: i64) -> Result<()> {
    let Some(date) = headers.get(header::DATE).filter(|_| seconds != 0) else {
        return Ok(());
    };
    let date = DateTimeParser::new()
        .parse_timestamp(date.as_bytes())?
        .checked_add(SignedDuration::from_secs(seconds))?;
    let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&date)?;
    headers.insert(header::DATE, HeaderValue::from_str(&date)?);
    Ok(())
}

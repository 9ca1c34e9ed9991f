//! One HTTP request over one connection, for what a typed client would smooth over.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use http::{HeaderMap, Method, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::pki::Certificate;

/// How long one request may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Whom a connection trusts, and what it shows.
#[derive(Clone)]
pub struct Tls(Arc<ClientConfig>);

/// A connection, with or without TLS.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Answer {
    /// The body as text, with replacement characters where it is none.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("not JSON: {}", self.text()))
    }
}

impl Tls {
    /// Trusts the authority with this certificate.
    pub fn trusting(authority: &[u8]) -> Result<Tls> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(authority.to_vec()))?;
        Ok(Tls(Arc::new(
            builder()?
                .with_root_certificates(roots)
                .with_no_client_auth(),
        )))
    }

    /// As [`Tls::trusting`], and shows a client certificate.
    pub fn showing(authority: &[u8], pair: &Certificate) -> Result<Tls> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(authority.to_vec()))?;
        let chain = vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes())?];
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?;
        Ok(Tls(Arc::new(
            builder()?
                .with_root_certificates(roots)
                .with_client_auth_cert(chain, key)?,
        )))
    }

    /// Trusts everybody: for a server on loopback whose authority the test does not hold.
    pub fn trusting_anyone() -> Result<Tls> {
        let verifier = Arc::new(Anyone(ring::default_provider()));
        let config = builder()?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        Ok(Tls(Arc::new(config.with_no_client_auth())))
    }

    /// Opens a connection to `address` (`HOST:PORT`).
    pub async fn connect(&self, address: &str) -> Result<Box<dyn Stream>> {
        let tcp = TcpStream::connect(address)
            .await
            .with_context(|| format!("cannot connect to {address}"))?;
        tcp.set_nodelay(true)?;
        let host = address
            .rsplit_once(':')
            .map_or(address, |(host, _)| host)
            .to_owned();
        let stream = TlsConnector::from(Arc::clone(&self.0))
            .connect(ServerName::try_from(host)?, tcp)
            .await?;
        Ok(Box::new(stream))
    }
}

/// Sends one request and reads the answer to its end. An answer of any status is `Ok`.
pub async fn send(
    tls: &Tls,
    method: Method,
    url: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Result<Answer> {
    let url: Uri = url.parse().with_context(|| format!("not a URL: {url}"))?;
    let authority = url
        .authority()
        .ok_or_else(|| anyhow!("no host in {url}"))?
        .as_str()
        .to_owned();
    let path = url
        .path_and_query()
        .map_or("/", http::uri::PathAndQuery::as_str);
    let mut request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("host", &authority);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(body.into()))?;
    let exchange = async {
        let stream: Box<dyn Stream> = match url.scheme_str() {
            Some("https") => tls.connect(&authority).await?,
            Some("http") => Box::new(TcpStream::connect(&authority).await?),
            _ => bail!("neither http nor https: {url}"),
        };
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(connection);
        let response = sender.send_request(request).await;
        let (head, body) = response?.into_parts();
        let body = body.collect().await?.to_bytes();
        driver.abort();
        Ok(Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            body,
        })
    };
    tokio::time::timeout(LIMIT, exchange)
        .await
        .with_context(|| format!("no answer from {url}"))?
}

fn builder() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>> {
    let provider = Arc::new(ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?)
}

/// A verifier that accepts every certificate; signatures of the handshake are still checked.
#[derive(Debug)]
struct Anyone(CryptoProvider);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

//! The other side of the wire: TLS and HTTP/1.1 by hand, so that a test can stop in the middle of either.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub(super) struct Peer<S> {
    stream: S,
    unread: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: String,
}

impl Response {
    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

impl Peer<TcpStream> {
    pub(super) async fn plain(address: SocketAddr) -> Self {
        Self {
            stream: TcpStream::connect(address).await.unwrap(),
            unread: Vec::new(),
        }
    }
}

impl Peer<TlsStream<TcpStream>> {
    pub(super) async fn tls(address: SocketAddr, bundle: &str, alpn: &[&str]) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        for ca in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            roots.add(ca.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let tcp = TcpStream::connect(address).await?;
        let name = ServerName::from(address.ip());
        let stream = TlsConnector::from(Arc::new(config))
            .connect(name, tcp)
            .await?;
        Ok(Self {
            stream,
            unread: Vec::new(),
        })
    }

    pub(super) fn alpn(&self) -> Option<String> {
        self.stream
            .get_ref()
            .1
            .alpn_protocol()
            .map(|name| String::from_utf8(name.to_vec()).unwrap())
    }

    pub(super) fn leaf(&self) -> Vec<u8> {
        self.stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    pub(super) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    pub(super) async fn get(&mut self, path: &str) -> Response {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: hook\r\n\r\n"))
            .await;
        self.response().await
    }

    /// Sends what the API server would send.
    pub(super) async fn ask(&mut self, path: &str, body: &[u8]) {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: hook\r\nUser-Agent: kube-apiserver-admission\r\n\
             Accept: application/json, */*\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.send(head).await;
        self.send(body).await;
    }

    pub(super) async fn post(&mut self, path: &str, body: impl AsRef<[u8]>) -> Response {
        self.ask(path, body.as_ref()).await;
        self.response().await
    }

    pub(super) async fn response(&mut self) -> Response {
        let end = loop {
            if let Some(at) = self.unread.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(
                self.more().await.unwrap() > 0,
                "closed before an answer: {:?}",
                self.unread
            );
        };
        let head = String::from_utf8(self.unread.drain(..end).collect()).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status = lines
            .next()
            .unwrap()
            .split(' ')
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        let headers: BTreeMap<String, String> = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let length: usize = headers["content-length"].parse().unwrap();
        while self.unread.len() < length {
            assert!(self.more().await.unwrap() > 0, "closed within an answer");
        }
        let body = String::from_utf8(self.unread.drain(..length).collect()).unwrap();
        Response {
            status,
            headers,
            body,
        }
    }

    /// Waits until the other side has closed the connection, in whatever way, without a further answer.
    pub(super) async fn closed(mut self) {
        while let Ok(count) = self.more().await {
            if count == 0 {
                break;
            }
        }
        assert!(
            self.unread.is_empty(),
            "{:?}",
            String::from_utf8_lossy(&self.unread)
        );
    }

    async fn more(&mut self) -> io::Result<usize> {
        self.stream.read_buf(&mut self.unread).await
    }
}

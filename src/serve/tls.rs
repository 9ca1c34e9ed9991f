//! The serving certificate: where it comes from, and how a new one takes the place of the old while we serve.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::certs::{Validity, validity};
use super::metrics::Metrics;

/// The only protocol we speak: kube-apiserver offers HTTP/2 too, and HTTP/1.1 costs both sides less.
const ALPN: &[u8] = b"http/1.1";

/// A certificate chain and its key, both as PEM, as they stand in a `kubernetes.io/tls` Secret.
#[derive(Clone, Eq, PartialEq)]
pub struct Material {
    /// `tls.crt`: the leaf first.
    pub chain: Vec<u8>,
    /// `tls.key`.
    pub key: Vec<u8>,
}

/// Where the serving certificate comes from.
#[derive(Clone, Debug)]
pub enum TlsSource {
    /// Two files, read again every `every`. Judged by their content: Kubernetes swaps a mounted Secret by a symlink
    /// two levels up, which a watch on the file itself does not see.
    Files {
        /// PEM chain, the leaf first.
        cert: PathBuf,
        /// PEM private key.
        key: PathBuf,
        /// How often they are read; a second is usual.
        every: Duration,
    },
    /// Whoever watches the Secret sends what it holds; `None` until it exists.
    Secret(watch::Receiver<Option<Material>>),
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateProblem {
    /// A file could not be read.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// Which one.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// `tls.crt` holds no certificate, or is no PEM.
    #[error("the certificate chain is not PEM with at least one certificate")]
    NoChain,
    /// `tls.key` holds no private key, or is no PEM.
    #[error("the private key is not a PEM private key")]
    NoKey,
    /// The leaf cannot be parsed.
    #[error("the certificate cannot be parsed: {0}")]
    Malformed(String),
    /// The key is of another certificate, or of a kind that cannot sign.
    #[error("certificate and private key do not belong together: {0}")]
    Mismatch(rustls::Error),
}

/// The certificate that is served now. Clones share it.
#[derive(Clone, Debug)]
pub struct Certificates {
    current: Arc<ArcSwapOption<Serving>>,
    changed: watch::Sender<u64>,
}

#[derive(Debug)]
struct Serving {
    certified: Arc<CertifiedKey>,
    validity: Validity,
}

impl Default for Certificates {
    fn default() -> Self {
        Self {
            current: Arc::default(),
            changed: watch::Sender::new(0),
        }
    }
}

impl Certificates {
    /// None yet: every handshake is refused.
    pub fn new() -> Self {
        Self::default()
    }

    /// Serves `material` from the next handshake on. What is served stays as it is when it cannot be used.
    pub fn install(&self, material: &Material) -> Result<Validity, CertificateProblem> {
        let serving = serving(material)?;
        let validity = serving.validity;
        self.current.store(Some(Arc::new(serving)));
        self.changed
            .send_modify(|count| *count = count.wrapping_add(1));
        Ok(validity)
    }

    /// Counts the certificates installed; changes with each.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Whether there is a certificate that is in date at `now`; in words if not.
    pub fn in_date(&self, now: Timestamp) -> Result<(), String> {
        match self.current.load().as_deref() {
            None => Err("no serving certificate yet".to_owned()),
            Some(serving) if now < serving.validity.not_before => Err(format!(
                "the serving certificate is valid from {}",
                serving.validity.not_before
            )),
            Some(serving) if now >= serving.validity.not_after => Err(format!(
                "the serving certificate ended at {}",
                serving.validity.not_after
            )),
            Some(_) => Ok(()),
        }
    }

    /// The TLS configuration that serves it: TLS 1.2 and 1.3, ring, HTTP/1.1 only.
    pub fn server_config(&self) -> Result<ServerConfig, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(self.clone()));
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(config)
    }

    /// Keeps it up to date from `source`; ends only when the source does.
    ///
    /// What cannot be used is logged once per content and counted, and the last good certificate stays: a Secret that
    /// is caught in the middle of a change is whole a moment later.
    pub async fn follow(self, source: TlsSource, metrics: Arc<Metrics>) {
        match source {
            TlsSource::Files { cert, key, every } => {
                self.follow_files(&cert, &key, every, &metrics).await
            }
            TlsSource::Secret(receiver) => self.follow_secret(receiver, &metrics).await,
        }
    }

    async fn follow_files(&self, cert: &Path, key: &Path, every: Duration, metrics: &Metrics) {
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_seen = None;
        loop {
            ticks.tick().await;
            let read = match (read(cert).await, read(key).await) {
                (Ok(chain), Ok(key)) => Ok(Material { chain, key }),
                (Err(problem), _) | (_, Err(problem)) => Err(problem),
            };
            let seen = Some(match &read {
                Ok(material) => material.fingerprint(),
                Err(problem) => Sha256::digest(problem.to_string()).into(),
            });
            if seen != last_seen {
                last_seen = seen;
                self.take(read, metrics);
            }
        }
    }

    async fn follow_secret(
        &self,
        mut receiver: watch::Receiver<Option<Material>>,
        metrics: &Metrics,
    ) {
        loop {
            let material = receiver.borrow_and_update().clone();
            if let Some(material) = material {
                self.take(Ok(material), metrics);
            }
            if receiver.changed().await.is_err() {
                return;
            }
        }
    }

    fn take(&self, material: Result<Material, CertificateProblem>, metrics: &Metrics) {
        match material.and_then(|material| self.install(&material)) {
            Ok(validity) => {
                metrics
                    .certificate_not_after
                    .set(validity.not_after.as_second());
                tracing::info!(not_after = %validity.not_after, "serving certificate taken");
            }
            Err(problem) => {
                metrics.certificate_failures.inc();
                tracing::warn!(%problem, "serving certificate not taken, the last good one stays");
            }
        }
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current
            .load()
            .as_deref()
            .map(|serving| Arc::clone(&serving.certified))
    }
}

impl Material {
    fn fingerprint(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update((self.chain.len() as u64).to_be_bytes());
        hash.update(&self.chain);
        hash.update(&self.key);
        hash.finalize().into()
    }
}

impl std::fmt::Debug for Material {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Material")
            .field("chain_bytes", &self.chain.len())
            .finish_non_exhaustive()
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, CertificateProblem> {
    tokio::fs::read(path)
        .await
        .map_err(|source| CertificateProblem::Unreadable {
            path: path.to_owned(),
            source,
        })
}

fn serving(material: &Material) -> Result<Serving, CertificateProblem> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&material.chain)
        .collect::<Result<_, _>>()
        .map_err(|_| CertificateProblem::NoChain)?;
    let leaf = chain.first().ok_or(CertificateProblem::NoChain)?;
    let validity =
        validity(leaf).map_err(|problem| CertificateProblem::Malformed(problem.to_string()))?;
    let key =
        PrivateKeyDer::from_pem_slice(&material.key).map_err(|_| CertificateProblem::NoKey)?;
    let provider = rustls::crypto::ring::default_provider();
    let certified =
        CertifiedKey::from_der(chain, key, &provider).map_err(CertificateProblem::Mismatch)?;
    Ok(Serving {
        certified: Arc::new(certified),
        validity,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::super::certs::{Contents, Names, mint};
    use super::*;

    const NOW: &str = "2026-03-01T00:00:00Z";

    fn minted(now: &str) -> Contents {
        mint(
            &Contents::default(),
            &Names::of_service("grantgate-system"),
            now.parse().unwrap(),
        )
        .unwrap()
    }

    fn material(contents: &Contents) -> Material {
        contents.serving().unwrap()
    }

    #[test]
    fn there_is_no_certificate_until_one_is_installed_and_none_after_its_end() {
        let certificates = Certificates::new();
        let now: Timestamp = NOW.parse().unwrap();
        assert_eq!(
            certificates.in_date(now).unwrap_err(),
            "no serving certificate yet"
        );
        let validity = certificates.install(&material(&minted(NOW))).unwrap();
        certificates.in_date(now).unwrap();
        assert!(
            certificates
                .in_date(validity.not_after)
                .unwrap_err()
                .contains("ended at")
        );
        let before = Timestamp::from_second(validity.not_before.as_second() - 1).unwrap();
        assert!(
            certificates
                .in_date(before)
                .unwrap_err()
                .contains("valid from")
        );
    }

    #[test]
    fn what_cannot_be_used_leaves_the_last_good_one() {
        let certificates = Certificates::new();
        let good = material(&minted(NOW));
        let other = material(&minted(NOW));
        certificates.install(&good).unwrap();
        let before = *certificates.changes().borrow();
        let mixed = Material {
            chain: good.chain.clone(),
            key: other.key,
        };
        assert!(matches!(
            certificates.install(&mixed),
            Err(CertificateProblem::Mismatch(_))
        ));
        let no_chain = Material {
            chain: b"hello".to_vec(),
            key: good.key.clone(),
        };
        assert!(matches!(
            certificates.install(&no_chain),
            Err(CertificateProblem::NoChain)
        ));
        let no_key = Material {
            chain: good.chain.clone(),
            key: b"hello".to_vec(),
        };
        assert!(matches!(
            certificates.install(&no_key),
            Err(CertificateProblem::NoKey)
        ));
        certificates.in_date(NOW.parse().unwrap()).unwrap();
        assert_eq!(*certificates.changes().borrow(), before);
    }

    #[test]
    fn a_key_is_never_printed() {
        let material = material(&minted(NOW));
        let key = String::from_utf8(material.key.clone()).unwrap();
        let secret_line = key.lines().nth(1).unwrap();
        assert!(!format!("{material:?}").contains(secret_line));
        assert!(
            !format!("{:?}", TlsSource::Secret(watch::channel(Some(material)).1))
                .contains(secret_line)
        );
    }

    #[tokio::test]
    async fn a_secret_that_arrives_and_changes_is_taken() {
        let certificates = Certificates::new();
        let metrics = Arc::new(Metrics::new());
        let (sender, receiver) = watch::channel(None);
        let mut changes = certificates.changes();
        let following = tokio::spawn(
            certificates
                .clone()
                .follow(TlsSource::Secret(receiver), Arc::clone(&metrics)),
        );
        let first = minted(NOW);
        sender.send(Some(material(&first))).unwrap();
        changes.changed().await.unwrap();
        let first_end = metrics.certificate_not_after.get();
        assert!(first_end > 0);
        sender
            .send(Some(material(&minted("2026-04-01T00:00:00Z"))))
            .unwrap();
        changes.changed().await.unwrap();
        drop(sender);
        following.await.unwrap();
        assert!(metrics.certificate_not_after.get() > first_end);
    }
}

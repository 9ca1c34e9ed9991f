//! One certificate authority for everything a test needs: servers, client certificates, webhooks, proxies.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};

/// The names under which servers are reached: always over loopback, sometimes as the cluster calls its API server.
const SERVER_NAMES: [&str; 4] = [
    "127.0.0.1",
    "localhost",
    "kubernetes.default.svc",
    "kubernetes",
];

/// A certificate authority, fresh for each cluster.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The certificate alone, without its issuer.
    pub certificate: String,
    /// The private key, PKCS #8.
    pub key: String,
}

/// A [`Certificate`] as files.
#[derive(Debug, Clone)]
pub struct CertificateFiles {
    /// The certificate.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

impl Authority {
    /// A new authority with a new key.
    pub fn new(name: &str) -> Result<Authority> {
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(Authority {
            issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)?,
        })
    }

    /// Its certificate, as PEM: what goes into a `caBundle`.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Its certificate, as DER.
    pub fn der(&self) -> Vec<u8> {
        self.issuer.der().to_vec()
    }

    /// A server's certificate for loopback and for `more_names`.
    pub fn server(&self, more_names: &[&str]) -> Result<Certificate> {
        let names: Vec<String> = SERVER_NAMES
            .iter()
            .chain(more_names)
            .map(|name| (*name).to_owned())
            .collect();
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = common_name("server");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// A client's certificate: the API server takes the user from CN and the group from O (rcgen writes one O at most).
    pub fn client(&self, user: &str, group: Option<&str>) -> Result<Certificate> {
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(user);
        if let Some(group) = group {
            params
                .distinguished_name
                .push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Certificate> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Certificate {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

impl Certificate {
    /// Writes `NAME.crt` and `NAME.key` into `dir`.
    pub fn write(&self, dir: &Path, name: &str) -> Result<CertificateFiles> {
        let files = CertificateFiles {
            certificate: dir.join(format!("{name}.crt")),
            key: dir.join(format!("{name}.key")),
        };
        fs::write(&files.certificate, &self.certificate)?;
        fs::write(&files.key, &self.key)?;
        Ok(files)
    }
}

fn common_name(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

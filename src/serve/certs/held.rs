//! What a Secret holds, read: the CA that can sign, the leaf that is served.

use std::net::IpAddr;

use rcgen::KeyPair;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use super::{Contents, Names, Reason, Validity, validity};

/// The CA that signs.
pub(super) struct Authority {
    pub(super) der: CertificateDer<'static>,
    pub(super) key: KeyPair,
    pub(super) validity: Validity,
}

impl Authority {
    pub(super) fn read(contents: &Contents) -> Result<Self, Reason> {
        if contents.ca_bundle.is_empty() || contents.ca_key.is_empty() {
            return Err(Reason::Missing);
        }
        let der = certificates(&contents.ca_bundle)
            .into_iter()
            .next()
            .ok_or(Reason::Unusable)?;
        let key = KeyPair::from_pem(&contents.ca_key).map_err(|_| Reason::Unusable)?;
        let validity = validity(&der).map_err(|_| Reason::Unusable)?;
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|_| Reason::Unusable)?;
        let own = parsed.public_key().subject_public_key.data.as_ref() == key.public_key_raw();
        match own && parsed.is_ca() {
            true => Ok(Self { der, key, validity }),
            false => Err(Reason::Unusable),
        }
    }
}

/// The leaf that is served.
pub(super) struct Leaf {
    der: CertificateDer<'static>,
    pub(super) validity: Validity,
}

impl Leaf {
    pub(super) fn read(contents: &Contents) -> Result<Self, Reason> {
        if contents.chain.is_empty() || contents.key.is_empty() {
            return Err(Reason::Missing);
        }
        let der = certificates(&contents.chain)
            .into_iter()
            .next()
            .ok_or(Reason::Unusable)?;
        let validity = validity(&der).map_err(|_| Reason::Unusable)?;
        let key = KeyPair::from_pem(&contents.key).map_err(|_| Reason::Unusable)?;
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|_| Reason::Unusable)?;
        match parsed.public_key().subject_public_key.data.as_ref() == key.public_key_raw() {
            true => Ok(Self { der, validity }),
            false => Err(Reason::Unusable),
        }
    }

    pub(super) fn covers(&self, names: &Names) -> bool {
        let Ok((_, parsed)) = X509Certificate::from_der(&self.der) else {
            return false;
        };
        let Ok(Some(carried)) = parsed.subject_alternative_name() else {
            return false;
        };
        let carried = &carried.value.general_names;
        let dns = |name: &String| {
            carried
                .iter()
                .any(|one| matches!(one, GeneralName::DNSName(dns) if dns == name))
        };
        let ip = |ip: &IpAddr| {
            let octets = match ip {
                IpAddr::V4(ip) => ip.octets().to_vec(),
                IpAddr::V6(ip) => ip.octets().to_vec(),
            };
            carried.iter().any(
                |one| matches!(one, GeneralName::IPAddress(bytes) if *bytes == octets.as_slice()),
            )
        };
        names.dns.iter().all(dns) && names.ips.iter().all(ip)
    }

    pub(super) fn signed_by(&self, ca: &[u8]) -> bool {
        match (
            X509Certificate::from_der(&self.der),
            X509Certificate::from_der(ca),
        ) {
            (Ok((_, leaf)), Ok((_, ca))) => leaf.verify_signature(Some(ca.public_key())).is_ok(),
            _ => false,
        }
    }
}

/// The certificates of a PEM text; none where it cannot be read.
pub(super) fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .unwrap_or_default()
}

//! The self-managed serving certificate: when to make a new one, and making it.
//!
//! One Secret holds all of it: `ca.crt` (the bundle that API servers are given as `caBundle`, the signing CA first),
//! `ca.key`, `tls.crt`, `tls.key`. [`plan`] says what its contents need at a given time; [`mint`] and [`rotate`]
//! answer with new contents, which the controller writes under the resourceVersion it read. Nothing here reads a clock.
//!
//! A new CA is never used at once: [`rotate`] puts it in front of the old one in the bundle and leaves the leaf alone.
//! Only when the bundle that API servers hold (`published`) has it does [`plan`] ask for a leaf from it, and the old
//! CA goes with the leaf after that one. So at each moment the leaf in use is trusted by every configuration.

mod held;

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use self::held::{Authority, Leaf, certificates};
use super::tls::Material;
use crate::manifests::SERVICE;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Life of a CA: a rotation every 16 months.
const CA_LIFE: Duration = Duration::from_secs(2 * 365 * 24 * 60 * 60);

/// Life of a leaf: a new one every 60 days.
const LEAF_LIFE: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// Certificates begin this long before they are made, for API servers whose clock is behind.
const BACKDATED: Duration = Duration::from_secs(60 * 60);

/// What the Secret holds, each as PEM; empty where the key is missing.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Contents {
    /// `ca.crt`: one CA, or two during a rotation, the signing one first.
    pub ca_bundle: String,
    /// `ca.key`: the key of the first CA in the bundle.
    pub ca_key: String,
    /// `tls.crt`.
    pub chain: String,
    /// `tls.key`.
    pub key: String,
}

/// The names that the leaf must carry.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Names {
    /// DNS names.
    pub dns: Vec<String>,
    /// IP addresses, where API servers call by one.
    pub ips: Vec<IpAddr>,
}

/// What the contents need.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Plan {
    /// Nothing before `until`; look again then, or when contents, names or configurations change.
    Keep {
        /// When something will be due.
        until: Timestamp,
    },
    /// A new leaf from the CA that is there: [`mint`].
    Renew(Reason),
    /// A new CA: [`rotate`].
    Rotate(Reason),
}

/// Why something is due.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reason {
    /// It is not there.
    Missing,
    /// It cannot be parsed, or key and certificate do not belong together.
    Unusable,
    /// Two thirds of its life are over.
    Due,
    /// The leaf lacks a name.
    Names,
    /// The leaf is signed by another CA than the first of the bundle.
    OtherCa,
}

/// The span in which a certificate is valid: from `not_before`, until just before `not_after`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Validity {
    /// First moment.
    pub not_before: Timestamp,
    /// The end.
    pub not_after: Timestamp,
}

/// Why no certificate could be made or read.
#[derive(Debug, thiserror::Error)]
pub enum CertsError {
    /// A certificate could not be parsed.
    #[error("not an X.509 certificate: {0}")]
    Malformed(String),
    /// Its dates are outside what we can count with.
    #[error("a date outside the years -9999 to 9999")]
    Date,
    /// There is no CA, or its key is of another one.
    #[error("ca.crt and ca.key hold no certificate authority that can sign: {0}")]
    NoAuthority(String),
    /// The certificate could not be made.
    #[error("making the certificate: {0}")]
    Minting(#[from] rcgen::Error),
}

impl Contents {
    /// What a replica serves, when there is any.
    pub fn serving(&self) -> Option<Material> {
        let both = !self.chain.is_empty() && !self.key.is_empty();
        both.then(|| Material {
            chain: self.chain.clone().into_bytes(),
            key: self.key.clone().into_bytes(),
        })
    }
}

impl std::fmt::Debug for Contents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contents")
            .field("chain", &self.chain)
            .finish_non_exhaustive()
    }
}

impl Names {
    /// The names by which API servers call the Service `grantgate-webhook` of `namespace`.
    pub fn of_service(namespace: &str) -> Self {
        Self {
            dns: vec![format!("{SERVICE}.{namespace}.svc")],
            ips: Vec::new(),
        }
    }

    /// Adds the host of a `--webhook-url`: an IP address (IPv6 with or without brackets) or a DNS name.
    #[must_use]
    pub fn and_host(mut self, host: &str) -> Self {
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        match bare.parse() {
            Ok(ip) if self.ips.contains(&ip) => {}
            Ok(ip) => self.ips.push(ip),
            Err(_) => {
                let name = bare.to_ascii_lowercase();
                if !self.dns.contains(&name) {
                    self.dns.push(name);
                }
            }
        }
        self
    }
}

impl Validity {
    /// When two thirds are over.
    pub fn due(&self) -> Timestamp {
        let life = self
            .not_after
            .as_second()
            .saturating_sub(self.not_before.as_second());
        let due = self.not_before.as_second().saturating_add(life / 3 * 2);
        Timestamp::from_second(due).unwrap_or(self.not_after)
    }

    /// Whether `now` lies within.
    pub fn holds(&self, now: Timestamp) -> bool {
        self.not_before <= now && now < self.not_after
    }
}

/// What `contents` need at `now`, to serve under `names`. `published` is what *every* webhook configuration of ours
/// holds as `caBundle` (the intersection, PEM); empty when there is none yet.
pub fn plan(contents: &Contents, names: &Names, published: &str, now: Timestamp) -> Plan {
    let authority = match Authority::read(contents) {
        Ok(authority) => authority,
        Err(reason) => return Plan::Rotate(reason),
    };
    // A CA whose term is near can sign no leaf of full length, so it is replaced before the leaf is looked at.
    if !authority.validity.holds(now) || authority.validity.due() <= now {
        return Plan::Rotate(Reason::Due);
    }
    let leaf = match Leaf::read(contents) {
        Ok(leaf) => leaf,
        Err(reason) => return Plan::Renew(reason),
    };
    if !leaf.validity.holds(now) {
        return Plan::Renew(Reason::Due);
    }
    if !leaf.signed_by(&authority.der) {
        let trusted = certificates(&contents.ca_bundle)
            .iter()
            .any(|ca| leaf.signed_by(ca));
        let everywhere = certificates(published).contains(&authority.der);
        return match trusted && !everywhere {
            true => Plan::Keep {
                until: leaf.validity.not_after,
            },
            false => Plan::Renew(Reason::OtherCa),
        };
    }
    if !leaf.covers(names) {
        return Plan::Renew(Reason::Names);
    }
    if leaf.validity.due() <= now {
        return Plan::Renew(Reason::Due);
    }
    Plan::Keep {
        until: leaf.validity.due().min(authority.validity.due()),
    }
}

/// New contents with a new leaf for `names`; with a new CA too where there is none that can sign.
///
/// Where the old leaf came from the signing CA already, older CAs leave the bundle: every replica has long let go of
/// what they signed.
pub fn mint(contents: &Contents, names: &Names, now: Timestamp) -> Result<Contents, CertsError> {
    let Ok(authority) = Authority::read(contents) else {
        return rotate(contents, names, now);
    };
    let settled = Leaf::read(contents).is_ok_and(|leaf| leaf.signed_by(&authority.der));
    let ca_bundle = match settled {
        true => pem_of(&authority.der),
        false => bundle(&authority.der, &contents.ca_bundle, now),
    };
    let (chain, key) = leaf(&authority, names, now)?;
    Ok(Contents {
        ca_bundle,
        ca_key: contents.ca_key.clone(),
        chain,
        key,
    })
}

/// New contents with a new CA in front of those of the bundle that are in date, at most one. The leaf stays while it
/// is good; otherwise there is nothing to protect, and a leaf of the new CA is made at once.
pub fn rotate(contents: &Contents, names: &Names, now: Timestamp) -> Result<Contents, CertsError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name.push(
        DnType::CommonName,
        format!("grantgate webhook CA, made {now}"),
    );
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    set_validity(&mut params, now, CA_LIFE, None)?;
    let der = params.self_signed(&key)?.der().clone();
    let rotated = Contents {
        ca_bundle: bundle(&der, &contents.ca_bundle, now),
        ca_key: key.serialize_pem(),
        chain: contents.chain.clone(),
        key: contents.key.clone(),
    };
    let good = Leaf::read(&rotated).is_ok_and(|leaf| {
        leaf.validity.holds(now)
            && certificates(&rotated.ca_bundle)
                .iter()
                .any(|ca| leaf.signed_by(ca))
    });
    if good {
        return Ok(rotated);
    }
    let authority = Authority::read(&rotated)
        .map_err(|reason| CertsError::NoAuthority(format!("{reason:?}")))?;
    let (chain, key) = leaf(&authority, names, now)?;
    Ok(Contents {
        chain,
        key,
        ..rotated
    })
}

/// The validity of one DER certificate.
pub fn validity(der: &[u8]) -> Result<Validity, CertsError> {
    let (_, certificate) = X509Certificate::from_der(der)
        .map_err(|problem| CertsError::Malformed(problem.to_string()))?;
    let at = |time: x509_parser::time::ASN1Time| {
        Timestamp::from_second(time.timestamp()).map_err(|_| CertsError::Date)
    };
    // The last second of an X.509 certificate is part of its validity.
    let end = at(certificate.validity().not_after)?;
    Ok(Validity {
        not_before: at(certificate.validity().not_before)?,
        not_after: Timestamp::from_second(end.as_second().saturating_add(1)).unwrap_or(end),
    })
}

/// A leaf and its key, as PEM. It ends with its CA at the latest.
fn leaf(
    authority: &Authority,
    names: &Names,
    now: Timestamp,
) -> Result<(String, String), CertsError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, SERVICE);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    for name in &names.dns {
        params
            .subject_alt_names
            .push(SanType::DnsName(name.as_str().try_into()?));
    }
    params
        .subject_alt_names
        .extend(names.ips.iter().map(|ip| SanType::IpAddress(*ip)));
    set_validity(
        &mut params,
        now,
        LEAF_LIFE,
        Some(authority.validity.not_after),
    )?;
    let issuer = Issuer::from_ca_cert_der(&authority.der, &authority.key)?;
    let certificate = params.signed_by(&key, &issuer)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

fn set_validity(
    params: &mut CertificateParams,
    now: Timestamp,
    life: Duration,
    latest: Option<Timestamp>,
) -> Result<(), CertsError> {
    let since_1970 = |at: i64| {
        u64::try_from(at)
            .map(Duration::from_secs)
            .map_err(|_| CertsError::Date)
    };
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let begin = since_1970(now.as_second())?
        .checked_sub(BACKDATED)
        .ok_or(CertsError::Date)?;
    let mut end = since_1970(now.as_second())? + life;
    if let Some(latest) = latest {
        end = end.min(since_1970(latest.as_second())?);
    }
    // The end of the year 9999 is the last that X.509 can write.
    if end > DAY * 365 * 8000 {
        return Err(CertsError::Date);
    }
    params.not_before = epoch + begin;
    params.not_after = epoch + end;
    Ok(())
}

/// `first`, and the newest other CA of `rest` that is in date: two are enough for one rotation.
fn bundle(first: &CertificateDer<'_>, rest: &str, now: Timestamp) -> String {
    let other = certificates(rest)
        .into_iter()
        .find(|ca| ca != first && validity(ca).is_ok_and(|validity| validity.holds(now)));
    pem_of(first) + &other.map(|ca| pem_of(&ca)).unwrap_or_default()
}

fn pem_of(der: &[u8]) -> String {
    let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new("CERTIFICATE", der), config)
}

#[cfg(test)]
mod tests;

//! The two Secrets of an installation, kept by the controller: the serving certificate, renewed by the clock, and the key under which
//! values of Secrets are fingerprinted, made once.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};

use crate::{
    cluster::{
        client::{CallError, within},
        secrets,
    },
    manifests,
    serve::certs::{self, CertsError, Contents, Names, Plan},
};

const LIMIT: Duration = Duration::from_secs(10);
/// Bytes of a fingerprint key.
const KEY_BYTES: usize = 32;
/// Bytes of its id; twice as many characters.
const ID_BYTES: usize = 4;

/// Why a Secret is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The API server.
    #[error("Secret {name}: {error}")]
    Call {
        /// Which.
        name: &'static str,
        /// What it says.
        error: CallError,
    },
    /// What the webhook configurations trust could not be read.
    #[error("webhook configurations: {0}")]
    Configurations(CallError),
    /// The certificate could not be made.
    #[error(transparent)]
    Certs(#[from] CertsError),
    /// The system gives no random bytes.
    #[error("no random bytes for a key")]
    NoRandomness,
}

impl CertificateError {
    fn of(name: &'static str) -> impl Fn(CallError) -> Self {
        move |error| Self::Call { name, error }
    }
}

/// The names in the serving certificate: the Service's, and the host of a webhook that runs outside.
pub fn names(namespace: &str, webhook_url: Option<&http::Uri>) -> Names {
    let names = Names::of_service(namespace);
    match webhook_url.and_then(http::Uri::host) {
        Some(host) => names.and_host(host),
        None => names,
    }
}

/// Looks after the serving certificate. `published` is what every webhook configuration trusts. Answers with the contents that hold now.
pub async fn serving(
    client: &Client,
    namespace: &str,
    names: &Names,
    published: &str,
    now: Timestamp,
) -> Result<Contents, CertificateError> {
    let failed = CertificateError::of(secrets::SERVING);
    let there = secrets::read(client, namespace, secrets::SERVING)
        .await
        .map_err(&failed)?;
    let contents = there.as_ref().map(contents_of).unwrap_or_default();
    let made = match certs::plan(&contents, names, published, now) {
        Plan::Keep { .. } => return Ok(contents),
        Plan::Renew(reason) => {
            tracing::info!(?reason, "making a serving certificate");
            certs::mint(&contents, names, now)?
        }
        Plan::Rotate(reason) => {
            tracing::info!(?reason, "making a certificate authority");
            certs::rotate(&contents, names, now)?
        }
    };
    let mut secret = there.unwrap_or_else(|| new(secrets::SERVING));
    let data = [
        ("ca.crt", &made.ca_bundle),
        ("ca.key", &made.ca_key),
        ("tls.crt", &made.chain),
        ("tls.key", &made.key),
    ];
    secret
        .data
        .get_or_insert_default()
        .extend(data.map(|(key, text)| (key.to_owned(), ByteString(text.as_bytes().to_vec()))));
    write(client, namespace, secret).await.map_err(failed)?;
    Ok(made)
}

fn contents_of(secret: &Secret) -> Contents {
    let text = |key| {
        secrets::bytes(secret, key)
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .unwrap_or_default()
    };
    Contents {
        ca_bundle: text("ca.crt"),
        ca_key: text("ca.key"),
        chain: text("tls.crt"),
        key: text("tls.key"),
    }
}

/// Makes the fingerprint key when there is none. One that is there is never replaced, usable or not: grants are bound to its id, and
/// replacing it is for a person, who deletes the Secret.
pub async fn fingerprint(client: &Client, namespace: &str) -> Result<Secret, CertificateError> {
    let failed = CertificateError::of(secrets::FINGERPRINT);
    let there = secrets::read(client, namespace, secrets::FINGERPRINT)
        .await
        .map_err(&failed)?;
    if let Some(secret) = there {
        return Ok(secret);
    }
    tracing::info!("making the fingerprint key");
    let mut secret = new(secrets::FINGERPRINT);
    let id = hex::encode(random::<ID_BYTES>()?);
    secret.data = Some(BTreeMap::from([
        ("id".to_owned(), ByteString(id.into_bytes())),
        (
            "key".to_owned(),
            ByteString(random::<KEY_BYTES>()?.to_vec()),
        ),
    ]));
    match write(client, namespace, secret).await {
        Err(error) if error.is_already_exists() => {
            let there = secrets::read(client, namespace, secrets::FINGERPRINT).await;
            Ok(there.map_err(failed)?.unwrap_or_default())
        }
        other => other.map_err(failed),
    }
}

fn random<const N: usize>() -> Result<[u8; N], CertificateError> {
    let mut bytes = [0; N];
    rustls::crypto::ring::default_provider()
        .secure_random
        .fill(&mut bytes)
        .map_err(|_| CertificateError::NoRandomness)?;
    Ok(bytes)
}

fn new(name: &str) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(manifests::labels()),
            ..ObjectMeta::default()
        },
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    }
}

/// Creates, or replaces the revision that was read.
async fn write(client: &Client, namespace: &str, secret: Secret) -> Result<Secret, CallError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let params = PostParams::default();
    match (&secret.metadata.resource_version, &secret.metadata.name) {
        (Some(_), Some(name)) => within(LIMIT, api.replace(name, &params, &secret)).await,
        _ => within(LIMIT, api.create(&params, &secret)).await,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_certificate_names_service_and_outside_host() {
        let outside: http::Uri = "https://127.0.0.1:9443".parse().unwrap();
        let names = names("grantgate-system", Some(&outside));
        assert_eq!(names.dns, ["grantgate-webhook.grantgate-system.svc"]);
        assert_eq!(
            names.ips,
            ["127.0.0.1".parse::<std::net::IpAddr>().unwrap()]
        );
    }

    #[test]
    fn two_keys_differ() {
        assert_ne!(
            random::<KEY_BYTES>().unwrap(),
            random::<KEY_BYTES>().unwrap()
        );
    }
}

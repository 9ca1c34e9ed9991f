//! The two Secrets of an installation: the serving certificate and the key under which Secret values are fingerprinted. Each is read by
//! name, since an account that may list Secrets may read them all.

use std::time::Duration;

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, Client};

use crate::{
    cluster::client::{CallError, within},
    decide::redact::Redactor,
    serve::Material,
};

/// Secret with `id` (text) and `key` (bytes).
pub use crate::manifests::FINGERPRINT_KEY as FINGERPRINT;
/// Secret with `ca.crt`, `ca.key`, `tls.crt`, `tls.key`.
pub use crate::manifests::SERVING_CERT as SERVING;

const LIMIT: Duration = Duration::from_secs(5);

/// Reads a Secret by name; `None`: there is none.
pub async fn read(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<Secret>, CallError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    within(LIMIT, api.get_opt(name)).await
}

/// The bytes under a key of a Secret.
pub fn bytes<'s>(secret: &'s Secret, key: &str) -> Option<&'s [u8]> {
    let ByteString(bytes) = secret.data.as_ref()?.get(key)?;
    (!bytes.is_empty()).then_some(bytes.as_slice())
}

/// The serving certificate that a Secret holds.
pub fn material(secret: &Secret) -> Option<Material> {
    Some(Material {
        chain: bytes(secret, "tls.crt")?.to_vec(),
        key: bytes(secret, "tls.key")?.to_vec(),
    })
}

/// The fingerprint key that a Secret holds.
pub fn redactor(secret: &Secret) -> Option<Redactor> {
    let id = std::str::from_utf8(bytes(secret, "id")?).ok()?.trim();
    let key = bytes(secret, "key")?;
    let plain =
        !id.is_empty() && id.len() <= 32 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (plain && key.len() >= 32).then(|| Redactor::new(id, key))
}

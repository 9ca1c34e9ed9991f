//! The namespace, the accounts in it, and the canary's one right.

use kube::core::DynamicObject;
use serde_json::json;

use super::{binding, object, role, rule_for};

/// ServiceAccount of the webhook replicas.
pub const WEBHOOK: &str = "grantgate-webhook";
/// ServiceAccount of the controller.
pub const CONTROLLER: &str = "grantgate-controller";
/// ServiceAccount, and ConfigMap that never exists, of the call that proves a gate entry.
pub const CANARY: &str = "grantgate-canary";
/// ServiceAccount of `grantgate cleanup`.
pub const UNINSTALL: &str = "grantgate-uninstall";
/// ServiceAccount that the gateway service will run as. Policies know the name; the account is made with the service.
pub const GATEWAY: &str = "grantgate-gateway";

/// The namespace, its accounts, and the canary's right.
pub(super) fn objects(namespace: &str) -> Vec<DynamicObject> {
    let mut home = object("v1", "Namespace", None, namespace, json!({}));
    let enforce = (
        "pod-security.kubernetes.io/enforce".to_owned(),
        "restricted".to_owned(),
    );
    home.metadata
        .labels
        .get_or_insert_default()
        .extend([enforce]);
    let mut objects = vec![home];
    for account in [WEBHOOK, CONTROLLER, UNINSTALL] {
        objects.push(object(
            "v1",
            "ServiceAccount",
            Some(namespace),
            account,
            json!({}),
        ));
    }
    // The canary's token is asked for by the controller, ten minutes at a time; no Pod runs as it.
    let canary = json!({"automountServiceAccountToken": false});
    objects.push(object(
        "v1",
        "ServiceAccount",
        Some(namespace),
        CANARY,
        canary,
    ));
    // A dry-run server-side apply of one name is the one form of create that RBAC can limit to a name.
    let apply = rule_for("", &["configmaps"], &[CANARY], &["create", "patch"]);
    objects.push(role(Some(namespace), CANARY, json!([apply])));
    objects.push(binding(Some(namespace), CANARY, namespace, CANARY));
    objects
}

//! The namespace, the accounts in it, and the canary's one right.

use kube::core::DynamicObject;
use serde_json::json;

use super::{JANITORS, binding, object, role, rule_for};
use crate::api::ServiceAccountRef;

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

/// Username of an account of ours.
pub fn username(namespace: &str, account: &str) -> String {
    let account = ServiceAccountRef {
        namespace: namespace.to_owned(),
        name: account.to_owned(),
    };
    account.username()
}

/// Usernames of all our accounts: no agent acts under them, and no webhook of ours waits for them.
pub fn own_accounts(namespace: &str) -> Vec<String> {
    [WEBHOOK, CONTROLLER, CANARY, GATEWAY, UNINSTALL]
        .map(|account| username(namespace, account))
        .to_vec()
}

/// Usernames that are never sent to the gate, whatever an identity declares: our own accounts, and those without which nothing is removed
/// from the cluster any more.
pub fn never_gated(namespace: &str) -> Vec<String> {
    let mut names = own_accounts(namespace);
    names.extend(JANITORS.map(str::to_owned));
    names
}

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

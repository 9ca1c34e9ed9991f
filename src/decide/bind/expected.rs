//! What each recorded review changes.

/// What of each recorded review is bound: the paths of its change, or `no-op`.
const RECORDED: [(&str, &str); 78] = [
    ("apply-create-turns-into-update-call-1", "object"),
    ("apply-create-turns-into-update-call-2", "/data/mine"),
    (
        "conflict-retry-after-same-field-write-call-1",
        "/spec/replicas",
    ),
    (
        "conflict-retry-after-same-field-write-call-2",
        "/spec/replicas",
    ),
    ("conflict-retry-after-status-write-call-1", "/spec/replicas"),
    ("conflict-retry-after-status-write-call-2", "/spec/replicas"),
    (
        "conflict-retry-after-unrelated-spec-write-call-1",
        "/spec/replicas",
    ),
    (
        "conflict-retry-after-unrelated-spec-write-call-2",
        "/spec/replicas",
    ),
    (
        "conflict-retry-of-scale-has-no-generation-call-1",
        "/spec/replicas",
    ),
    (
        "conflict-retry-of-scale-has-no-generation-call-2",
        "/spec/replicas",
    ),
    ("connect-exec-command", "object"),
    ("connect-exec-interactive", "object"),
    ("connect-node-proxy", "object"),
    ("connect-pod-proxy-delete", "object"),
    ("connect-portforward-with-port", "object"),
    ("connect-portforward-without-port", "object"),
    ("connect-service-proxy-scheme-name-port", "object"),
    ("create-custom-resource-nested-200-levels", "object"),
    ("create-custom-resource-odd-values", "object"),
    ("create-deployment-by-kubectl-apply", "object"),
    ("create-deployment-by-kubectl-create", "object"),
    ("create-dry-run", "object"),
    ("create-generatename-collision-call-1", "object"),
    ("create-generatename-collision-call-2", "object"),
    ("create-helm-release-secret", "object"),
    ("create-job-1", "object"),
    ("create-job-2", "object"),
    ("create-pod-1", "object"),
    ("create-pod-2", "object"),
    ("create-pod-binding", "object"),
    ("create-pod-client-volume-replaces-server-made", "object"),
    ("create-pod-eviction", "object"),
    ("create-pod-eviction-by-kubectl-drain", "object"),
    ("create-pod-eviction-dry-run-in-body", "object"),
    ("create-secret-stringdata-becomes-data", "object"),
    ("create-service-client-chosen-ip-and-port", "object"),
    ("create-service-loadbalancer-1", "object"),
    ("create-service-loadbalancer-2", "object"),
    ("create-serviceaccount-token", "object"),
    ("create-serviceaccount-token-dry-run-still-mints", "object"),
    ("delete-conflict-after-status-write-call-1", "options"),
    ("delete-conflict-after-status-write-call-2", "options"),
    ("delete-deployment-foreground", "options"),
    ("delete-job-without-options-means-orphan", "options"),
    ("delete-namespace-has-server-made-precondition", "options"),
    ("delete-pod-all-options", "options"),
    ("delete-pod-bound-default-is-one-call", "options"),
    ("delete-pod-grace-0-call-1", "options"),
    ("delete-pod-grace-0-call-2", "options"),
    ("delete-pod-grace-0-call-3", "options"),
    ("delete-pod-unscheduled-shows-grace-0", "options"),
    ("deletecollection-has-no-name", "options"),
    ("deletecollection-pod-has-no-grace", "options"),
    ("garbage-collector-deletes-dependent", "options"),
    ("label-a-to-b-again-after-revert", "/metadata/labels/tier"),
    ("label-a-to-b-first-use", "/metadata/labels/tier"),
    ("patch-object-recreated-meanwhile-call-1", "/data/a"),
    ("patch-object-recreated-meanwhile-call-2", "/data/a"),
    ("patch-stale-first-oldobject-call-1", "/data/a"),
    ("patch-stale-first-oldobject-call-2", "/data/a"),
    (
        "put-retry-removes-foreground-finalizer-call-1",
        "/spec/replicas",
    ),
    (
        "put-retry-removes-foreground-finalizer-call-2",
        "/metadata/finalizers /spec/replicas",
    ),
    (
        "sent-twice-with-one-uid-after-503-and-retry-after",
        "/data/a",
    ),
    (
        "update-clears-managedfields",
        "as ops-bot (Apply) | as owner (Update)",
    ),
    ("update-csr-approval", "/status/conditions"),
    ("update-custom-resource-scale", "/spec/replicas"),
    ("update-deployment-scale", "/spec/replicas"),
    (
        "update-deployment-status-changes-metadata",
        "/metadata/annotations /metadata/finalizers",
    ),
    (
        "update-env-appended-by-json-patch",
        "/spec/template/spec/containers/[name=c]/env/[name=B]",
    ),
    (
        "update-env-prepended-by-strategic-merge-patch",
        "/spec/template/spec/containers/[name=c]/env/[name=B] /spec/template/spec/containers/[name=c]/env/[order]",
    ),
    ("update-managedfields-only", "as ops-bot (Apply)"),
    (
        "update-node-unschedulable-by-kubectl-cordon",
        "/spec/unschedulable",
    ),
    ("update-noop-is-called", "no-op"),
    (
        "update-pod-ephemeralcontainers",
        "/spec/ephemeralContainers",
    ),
    (
        "update-removes-last-finalizer-and-thereby-deletes",
        "/metadata/finalizers",
    ),
    (
        "update-restartedat-by-kubectl-rollout-restart",
        "/spec/template/metadata/annotations",
    ),
    (
        "update-service-status-sets-ownerreference",
        "/metadata/ownerReferences",
    ),
    ("update-secret-value", "/data/password"),
];

/// Reviews that show one thing from several hands, by the beginning of their names.
const SAME: [(&str, &str); 2] = [
    ("update-replicas-by-", "/spec/replicas"),
    ("userinfo-", "object"),
];

/// The expected row; absent for a review that nobody classified.
pub fn of(name: &str) -> Option<&'static str> {
    let exact = RECORDED.iter().find(|(recorded, _)| *recorded == name);
    exact
        .or_else(|| SAME.iter().find(|(prefix, _)| name.starts_with(prefix)))
        .map(|row| row.1)
}

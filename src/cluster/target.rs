//! Where a target stands in the API.

use std::fmt::Write as _;

/// The path of all objects of one resource, in one namespace where it is namespaced.
pub fn collection(group: &str, version: &str, namespace: Option<&str>, resource: &str) -> String {
    let root = if group.is_empty() {
        format!("/api/{}", escaped(version))
    } else {
        format!("/apis/{}/{}", escaped(group), escaped(version))
    };
    let namespace = namespace
        .map(|namespace| format!("/namespaces/{}", escaped(namespace)))
        .unwrap_or_default();
    format!("{root}{namespace}/{}", escaped(resource))
}

/// A watch of one name after a revision, which the server ends after so many seconds.
pub fn watch(collection: &str, name: &str, after: &str, seconds: u32) -> String {
    format!(
        "{collection}?watch=1&fieldSelector=metadata.name%3D{}&resourceVersion={}&timeoutSeconds={seconds}",
        escaped(name),
        escaped(after)
    )
}

/// Percent-encoded but for what names consist of: some names hold `:`, and some may hold `&`.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_') {
            out.push(char::from(byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Whether the replicas of a resource's scale stand in the resource itself at `/spec/replicas`. Of custom resources that is not known.
pub fn scale_stands_in_its_parent(group: &str, resource: &str) -> bool {
    matches!(
        (group, resource),
        ("apps", "deployments" | "statefulsets" | "replicasets") | ("", "replicationcontrollers")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_add_to_the_query() {
        let roles = collection("rbac.authorization.k8s.io", "v1", None, "clusterroles");
        assert_eq!(roles, "/apis/rbac.authorization.k8s.io/v1/clusterroles");
        assert_eq!(
            watch(&roles, "a&resourceVersion=1", "42", 3),
            format!(
                "{roles}?watch=1&fieldSelector=metadata.name%3Da%26resourceVersion%3D1&resourceVersion=42&timeoutSeconds=3"
            )
        );
        assert_eq!(
            collection("", "v1", Some("web"), "pods"),
            "/api/v1/namespaces/web/pods"
        );
    }
}

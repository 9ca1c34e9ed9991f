//! The audit log can be read, and nothing can be told from something not yet written.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;

use crate::cluster::audit::Select;
use crate::cluster::{User, shared};

#[tokio::test]
async fn an_answered_request_is_in_the_audit_log_with_who_what_and_how() {
    let cluster = shared().await;
    let namespace = cluster.namespace("audit", &[]).await;
    let user = cluster.service_account(&namespace, "writer").await;
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
    let mark = cluster.audit_mark().await;
    for server in 0..2 {
        let maps: Api<ConfigMap> = Api::namespaced(cluster.client_at(server, &user), &namespace);
        maps.create(&PostParams::default(), &map).await.unwrap_err();
    }
    let select = Select::since(&mark)
        .user(&user)
        .on("configmaps")
        .namespace(&namespace);
    let events = cluster.audit_settled(&select.clone().writes()).await;
    assert_eq!(events.len(), 2);
    assert_eq!(events[0].verb, "create");
    assert_eq!(events[0].code(), 403);
    assert_eq!(events[0].user.groups[..2], user.groups[..2]);
    assert!(
        events[0]
            .user
            .extra
            .contains_key("authentication.kubernetes.io/credential-id")
    );
    assert_eq!(
        events[0].note("decision"),
        Some("forbid"),
        "{:?}",
        events[0].annotations
    );
    assert_ne!(events[0].server, events[1].server);

    assert!(cluster.audit(&select.clone().code(201)).is_empty());
    assert!(cluster.audit(&select.clone().verbs(&["delete"])).is_empty());
    assert!(cluster.audit(&select.clone().name("b")).is_empty());
    assert!(cluster.audit(&select.user(&User::ana())).is_empty());
}

#[tokio::test]
async fn what_was_answered_before_a_mark_is_not_counted_after_it() {
    let cluster = shared().await;
    let namespace = cluster.namespace("audit", &[]).await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.admin(), &namespace);
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
    let start = cluster.audit_mark().await;
    maps.create(&PostParams::default(), &map).await.unwrap();
    let mark = cluster.audit_mark().await;
    let writes = Select::since(&mark)
        .on("configmaps")
        .namespace(&namespace)
        .user(&User::admin())
        .writes();
    assert_eq!(cluster.audit_settled(&writes).await.len(), 0);
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    let events = cluster.wait_for_audit(&writes, 1).await;
    assert_eq!(events[0].verb, "delete");
    let all = Select::since(&start)
        .on("configmaps")
        .namespace(&namespace)
        .user(&User::admin())
        .writes();
    assert_eq!(cluster.audit(&all).len(), 2);
}

#[tokio::test]
async fn a_subresource_is_told_from_its_resource() {
    let cluster = shared().await;
    let namespace = cluster.namespace("audit", &[]).await;
    let mark = cluster.audit_mark().await;
    cluster.service_account(&namespace, "one").await;
    let in_namespace = Select::since(&mark)
        .namespace(&namespace)
        .user(&User::admin())
        .verbs(&["create"]);
    let tokens = cluster
        .audit_settled(&in_namespace.clone().on("serviceaccounts/token"))
        .await;
    assert_eq!(tokens.len(), 1);
    assert_eq!(tokens[0].object_ref.as_ref().unwrap().name, "one");
    assert_eq!(cluster.audit(&in_namespace.on("serviceaccounts")).len(), 1);
}

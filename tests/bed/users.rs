//! Roles: each user is who it says, to the API server and to the tools.

use k8s_openapi::api::authentication::v1::{SelfSubjectReview, UserInfo};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use serde_json::json;

use crate::cluster::{Cluster, User, shared};

async fn who_am_i(cluster: &Cluster, server: usize, user: &User) -> UserInfo {
    let reviews: Api<SelfSubjectReview> = Api::all(cluster.client_at(server, user));
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .unwrap();
    review.status.unwrap().user_info.unwrap()
}

#[tokio::test]
async fn every_token_user_has_its_name_and_groups_on_both_servers() {
    let cluster = shared().await;
    for user in User::everyone() {
        for server in 0..2 {
            let info = who_am_i(cluster, server, &user).await;
            assert_eq!(info.username.as_deref(), Some(user.name.as_str()));
            let mut groups = user.groups.clone();
            groups.push("system:authenticated".to_owned());
            assert_eq!(info.groups, Some(groups));
            assert!(info.uid.is_some());
        }
    }
}

#[tokio::test]
async fn a_service_account_has_a_uid_and_a_new_credential_id_with_each_token() {
    let cluster = shared().await;
    let namespace = cluster.namespace("agents", &[]).await;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let user = cluster.service_account(&namespace, "ops-bot").await;
        let info = who_am_i(cluster, 1, &user).await;
        assert_eq!(info.username.as_deref(), Some(user.name.as_str()));
        assert!(
            user.groups
                .iter()
                .all(|group| info.groups.as_ref().unwrap().contains(group))
        );
        let credential = info
            .extra
            .unwrap()
            .remove("authentication.kubernetes.io/credential-id")
            .unwrap();
        seen.push((info.uid.unwrap(), credential));
    }
    assert_eq!(seen[0].0, seen[1].0, "one account");
    assert_ne!(seen[0].1, seen[1].1, "two tokens");
}

#[tokio::test]
async fn a_certificate_makes_anybody_known_without_a_restart() {
    let cluster = shared().await;
    let user = cluster.certificate_user("eve@example.com", Some("sre-oncall"));
    let info = who_am_i(cluster, 0, &user).await;
    assert_eq!(info.username.as_deref(), Some("eve@example.com"));
    assert!(info.groups.unwrap().contains(&"sre-oncall".to_owned()));
}

#[tokio::test]
async fn a_user_may_do_what_was_allowed_and_nothing_else() {
    let cluster = shared().await;
    let (here, there) = (
        cluster.namespace("here", &[]).await,
        cluster.namespace("there", &[]).await,
    );
    let user = cluster.service_account(&here, "worker").await;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}]);
    cluster.allow(&user, Some(&here), rules).await;
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
    for server in 0..2 {
        let maps: Api<ConfigMap> = Api::namespaced(cluster.client_at(server, &user), &here);
        let name = format!("a-{server}");
        let map = ConfigMap {
            metadata: kube::api::ObjectMeta {
                name: Some(name),
                ..Default::default()
            },
            ..map.clone()
        };
        maps.create(&PostParams::default(), &map).await.unwrap();
        assert!(
            maps.get("a-0").await.is_err(),
            "create does not include get"
        );
    }
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(&user), &there);
    assert!(
        maps.create(&PostParams::default(), &map).await.is_err(),
        "another namespace"
    );
}

#[tokio::test]
async fn kubectl_runs_as_its_user_with_exit_code_and_both_outputs() {
    let cluster = shared().await;
    let namespace = cluster.namespace("tools", &[("env", "prod")]).await;
    let admin = cluster.kubectl(&User::admin());
    let manifest =
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a, namespace: {namespace}}}\n");
    assert_eq!(
        admin.apply(&manifest).await.expect_ok(),
        "configmap/a created\n"
    );

    let refused = cluster
        .kubectl(&User::dan())
        .run(["delete", "configmap", "a", "-n", &namespace])
        .await;
    assert_eq!(refused.code, Some(1));
    assert_eq!(refused.stdout, "");
    assert!(refused.stderr.contains("dan@example.com"), "{refused:?}");

    let me = cluster.certificate_user("eve@example.com", None);
    let whoami = cluster
        .kubectl(&me)
        .run([
            "auth",
            "whoami",
            "-o",
            "jsonpath={.status.userInfo.username}",
        ])
        .await;
    assert_eq!(whoami.expect_ok(), "eve@example.com");
}

#[tokio::test]
async fn the_tools_are_the_versions_that_the_module_file_names() {
    let cluster = shared().await;
    let version = cluster
        .kubectl(&User::admin())
        .run(["version"])
        .await
        .expect_ok();
    let expected = format!("Server Version: {}", cluster.programs().kubernetes());
    assert!(version.contains(&expected), "{version}");
    let helm = cluster.helm(&User::admin()).run(["list", "-A"]).await;
    assert!(helm.ok(), "{helm:?}");
}

//! Processes: two API servers on one etcd, their ends and their returns.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;

use crate::cluster::wait::{PATIENCE, eventually};
use crate::cluster::{Cluster, Options, Part, User, shared};

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"key": "value"}})).unwrap()
}

fn config_maps(cluster: &Cluster, server: usize, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(cluster.client_at(server, &User::admin()), namespace)
}

#[tokio::test]
async fn two_api_servers_on_one_etcd_see_each_others_writes() {
    let cluster = shared().await;
    let namespace = cluster.namespace("pair", &[]).await;
    let (first, second) = (
        config_maps(cluster, 0, &namespace),
        config_maps(cluster, 1, &namespace),
    );
    let made = first
        .create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    assert_eq!(
        second.get("a").await.unwrap().metadata.uid,
        made.metadata.uid
    );
    second
        .create(&PostParams::default(), &config_map("b"))
        .await
        .unwrap();
    first.get("b").await.unwrap();
    assert_ne!(cluster.endpoint(0).url, cluster.endpoint(1).url);
}

#[tokio::test]
async fn a_namespace_is_really_deleted_where_controllers_run() {
    let cluster = shared().await;
    let namespace = cluster.namespace("gone", &[]).await;
    config_maps(cluster, 0, &namespace)
        .create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(cluster.admin());
    namespaces
        .delete(&namespace, &Default::default())
        .await
        .unwrap();
    let gone = async || {
        namespaces
            .get_opt(&namespace)
            .await
            .ok()?
            .is_none()
            .then_some(())
    };
    eventually("the namespace is gone", PATIENCE, gone)
        .await
        .unwrap();
}

#[tokio::test]
async fn what_was_written_survives_the_death_of_api_server_and_etcd() {
    let cluster = Cluster::start(Options::default()).await;
    let maps = config_maps(&cluster, 0, "default");
    let made = maps
        .create(&PostParams::default(), &config_map("kept"))
        .await
        .unwrap();

    cluster.kill(Part::Server(0)).await.unwrap();
    assert!(maps.get("kept").await.is_err(), "a killed server answers");
    cluster.restart(Part::Server(0)).await.unwrap();
    assert_eq!(
        maps.get("kept").await.unwrap().metadata.uid,
        made.metadata.uid
    );

    cluster.kill(Part::Etcd).await.unwrap();
    cluster.restart(Part::Etcd).await.unwrap();
    assert_eq!(
        maps.get("kept").await.unwrap().metadata.uid,
        made.metadata.uid
    );
    maps.create(&PostParams::default(), &config_map("after"))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_paused_api_server_answers_only_after_it_was_resumed() {
    let cluster = Cluster::start(Options::default()).await;
    let maps = config_maps(&cluster, 0, "default");
    maps.list(&Default::default()).await.unwrap();
    cluster.pause(Part::Server(0)).await.unwrap();
    let all = ListParams::default();
    let mut list = std::pin::pin!(maps.list(&all));
    assert!(
        tokio::time::timeout(Duration::from_millis(300), &mut list)
            .await
            .is_err(),
        "a stopped server answers"
    );
    cluster.resume(Part::Server(0)).await.unwrap();
    list.await.unwrap();
}

#[tokio::test]
async fn everything_is_down_and_gone_after_drop() {
    let options = Options {
        servers: 2,
        controller_manager: true,
        ..Options::default()
    };
    let cluster = Cluster::start(options).await;
    let dir = cluster.dir().to_path_buf();
    let mut pids = Vec::new();
    for part in [
        Part::Etcd,
        Part::Server(0),
        Part::Server(1),
        Part::ControllerManager,
    ] {
        pids.push(cluster.pid(part).await.unwrap());
    }
    let runs = |pid: &&u32| Path::new("/proc").join(pid.to_string()).exists();
    assert_eq!(pids.iter().filter(runs).count(), 4);
    drop(cluster);
    assert_eq!(pids.iter().filter(runs).count(), 0, "left behind");
    assert!(!dir.exists());
}

//! The proxy in front of an API server stalls, shifts, counts, holds and cuts as it says.

use std::time::Duration;

use futures::StreamExt;
use http::Method;
use jiff::SignedDuration;
use jiff::fmt::rfc2822::DateTimeParser;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{PostParams, WatchEvent, WatchParams};
use serde_json::json;

use crate::cluster::apiproxy::ApiProxy;
use crate::cluster::faults::{Moment, Seen};
use crate::cluster::http::{Answer, Tls, send};
use crate::cluster::{Cluster, User, shared};

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

/// A namespace, ConfigMaps in it through the proxy, and the same at the API server itself.
async fn stage(cluster: &Cluster, proxy: &ApiProxy) -> (Api<ConfigMap>, Api<ConfigMap>) {
    let namespace = cluster.namespace("proxied", &[]).await;
    let through = User::admin().client(proxy.endpoint()).unwrap();
    (
        Api::namespaced(through, &namespace),
        Api::namespaced(cluster.admin(), &namespace),
    )
}

fn creates_map(seen: &Seen) -> bool {
    seen.is_write() && seen.path.ends_with("/configmaps")
}

#[tokio::test]
async fn a_stalled_watch_stays_open_and_delivers_when_it_goes_on() {
    let cluster = shared().await;
    let proxy = cluster.api_proxy(0);
    let (through, direct) = stage(cluster, &proxy).await;
    let mut watch = through
        .watch(&WatchParams::default().timeout(60), "0")
        .await
        .unwrap()
        .boxed();
    direct
        .create(&PostParams::default(), &config_map("before"))
        .await
        .unwrap();
    let mut added = async || loop {
        match watch.next().await.unwrap().unwrap() {
            WatchEvent::Added(map) if map.metadata.name.as_deref() != Some("kube-root-ca.crt") => {
                return map.metadata.name.unwrap();
            }
            _ => {}
        }
    };
    assert_eq!(added().await, "before");

    proxy.faults().stall_watches(true);
    direct
        .create(&PostParams::default(), &config_map("during"))
        .await
        .unwrap();
    assert!(
        tokio::time::timeout(Duration::from_millis(500), added())
            .await
            .is_err(),
        "a stalled watch delivers"
    );
    assert_eq!(
        through.get("during").await.unwrap().metadata.name.unwrap(),
        "during",
        "only watches are stalled"
    );
    proxy.faults().stall_watches(false);
    assert_eq!(added().await, "during");
    assert_eq!(
        proxy.faults().count(Seen::is_watch),
        1,
        "the watch was the same all the time"
    );
}

#[tokio::test]
async fn a_users_token_passes_and_requests_are_counted_by_method_and_path() {
    let cluster = shared().await;
    let proxy = cluster.api_proxy(1);
    let (through, _) = stage(cluster, &proxy).await;
    for name in ["a", "b"] {
        through
            .create(&PostParams::default(), &config_map(name))
            .await
            .unwrap();
    }
    through.get("a").await.unwrap();
    let account = cluster.service_account("default", "proxied").await;
    let refused: Api<ConfigMap> =
        Api::namespaced(account.client(proxy.endpoint()).unwrap(), "default");
    let error = refused.get("a").await.unwrap_err().to_string();
    assert!(error.contains(&account.name), "{error}");

    let faults = proxy.faults();
    assert_eq!(faults.count(creates_map), 2);
    let seen = faults.seen();
    assert_eq!(
        faults.counts()[&("POST".to_owned(), seen[0].path.clone())],
        2
    );
    assert_eq!((seen[0].status, seen[3].status), (Some(201), Some(403)));
    assert!(String::from_utf8_lossy(&seen[1].body).contains("\"b\""));
    faults.forget();
    assert_eq!(faults.seen().len(), 0);
}

#[tokio::test]
async fn the_date_of_answers_is_shifted_as_said() {
    let cluster = shared().await;
    let proxy = cluster.api_proxy(0);
    let tls = Tls::trusting(&proxy.endpoint().authority_der).unwrap();
    let url = format!("{}/version", proxy.endpoint().url);
    let ahead = |answer: Answer| {
        let date = DateTimeParser::new()
            .parse_timestamp(answer.headers["date"].as_bytes())
            .unwrap();
        date.duration_since(grantgate::cluster::clock::Clock::local())
    };
    let near = |ahead: SignedDuration, seconds: i64| (ahead.as_secs() - seconds).abs() < 300;
    assert!(near(
        ahead(send(&tls, Method::GET, &url, &[], "").await.unwrap()),
        0
    ));
    for seconds in [3600, -7200] {
        proxy.faults().shift_date(seconds);
        assert!(near(
            ahead(send(&tls, Method::GET, &url, &[], "").await.unwrap()),
            seconds
        ));
    }
}

#[tokio::test]
async fn a_write_cut_before_the_server_is_not_made_and_one_cut_after_it_is() {
    let cluster = shared().await;
    let proxy = cluster.api_proxy(0);
    let (through, direct) = stage(cluster, &proxy).await;
    for (moment, name, made) in [
        (Moment::Before, "before", false),
        (Moment::After, "after", true),
    ] {
        let trap = proxy.faults().cut(moment, 2, creates_map);
        through
            .create(
                &PostParams::default(),
                &config_map(&format!("first-{name}")),
            )
            .await
            .unwrap();
        assert!(!trap.is_sprung(), "the first of two");
        through
            .create(&PostParams::default(), &config_map(name))
            .await
            .unwrap_err();
        assert!(trap.is_sprung());
        assert_eq!(
            direct.get_opt(name).await.unwrap().is_some(),
            made,
            "{name}"
        );
        through
            .create(
                &PostParams::default(),
                &config_map(&format!("third-{name}")),
            )
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_landed_write_can_be_answered_with_503() {
    let cluster = shared().await;
    let proxy = cluster.api_proxy(0);
    let (through, direct) = stage(cluster, &proxy).await;
    let _trap = proxy.faults().answer(Moment::After, 1, 503, creates_map);
    let error = through
        .create(&PostParams::default(), &config_map("landed"))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, kube::Error::Api(status) if status.code == 503),
        "{error}"
    );
    direct.get("landed").await.unwrap();
    assert_eq!(
        proxy.faults().count(creates_map),
        1,
        "the client does not repeat by itself"
    );
}

#[tokio::test]
async fn a_held_write_is_made_on_release_and_never_when_the_trap_is_dropped() {
    let cluster = shared().await;
    let proxy = cluster.api_proxy(0);
    let (through, direct) = stage(cluster, &proxy).await;
    for (name, release) in [("released", true), ("dropped", false)] {
        let trap = proxy.faults().hold(Moment::Before, 1, creates_map);
        let (through, map) = (through.clone(), config_map(name));
        let create =
            tokio::spawn(async move { through.create(&PostParams::default(), &map).await });
        assert!(String::from_utf8_lossy(&trap.sprung().await.body).contains(name));
        assert!(
            direct.get_opt(name).await.unwrap().is_none(),
            "it is held before the server"
        );
        if release {
            trap.release();
        } else {
            drop(trap);
        }
        assert_eq!(create.await.unwrap().is_ok(), release);
        assert_eq!(direct.get_opt(name).await.unwrap().is_some(), release);
    }
}

#[tokio::test]
async fn a_severed_proxy_cuts_open_watches_and_refuses_until_it_is_whole_again() {
    let cluster = shared().await;
    let proxy = cluster.api_proxy(0);
    let (through, _) = stage(cluster, &proxy).await;
    let mut watch = through
        .watch(&WatchParams::default().timeout(60), "0")
        .await
        .unwrap()
        .boxed();
    proxy.faults().sever(true);
    while let Some(Ok(_)) = watch.next().await {}
    assert!(through.get_opt("a").await.is_err());
    proxy.faults().sever(false);
    assert!(through.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn only_the_matching_requests_are_delayed() {
    let cluster = shared().await;
    let proxy = cluster.api_proxy(0);
    let (through, _) = stage(cluster, &proxy).await;
    proxy.faults().delay(Duration::from_secs(3600), creates_map);
    let (slow, map) = (through.clone(), config_map("slow"));
    let create = tokio::spawn(async move { slow.create(&PostParams::default(), &map).await });
    let came = async || (proxy.faults().count(creates_map) == 1).then_some(());
    crate::cluster::wait::eventually("the create arrives", Duration::from_secs(30), came)
        .await
        .unwrap();
    assert!(
        through.get_opt("slow").await.unwrap().is_none(),
        "others pass meanwhile"
    );
    assert!(!create.is_finished());
    create.abort();
    proxy.faults().delay(Duration::ZERO, |_| true);
    through
        .create(&PostParams::default(), &config_map("quick"))
        .await
        .unwrap();
}

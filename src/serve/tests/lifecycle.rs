//! From not ready to drained: certificates, time-outs, the end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::{Semaphore, watch};

use super::super::certs::Contents;
use super::super::metrics::Cause;
use super::super::*;
use super::peer::Peer;
use super::stage::{Scripted, Stage, certificate, echo, limits, loopback, review};

/// A directory of its own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("grantgate-{name}-{}", std::process::id()));
        let _not_there = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _best_effort = std::fs::remove_dir_all(&self.0);
    }
}

/// Writes a Secret as the kubelet does: files in a directory of their own, and `..data` swapped over to it.
fn project(into: &Path, generation: &str, contents: &Contents) {
    let version = into.join(format!("..{generation}"));
    std::fs::create_dir(&version).unwrap();
    std::fs::write(version.join("tls.crt"), &contents.chain).unwrap();
    std::fs::write(version.join("tls.key"), &contents.key).unwrap();
    let beside = into.join("..data_tmp");
    std::os::unix::fs::symlink(version.file_name().unwrap(), &beside).unwrap();
    std::fs::rename(&beside, into.join("..data")).unwrap();
    for name in ["tls.crt", "tls.key"] {
        if !into.join(name).exists() {
            std::os::unix::fs::symlink(Path::new("..data").join(name), into.join(name)).unwrap();
        }
    }
}

#[tokio::test]
async fn it_is_not_ready_until_there_is_a_certificate() {
    let (sender, receiver) = watch::channel(None);
    let stage = Stage::start_with(echo(), limits(), TlsSource::Secret(receiver)).await;
    let mut probes = Peer::plain(stage.addrs.probes.unwrap()).await;
    let answer = probes.get("/readyz").await;
    assert_eq!(answer.status, 503);
    assert!(
        answer
            .body
            .contains("[-] certificate: no serving certificate yet\n"),
        "{}",
        answer.body
    );
    let contents = certificate();
    assert!(
        Peer::tls(stage.addrs.tls, &contents.ca_bundle, &[])
            .await
            .is_err()
    );

    let mut changes = stage.certificates.changes();
    sender.send(contents.serving()).unwrap();
    changes.changed().await.unwrap();
    assert_eq!(probes.get("/readyz").await.status, 200);
    let mut peer = Peer::tls(stage.addrs.tls, &contents.ca_bundle, &[])
        .await
        .unwrap();
    assert_eq!(peer.post("/gate/d", review(1)).await.status, 200);
    assert!(stage.metrics.certificate_not_after.get() > 0);
}

#[tokio::test]
async fn a_mounted_secret_that_is_swapped_serves_new_connections_and_disturbs_no_old_one() {
    let scratch = Scratch::new("swap");
    let (old, new) = (certificate(), certificate());
    project(&scratch.0, "one", &old);
    let source = TlsSource::Files {
        cert: scratch.0.join("tls.crt"),
        key: scratch.0.join("tls.key"),
        every: Duration::from_millis(5),
    };
    let stage = Stage::start_with(echo(), limits(), source).await;
    let mut changes = stage.certificates.changes();
    changes.wait_for(|count| *count == 1).await.unwrap();
    let mut before = Peer::tls(stage.addrs.tls, &old.ca_bundle, &[])
        .await
        .unwrap();
    project(&scratch.0, "two", &new);
    changes.wait_for(|count| *count == 2).await.unwrap();
    let after = Peer::tls(stage.addrs.tls, &new.ca_bundle, &[])
        .await
        .unwrap();
    assert_ne!(before.leaf(), after.leaf());
    assert_eq!(before.post("/gate/d", review(1)).await.status, 200);
}

#[tokio::test]
async fn a_certificate_without_its_key_is_counted_and_the_last_good_one_served() {
    let scratch = Scratch::new("mixed");
    let (good, other) = (certificate(), certificate());
    project(&scratch.0, "one", &good);
    let source = TlsSource::Files {
        cert: scratch.0.join("tls.crt"),
        key: scratch.0.join("tls.key"),
        every: Duration::from_millis(5),
    };
    let stage = Stage::start_with(echo(), limits(), source).await;
    let mut changes = stage.certificates.changes();
    changes.wait_for(|count| *count == 1).await.unwrap();
    project(
        &scratch.0,
        "two",
        &Contents {
            key: other.key.clone(),
            ..good.clone()
        },
    );
    while stage.metrics.certificate_failures.get() == 0 {
        tokio::task::yield_now().await;
    }
    Peer::tls(stage.addrs.tls, &good.ca_bundle, &[])
        .await
        .unwrap();
    project(&scratch.0, "three", &other);
    changes.wait_for(|count| *count == 2).await.unwrap();
    Peer::tls(stage.addrs.tls, &other.ca_bundle, &[])
        .await
        .unwrap();
}

#[tokio::test]
async fn a_head_that_trickles_is_cut_and_an_idle_connection_is_not() {
    let patient = Limits {
        head: Duration::from_millis(40),
        ..limits()
    };
    let stage = Stage::start(echo(), patient).await;
    let mut kept = stage.peer().await;
    assert_eq!(kept.get("/livez").await.status, 200);
    // Two slow heads, one after the other: the first of its connection, and one after a whole request.
    let mut slow = stage.peer().await;
    slow.send("POST /gate/d HTTP/1.1\r\nHost:").await;
    slow.closed().await;
    let mut slow = stage.peer().await;
    assert_eq!(slow.get("/livez").await.status, 200);
    slow.send("P").await;
    slow.closed().await;
    assert_eq!(
        stage
            .metrics
            .cut
            .get_or_create(&Cause { cause: "slow_head" })
            .get(),
        2
    );
    assert_eq!(kept.get("/livez").await.status, 200);
}

#[tokio::test]
async fn an_idle_connection_and_a_handshake_end_in_their_time() {
    let patient = Limits {
        idle: Duration::from_millis(30),
        handshake: Duration::from_millis(30),
        ..limits()
    };
    let stage = Stage::start(echo(), patient).await;
    Peer::plain(stage.addrs.tls).await.closed().await;
    assert_eq!(
        stage
            .metrics
            .cut
            .get_or_create(&Cause {
                cause: "slow_handshake"
            })
            .get(),
        1
    );
    let mut plain = Peer::plain(stage.addrs.probes.unwrap()).await;
    assert_eq!(plain.get("/livez").await.status, 200);
    plain.closed().await;
    assert_eq!(
        stage
            .metrics
            .cut
            .get_or_create(&Cause { cause: "idle" })
            .get(),
        1
    );
}

#[tokio::test]
async fn beyond_the_cap_a_connection_waits_for_another_to_end() {
    let stage = Stage::start(
        echo(),
        Limits {
            connections: 1,
            ..limits()
        },
    )
    .await;
    let mut first = stage.peer().await;
    let (address, bundle) = (stage.addrs.tls, stage.bundle.clone());
    let second = tokio::spawn(async move {
        Peer::tls(address, &bundle, &[])
            .await
            .unwrap()
            .get("/livez")
            .await
            .status
    });
    for _ in 0..20 {
        assert_eq!(first.get("/livez").await.status, 200);
        assert!(!second.is_finished());
        assert_eq!(stage.metrics.connections.get(), 1);
    }
    drop(first);
    assert_eq!(second.await.unwrap(), 200);
}

#[tokio::test]
async fn a_drain_finishes_what_is_in_hand_and_closes_what_is_idle() {
    let open = Arc::new(Semaphore::new(0));
    let begun = Arc::new(Semaphore::new(0));
    let (gate, began) = (Arc::clone(&open), Arc::clone(&begun));
    let admit = Scripted(move |_, _, _| -> BoxFuture<'static, Answer> {
        let (gate, began) = (Arc::clone(&gate), Arc::clone(&began));
        Box::pin(async move {
            began.add_permits(1);
            gate.acquire().await.unwrap().forget();
            Answer::Review("{}".to_owned())
        })
    });
    let stage = Stage::start(Arc::new(admit), limits()).await;
    let (addrs, readiness) = (stage.addrs, stage.readiness.clone());
    let mut idle = stage.peer().await;
    assert_eq!(idle.get("/livez").await.status, 200);
    let mut busy = stage.peer().await;
    busy.ask("/gate/d?timeout=30s", review(1).as_bytes()).await;
    begun.acquire().await.unwrap().forget();

    let draining = stage.stop();
    idle.closed().await;
    assert_eq!(readiness.report().missing()[0].name, RUNNING);
    assert!(tokio::net::TcpStream::connect(addrs.tls).await.is_err());
    // Probes still answer, and say no.
    assert_eq!(
        Peer::plain(addrs.probes.unwrap())
            .await
            .get("/readyz")
            .await
            .status,
        503
    );
    open.add_permits(1);
    let answer = busy.response().await;
    assert_eq!(
        (answer.status, answer.headers["connection"].as_str()),
        (200, "close")
    );
    busy.closed().await;
    let drained = draining.await.unwrap();
    assert_eq!(drained.cut, 0);
    assert!(drained.finished >= 1);
}

#[tokio::test]
async fn while_it_lingers_it_is_not_ready_and_still_serves() {
    let stage = Stage::start(
        echo(),
        Limits {
            linger: Duration::from_secs(600),
            ..limits()
        },
    )
    .await;
    let (addrs, bundle, readiness) = (stage.addrs, stage.bundle.clone(), stage.readiness.clone());
    let draining = stage.stop();
    while readiness.is_ready() {
        tokio::task::yield_now().await;
    }
    let mut late = Peer::tls(addrs.tls, &bundle, &[]).await.unwrap();
    assert_eq!(late.get("/readyz").await.status, 503);
    assert_eq!(late.post("/gate/d", review(1)).await.status, 200);
    draining.abort();
}

#[tokio::test]
async fn what_does_not_finish_in_its_time_is_cut() {
    let begun = Arc::new(Semaphore::new(0));
    let began = Arc::clone(&begun);
    let admit = Scripted(move |_, _, _| -> BoxFuture<'static, Answer> {
        began.add_permits(1);
        Box::pin(std::future::pending())
    });
    let stage = Stage::start(
        Arc::new(admit),
        Limits {
            drain: Duration::from_millis(20),
            ..limits()
        },
    )
    .await;
    let mut peer = stage.peer().await;
    peer.ask("/gate/d?timeout=30s", review(1).as_bytes()).await;
    begun.acquire().await.unwrap().forget();
    assert_eq!(
        stage.stop().await.unwrap(),
        Drained {
            finished: 0,
            cut: 1
        }
    );
    peer.closed().await;
}

#[tokio::test]
async fn the_bound_addresses_are_written_down_and_a_taken_port_is_named() {
    let scratch = Scratch::new("addresses");
    let file = scratch.0.join("addresses");
    let options = ServeOptions {
        bind: loopback(),
        probe_bind: Some(loopback()),
        tls: TlsSource::Secret(watch::channel(None).1),
        addr_file: Some(file.clone()),
        limits: limits(),
    };
    let bind = |options| Server::bind(options, echo(), Readiness::new(), Arc::new(Metrics::new()));
    let server = bind(options.clone()).await.unwrap();
    let addrs = server.addrs();
    let written = std::fs::read_to_string(&file).unwrap();
    assert_eq!(
        written,
        format!("{}\n{}\n", addrs.tls, addrs.probes.unwrap())
    );
    let taken = bind(ServeOptions {
        bind: addrs.tls,
        ..options
    })
    .await;
    let Err(problem) = taken else {
        panic!("bound twice")
    };
    assert!(
        problem
            .to_string()
            .starts_with(&format!("cannot listen on {}: ", addrs.tls)),
        "{problem}"
    );
}

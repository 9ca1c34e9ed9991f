//! Where requests go and what comes back.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::Instant;

use super::super::metrics::Cause;
use super::super::*;
use super::peer::Peer;
use super::stage::{Scripted, Stage, UID, echo, limits, review};

#[tokio::test]
async fn one_connection_serves_many_requests_over_http_1_1() {
    let stage = Stage::start(echo(), limits()).await;
    let mut peer = stage.peer().await;
    assert_eq!(peer.alpn().as_deref(), Some("http/1.1"));
    for path in [
        "/gate/v1:sha256:abc?timeout=5s",
        "/guard",
        "/stamp?timeout=10s",
    ] {
        let answer = peer.post(path, review(5000)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.headers["content-type"], "application/json");
        assert_eq!(answer.json()["bytes"], review(5000).len());
        assert!(path[1..].starts_with(answer.json()["path"].as_str().unwrap()));
    }
    assert_eq!(stage.metrics.connections.get(), 1);
    assert_eq!(stage.metrics.bytes_in_flight.get(), 0);
}

#[tokio::test]
async fn a_client_that_speaks_http_2_alone_is_refused_in_the_handshake() {
    let stage = Stage::start(echo(), limits()).await;
    assert!(
        Peer::tls(stage.addrs.tls, &stage.bundle, &["h2"])
            .await
            .is_err()
    );
    assert_eq!(stage.peer().await.get("/livez").await.status, 200);
}

#[tokio::test]
async fn what_is_asked_in_the_wrong_way_gets_its_status_and_words() {
    let stage = Stage::start(echo(), limits()).await;
    let mut peer = stage.peer().await;
    for path in [
        "/",
        "/gate",
        "/gate/",
        "/gate/a/b",
        "/guard/",
        "/admit",
        &format!("/gate/{}", "a".repeat(129)),
    ] {
        let answer = peer.post(path, "{}").await;
        assert_eq!(answer.status, 404, "{path}");
    }
    let answer = peer.get("/guard").await;
    assert_eq!(
        (answer.status, answer.headers["allow"].as_str()),
        (405, "POST")
    );
    let answer = peer.post("/readyz", "{}").await;
    assert_eq!(
        (answer.status, answer.headers["allow"].as_str()),
        (405, "GET, HEAD")
    );
    for header in [
        "",
        "Content-Type: text/plain\r\n",
        "Content-Type: application/yaml\r\n",
        "Content-Type: application/json\r\nContent-Encoding: gzip\r\n",
    ] {
        peer.send(format!(
            "POST /guard HTTP/1.1\r\nHost: hook\r\n{header}Content-Length: 2\r\n\r\n{{}}"
        ))
        .await;
        let answer = peer.response().await;
        assert_eq!(answer.status, 415, "{header}");
        assert!(answer.body.len() > 20);
    }
    peer.send(
        "POST /guard HTTP/1.1\r\nHost: hook\r\nContent-Type: Application/JSON; charset=utf-8\r\n",
    )
    .await;
    peer.send("Content-Length: 2\r\n\r\n{}").await;
    assert_eq!(peer.response().await.status, 200);
}

#[tokio::test]
async fn each_answer_of_the_logic_has_its_status() {
    let admit = Scripted(|_, body: Arc<Body>, _| -> BoxFuture<'static, Answer> {
        Box::pin(async move {
            match &body[..] {
                "bad" => Answer::BadRequest("no uid".to_owned()),
                "failed" => Answer::Failed("no".to_owned()),
                _ => Answer::Review("{}".to_owned()),
            }
        })
    });
    let stage = Stage::start(Arc::new(admit), limits()).await;
    let mut peer = stage.peer().await;
    for (body, status) in [("bad", 400), ("failed", 500), ("{}", 200)] {
        let answer = peer.post("/gate/d", body).await;
        assert_eq!(answer.status, status);
        assert!(!answer.headers.contains_key("retry-after"));
    }
}

#[tokio::test]
async fn the_logic_gets_the_digest_and_the_time_the_api_server_gives() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&seen);
    let admit = Scripted(
        move |path, _, budget: Budget| -> BoxFuture<'static, Answer> {
            kept.lock()
                .unwrap()
                .push((path, budget.deadline - budget.received));
            Box::pin(async { Answer::Review("{}".to_owned()) })
        },
    );
    let stage = Stage::start(Arc::new(admit), limits()).await;
    let mut peer = stage.peer().await;
    peer.post("/gate/9f31?timeout=5s", "{}").await;
    peer.post("/guard", "{}").await;
    let expected = [
        (
            AdmissionPath::Gate {
                digest: "9f31".to_owned(),
            },
            Duration::from_secs(4),
        ),
        (AdmissionPath::Guard, Duration::from_secs(4)),
    ];
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_panic_is_a_denial_and_the_next_request_is_answered() {
    let admit = Scripted(|_, body: Arc<Body>, _| -> BoxFuture<'static, Answer> {
        assert!(!body.contains("at once"), "at once");
        Box::pin(async move {
            tokio::task::yield_now().await;
            assert!(!body.contains("later"), "later");
            Answer::Review("{}".to_owned())
        })
    });
    let stage = Stage::start(Arc::new(admit), limits()).await;
    let mut peer = stage.peer().await;
    for word in ["at once", "later"] {
        let answer = peer
            .post(
                "/gate/d",
                format!(r#"{{"request":{{"uid":"{UID}","object":"{word}"}}}}"#),
            )
            .await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.json()["response"]["uid"], UID);
        assert_eq!(answer.json()["response"]["allowed"], false);
        assert_eq!(
            answer.json()["response"]["status"]["reason"],
            "ApprovalUnavailable"
        );
        let answer = peer
            .post("/gate/d", format!(r#"{{"object":"{word}"}}"#))
            .await;
        assert_eq!(answer.status, 500);
    }
    assert_eq!(peer.post("/gate/d", "{}").await.status, 200);
    assert_eq!(stage.metrics.panics.get(), 4);
    assert_eq!(stage.metrics.bytes_in_flight.get(), 0);
}

#[tokio::test]
async fn logic_that_does_not_come_back_is_answered_for_before_the_api_server_gives_up() {
    let admit =
        Scripted(|_, _, _| -> BoxFuture<'static, Answer> { Box::pin(std::future::pending()) });
    let stage = Stage::start(Arc::new(admit), limits()).await;
    let began = Instant::now();
    let answer = stage
        .peer()
        .await
        .post("/gate/d?timeout=1s", review(10))
        .await;
    assert!(began.elapsed() >= Duration::from_millis(500));
    assert_eq!(answer.json()["response"]["uid"], UID);
    assert_eq!(
        answer.json()["response"]["status"]["details"]["causes"][0]["reason"],
        "Busy"
    );
    assert_eq!(
        stage
            .metrics
            .refused
            .get_or_create(&Cause { cause: "late" })
            .get(),
        1
    );
}

#[tokio::test]
async fn the_logic_is_dropped_when_the_api_server_hangs_up() {
    struct Dropped(Option<tokio::sync::oneshot::Sender<()>>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            let _nobody_listens = self.0.take().unwrap().send(());
        }
    }
    let (dropped, told) = tokio::sync::oneshot::channel();
    let (begun, began) = tokio::sync::oneshot::channel();
    let once = Mutex::new(Some((dropped, begun)));
    let admit = Scripted(move |_, _, _| -> BoxFuture<'static, Answer> {
        let (dropped, begun) = once.lock().unwrap().take().unwrap();
        Box::pin(async move {
            let _guard = Dropped(Some(dropped));
            begun.send(()).unwrap();
            std::future::pending().await
        })
    });
    let stage = Stage::start(Arc::new(admit), limits()).await;
    let mut peer = stage.peer().await;
    peer.ask("/gate/d?timeout=30s", review(10).as_bytes()).await;
    began.await.unwrap();
    drop(peer);
    told.await.unwrap();
}

#[tokio::test]
async fn probes_are_served_on_both_ports_and_reviews_on_one() {
    let stage = Stage::start(echo(), limits()).await;
    let mut secure = stage.peer().await;
    let mut plain = Peer::plain(stage.addrs.probes.unwrap()).await;
    assert_eq!(secure.get("/livez").await.status, 200);
    assert_eq!(plain.get("/livez").await.status, 200);
    for answer in [secure.get("/readyz").await, plain.get("/readyz").await] {
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (200, "[+] certificate\n[+] running\nready\n")
        );
    }
    stage
        .readiness
        .missing("snapshot", "policies have not been listed yet");
    let answer = plain.get("/readyz").await;
    assert_eq!(answer.status, 503);
    assert!(
        answer
            .body
            .contains("[-] snapshot: policies have not been listed yet\n")
    );
    let answer = plain.get("/metrics").await;
    assert_eq!(answer.headers["content-type"], metrics::CONTENT_TYPE);
    assert!(
        answer.body.contains("grantgate_connections 1\n")
            || answer.body.contains("grantgate_connections 2\n")
    );
    assert_eq!(plain.post("/gate/d", review(1)).await.status, 404);
}

//! Bodies: their bounds and what is wrong with them.

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::Semaphore;

use super::super::metrics::Cause;
use super::super::*;
use super::stage::{Scripted, Stage, UID, echo, limits, review};
use crate::decide::json;

fn small() -> Limits {
    Limits {
        largest_body: 64 << 10,
        bodies_in_flight: 100 << 10,
        ..limits()
    }
}

fn chunked(text: &str, piece: usize) -> Vec<u8> {
    let mut wire = Vec::new();
    for chunk in text.as_bytes().chunks(piece) {
        wire.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        wire.extend(chunk);
        wire.extend(b"\r\n");
    }
    wire.extend(b"0\r\n\r\n");
    wire
}

const CHUNKED: &str = "POST /gate/d HTTP/1.1\r\nHost: hook\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";

#[tokio::test]
async fn a_body_of_25_mib_is_413_and_one_of_24_is_taken() {
    let stage = Stage::start(echo(), limits()).await;
    let mut peer = stage.peer().await;
    let answer = peer.post("/gate/d", vec![b'x'; 25 << 20]).await;
    assert_eq!(answer.status, 413);
    assert!(
        answer.body.contains("larger than 25165824 bytes"),
        "{}",
        answer.body
    );
    // It was read to its end, so the connection is still good.
    let answer = peer.post("/gate/d", vec![b'x'; 24 << 20]).await;
    assert_eq!(
        (answer.status, answer.json()["bytes"].as_u64()),
        (200, Some(24 << 20))
    );
    assert_eq!(stage.metrics.bytes_in_flight.get(), 0);
}

#[tokio::test]
async fn a_chunked_body_is_bounded_while_it_arrives() {
    let stage = Stage::start(echo(), small()).await;
    let mut peer = stage.peer().await;
    peer.send(CHUNKED).await;
    peer.send(chunked(&review(100_000), 1000)).await;
    assert_eq!(peer.response().await.status, 413);
    peer.send(CHUNKED).await;
    peer.send(chunked(&review(50_000), 777)).await;
    let answer = peer.response().await;
    assert_eq!(
        (answer.status, answer.json()["bytes"].as_u64()),
        (200, Some(review(50_000).len() as u64))
    );
    assert_eq!(stage.metrics.bytes_in_flight.get(), 0);
}

#[tokio::test]
async fn a_body_of_more_values_than_can_be_read_is_not_approvable_and_no_later_one_is_kept_out() {
    let stage = Stage::start(echo(), small()).await;
    let mut peer = stage.peer().await;
    let many = review(0).replacen('{', &format!("{{\"many\":[{}0],", "0,".repeat(20_000)), 1);
    let answer = peer.post("/gate/d", many.clone()).await;
    assert_eq!(answer.status, 413, "no uid within its beginning");
    let late = format!(
        "{},\"many\":[{}0]}}",
        &review(0)[..review(0).len() - 1],
        "0,".repeat(20_000)
    );
    let answer = peer.post("/gate/d", late).await;
    assert_eq!(
        answer.json()["response"]["status"]["details"]["causes"][0]["reason"],
        "TooLargeToReview"
    );
    assert_eq!(answer.json()["response"]["uid"], UID);
    assert_eq!(stage.metrics.bytes_in_flight.get(), 0);
    assert_eq!(peer.post("/gate/d", review(1000)).await.status, 200);
}

#[tokio::test]
async fn bodies_beyond_the_bound_on_all_are_busy_until_one_is_let_go() {
    let open = Arc::new(Semaphore::new(0));
    let begun = Arc::new(Semaphore::new(0));
    let (gate, began) = (Arc::clone(&open), Arc::clone(&begun));
    let admit = Scripted(move |_, body: Arc<Body>, _| -> BoxFuture<'static, Answer> {
        let (gate, began) = (Arc::clone(&gate), Arc::clone(&began));
        Box::pin(async move {
            began.add_permits(1);
            gate.acquire().await.unwrap().forget();
            Answer::Review(format!("{{\"bytes\":{}}}", body.len()))
        })
    });
    let stage = Stage::start(Arc::new(admit), small()).await;
    let (mut first, mut second) = (stage.peer().await, stage.peer().await);
    let long = "/gate/d?timeout=30s";
    first.ask(long, review(60_000).as_bytes()).await;
    begun.acquire().await.unwrap().forget();
    assert_eq!(
        stage.metrics.bytes_in_flight.get(),
        i64::try_from(review(60_000).len() as u64 + json::bytes_to_read(review(60_000).as_bytes()))
            .unwrap()
    );

    let answer = second.post(long, review(60_000)).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["response"]["uid"], UID);
    assert_eq!(answer.json()["response"]["allowed"], false);
    assert_eq!(
        answer.json()["response"]["status"]["reason"],
        "ApprovalUnavailable"
    );
    assert_eq!(
        answer.json()["response"]["status"]["details"]["causes"][0]["reason"],
        "Busy"
    );
    let answer = second.post(long, "x".repeat(60_000)).await;
    assert_eq!(answer.status, 503);
    assert!(!answer.headers.contains_key("retry-after"));
    second.send(CHUNKED).await;
    second.send(chunked(&review(60_000), 4000)).await;
    assert_eq!(
        second.response().await.json()["response"]["status"]["details"]["causes"][0]["reason"],
        "Busy"
    );
    assert_eq!(
        stage
            .metrics
            .refused
            .get_or_create(&Cause { cause: "busy" })
            .get(),
        3
    );

    open.add_permits(2);
    assert_eq!(first.response().await.status, 200);
    let answer = second.post(long, review(60_000)).await;
    assert_eq!(
        answer.json()["bytes"].as_u64(),
        Some(review(60_000).len() as u64)
    );
    assert_eq!(stage.metrics.bodies_in_flight.get(), 0);
}

#[tokio::test]
async fn a_body_that_is_no_utf_8_is_denied_by_uid_or_400_in_words() {
    let stage = Stage::start(echo(), limits()).await;
    let mut peer = stage.peer().await;
    let mut body = review(10).into_bytes();
    let at = body.len() - 5;
    body[at] = 0xff;
    let answer = peer.post("/gate/d", &body).await;
    assert_eq!(
        (answer.status, answer.json()["response"]["uid"].as_str()),
        (200, Some(UID))
    );
    assert_eq!(answer.json()["response"]["allowed"], false);
    let answer = peer
        .post("/gate/d", b"{\"request\":{\"uid\":\"\xff\"}}")
        .await;
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("not valid UTF-8"));
    assert_eq!(peer.post("/gate/d", "{}").await.status, 200);
}

#[tokio::test]
async fn whatever_is_utf_8_reaches_the_logic_byte_for_byte() {
    let admit = Scripted(|_, body: Arc<Body>, _| -> BoxFuture<'static, Answer> {
        Box::pin(async move { Answer::Failed(body.to_string()) })
    });
    let stage = Stage::start(Arc::new(admit), limits()).await;
    let mut peer = stage.peer().await;
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let bodies = [
        "not json",
        "{\"kind\":\"Pod\"}",
        "{\"a\":1,\"a\":2}",
        "{\"request\":{}}",
        "\u{0}\u{fffd}\u{202e}",
        &deep,
    ];
    for body in bodies {
        assert_eq!(peer.post("/guard", body).await.body, format!("{body}\n"));
    }
}

#[tokio::test]
async fn a_body_that_stops_arriving_is_given_up_within_the_time_of_the_call() {
    let stage = Stage::start(echo(), limits()).await;
    let mut peer = stage.peer().await;
    peer.send("POST /guard?timeout=1s HTTP/1.1\r\nHost: hook\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{")
        .await;
    let answer = peer.response().await;
    assert_eq!(
        (answer.status, answer.headers["connection"].as_str()),
        (408, "close")
    );
    peer.closed().await;
    assert_eq!(stage.metrics.bytes_in_flight.get(), 0);
}

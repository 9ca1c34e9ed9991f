#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use std::sync::Arc;

use rustls::pki_types::{ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::super::tls::Certificates;
use super::*;

const START: &str = "2026-03-01T00:00:00Z";

fn start() -> Timestamp {
    START.parse().unwrap()
}

fn after(at: Timestamp, days: i64) -> Timestamp {
    Timestamp::from_second(at.as_second() + days * 86_400).unwrap()
}

fn names() -> Names {
    Names::of_service("grantgate-system")
}

fn made(now: Timestamp) -> Contents {
    mint(&Contents::default(), &names(), now).unwrap()
}

#[derive(Debug)]
struct At(Timestamp);

impl TimeProvider for At {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(
            u64::try_from(self.0.as_second()).unwrap(),
        )))
    }
}

/// A client that trusts `bundle` and whose clock stands at `now` shakes hands with a server of `contents`.
async fn handshake(
    bundle: &str,
    contents: &Contents,
    host: &'static str,
    now: Timestamp,
) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    for ca in certificates(bundle) {
        roots.add(ca).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_details(provider, Arc::new(At(now)))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let serving = Certificates::new();
    serving.install(&contents.serving().unwrap()).unwrap();
    let server = TlsAcceptor::from(Arc::new(serving.server_config().unwrap()));
    let (near, far) = tokio::io::duplex(64 * 1024);
    let connect =
        TlsConnector::from(Arc::new(client)).connect(ServerName::try_from(host).unwrap(), near);
    let (client, server) = tokio::join!(connect, server.accept(far));
    client.map_err(|problem| problem.to_string())?;
    server.map(|_| ()).map_err(|problem| problem.to_string())
}

#[test]
fn an_empty_secret_gets_a_ca_and_a_leaf_that_then_stay() {
    assert_eq!(
        plan(&Contents::default(), &names(), "", start()),
        Plan::Rotate(Reason::Missing)
    );
    let contents = made(start());
    let leaf = validity(&certificates(&contents.chain)[0]).unwrap();
    assert_eq!(
        plan(&contents, &names(), "", start()),
        Plan::Keep { until: leaf.due() }
    );
    assert_eq!(certificates(&contents.ca_bundle).len(), 1);
}

#[test]
fn a_leaf_is_renewed_at_two_thirds_of_its_life_and_not_before() {
    let contents = made(start());
    let leaf = validity(&certificates(&contents.chain)[0]).unwrap();
    let due = leaf.due();
    let life = leaf.not_after.as_second() - leaf.not_before.as_second();
    assert_eq!(
        (due.as_second() - leaf.not_before.as_second()) * 3 / 2,
        life / 3 * 3
    );
    let before = Timestamp::from_second(due.as_second() - 1).unwrap();
    assert_eq!(
        plan(&contents, &names(), "", before),
        Plan::Keep { until: due }
    );
    assert_eq!(plan(&contents, &names(), "", due), Plan::Renew(Reason::Due));
    let renewed = mint(&contents, &names(), due).unwrap();
    assert_ne!(renewed.chain, contents.chain);
    assert_ne!(renewed.key, contents.key);
    assert_eq!(
        (&renewed.ca_bundle, &renewed.ca_key),
        (&contents.ca_bundle, &contents.ca_key)
    );
    assert!(matches!(
        plan(&renewed, &names(), "", due),
        Plan::Keep { .. }
    ));
}

#[test]
fn a_new_ca_signs_nothing_until_every_configuration_has_it() {
    let old = made(start());
    let ca_due = validity(&certificates(&old.ca_bundle)[0]).unwrap().due();
    let now = Timestamp::from_second(ca_due.as_second() - 3600).unwrap();
    let old = mint(&old, &names(), now).unwrap();
    assert_eq!(
        plan(&old, &names(), &old.ca_bundle, ca_due),
        Plan::Rotate(Reason::Due)
    );
    let rotated = rotate(&old, &names(), ca_due).unwrap();
    assert_eq!((&rotated.chain, &rotated.key), (&old.chain, &old.key));
    assert_eq!(certificates(&rotated.ca_bundle).len(), 2);
    assert!(matches!(
        plan(&rotated, &names(), &old.ca_bundle, ca_due),
        Plan::Keep { .. }
    ));
    assert_eq!(
        plan(&rotated, &names(), &rotated.ca_bundle, ca_due),
        Plan::Renew(Reason::OtherCa)
    );
    let moved = mint(&rotated, &names(), ca_due).unwrap();
    assert_eq!(moved.ca_bundle, rotated.ca_bundle);
    assert!(matches!(
        plan(&moved, &names(), &moved.ca_bundle, ca_due),
        Plan::Keep { .. }
    ));
    let settled = mint(&moved, &names(), after(ca_due, 61)).unwrap();
    assert_eq!(certificates(&settled.ca_bundle).len(), 1);
    assert_eq!(
        certificates(&settled.ca_bundle)[0],
        certificates(&moved.ca_bundle)[0]
    );
}

#[test]
fn over_six_years_the_leaf_in_use_is_always_trusted_by_what_is_published() {
    let mut contents = made(start());
    let (mut published, mut served) = (contents.ca_bundle.clone(), contents.clone());
    let (mut renewals, mut rotations) = (0, 0);
    for day in (0..6 * 365).step_by(3) {
        let now = after(start(), day);
        // Configurations and replicas are three days behind the Secret.
        let (late_bundle, late_contents) = (contents.ca_bundle.clone(), contents.clone());
        match plan(&contents, &names(), &published, now) {
            Plan::Keep { until } => assert!(until > now),
            Plan::Renew(_) => {
                renewals += 1;
                contents = mint(&contents, &names(), now).unwrap();
            }
            Plan::Rotate(_) => {
                rotations += 1;
                contents = rotate(&contents, &names(), now).unwrap();
            }
        }
        let leaf = Leaf::read(&served).unwrap_or_else(|reason| panic!("day {day}: {reason:?}"));
        assert!(leaf.validity.holds(now), "day {day}");
        assert!(
            certificates(&published).iter().any(|ca| leaf.signed_by(ca)),
            "day {day}"
        );
        (published, served) = (late_bundle, late_contents);
    }
    assert!(rotations >= 4, "{rotations}");
    assert!(renewals >= 30, "{renewals}");
}

#[tokio::test]
async fn a_client_that_trusts_the_bundle_accepts_the_old_and_the_new_leaf() {
    let host = "grantgate-webhook.grantgate-system.svc";
    let now = after(start(), 1);
    let old = made(start());
    let rotated = rotate(&old, &names(), now).unwrap();
    let moved = mint(&rotated, &names(), now).unwrap();
    handshake(&rotated.ca_bundle, &old, host, now)
        .await
        .unwrap();
    handshake(&rotated.ca_bundle, &moved, host, now)
        .await
        .unwrap();
    handshake(&old.ca_bundle, &old, host, now).await.unwrap();
    // And it would have failed had the leaf moved first.
    assert!(handshake(&old.ca_bundle, &moved, host, now).await.is_err());
    assert!(
        handshake(
            &rotated.ca_bundle,
            &moved,
            "grantgate-webhook.other.svc",
            now
        )
        .await
        .is_err()
    );
    assert!(
        handshake(&rotated.ca_bundle, &moved, host, after(now, 91))
            .await
            .is_err()
    );
}

#[tokio::test]
async fn a_webhook_url_by_address_or_name_is_covered() {
    let contents = made(start());
    let more = names()
        .and_host("127.0.0.1")
        .and_host("[::1]")
        .and_host("Hook.Example.com")
        .and_host("127.0.0.1");
    assert_eq!(more.ips.len(), 2);
    assert_eq!(
        plan(&contents, &more, "", start()),
        Plan::Renew(Reason::Names)
    );
    let renewed = mint(&contents, &more, start()).unwrap();
    assert!(matches!(
        plan(&renewed, &more, "", start()),
        Plan::Keep { .. }
    ));
    for host in [
        "127.0.0.1",
        "::1",
        "hook.example.com",
        "grantgate-webhook.grantgate-system.svc",
    ] {
        handshake(&renewed.ca_bundle, &renewed, host, start())
            .await
            .unwrap();
    }
    // A name more than is asked for is no reason to make a new one.
    assert!(matches!(
        plan(&renewed, &names(), "", start()),
        Plan::Keep { .. }
    ));
}

#[test]
fn what_cannot_be_used_is_made_anew() {
    let good = made(start());
    let other = made(start());
    let broken = [
        (
            Contents {
                ca_key: other.ca_key.clone(),
                ..good.clone()
            },
            Plan::Rotate(Reason::Unusable),
        ),
        (
            Contents {
                ca_key: "no key".to_owned(),
                ..good.clone()
            },
            Plan::Rotate(Reason::Unusable),
        ),
        (
            Contents {
                ca_bundle: "-----BEGIN".to_owned(),
                ..good.clone()
            },
            Plan::Rotate(Reason::Unusable),
        ),
        // A leaf with its key is no CA.
        (
            Contents {
                ca_bundle: good.chain.clone(),
                ca_key: good.key.clone(),
                ..good.clone()
            },
            Plan::Rotate(Reason::Unusable),
        ),
        (
            Contents {
                key: other.key.clone(),
                ..good.clone()
            },
            Plan::Renew(Reason::Unusable),
        ),
        (
            Contents {
                chain: String::new(),
                ..good.clone()
            },
            Plan::Renew(Reason::Missing),
        ),
        (
            Contents {
                chain: other.chain.clone(),
                key: other.key.clone(),
                ..good.clone()
            },
            Plan::Renew(Reason::OtherCa),
        ),
    ];
    for (contents, expected) in broken {
        assert_eq!(
            plan(&contents, &names(), &good.ca_bundle, start()),
            expected
        );
        let mended = match expected {
            Plan::Rotate(_) => rotate(&contents, &names(), start()).unwrap(),
            _ => mint(&contents, &names(), start()).unwrap(),
        };
        // Where the old leaf is kept it waits for the configurations; both ways nothing more is due.
        let then = plan(&mended, &names(), &mended.ca_bundle, start());
        assert!(
            matches!(then, Plan::Keep { .. } | Plan::Renew(Reason::OtherCa)),
            "{then:?}"
        );
    }
}

#[test]
fn after_a_long_sleep_an_expired_ca_leaves_the_bundle() {
    let old = made(start());
    let now = after(start(), 3 * 365);
    assert_eq!(
        plan(&old, &names(), &old.ca_bundle, now),
        Plan::Rotate(Reason::Due)
    );
    let fresh = rotate(&old, &names(), now).unwrap();
    assert_eq!(certificates(&fresh.ca_bundle).len(), 1);
    assert_ne!(fresh.chain, old.chain);
    assert!(matches!(plan(&fresh, &names(), "", now), Plan::Keep { .. }));
}

#[test]
fn a_leaf_ends_with_its_ca_at_the_latest() {
    let contents = made(start());
    let ca = validity(&certificates(&contents.ca_bundle)[0]).unwrap();
    let renewed = mint(&contents, &names(), after(start(), 700)).unwrap();
    let leaf = validity(&certificates(&renewed.chain)[0]).unwrap();
    assert!(leaf.not_after.as_second() <= ca.not_after.as_second() + 1);
}

#[test]
fn keys_are_never_printed() {
    let contents = made(start());
    let printed = format!("{contents:?}");
    assert!(
        !printed.contains("PRIVATE KEY")
            && !printed.contains(contents.ca_key.lines().nth(1).unwrap())
    );
}

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]
use super::*;

const CANARY: &str = "system:serviceaccount:grantgate-system:grantgate-canary";

fn url() -> Reach {
    Reach::Url("https://127.0.0.1:9443/".to_owned())
}

fn users(names: &[&str]) -> Subjects {
    Subjects {
        usernames: names.iter().map(|name| (*name).to_owned()).collect(),
        ..Subjects::default()
    }
}

fn gate_of(names: &[&str]) -> ValidatingWebhookConfiguration {
    let entries = gate_entries::entries(
        &[("a".to_owned(), users(names))],
        &Subjects::default(),
        CANARY,
    );
    gate(&entries, &url(), "CA")
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[test]
fn the_gate_is_called_for_everything_and_fails_closed() {
    let configuration = gate_of(&["oidc:ops-bot"]);
    let webhook = &configuration.webhooks.as_ref().unwrap()[0];
    assert_eq!(webhook.failure_policy.as_deref(), Some("Fail"));
    assert_eq!(webhook.timeout_seconds, Some(5));
    assert_eq!(webhook.side_effects, "NoneOnDryRun");
    let rule = &webhook.rules.as_ref().unwrap()[0];
    assert_eq!(rule.operations.as_ref().unwrap().len(), 4);
    let found = installed(&configuration);
    let called = webhook.client_config.url.clone().unwrap();
    assert_eq!(
        called,
        format!("https://127.0.0.1:9443/gate/{}", found[0].digest)
    );
    assert_eq!(found[0].subjects, users(&["oidc:ops-bot"]));
}

#[test]
fn a_service_is_named_with_path_and_port() {
    let reach = Reach::Service {
        namespace: "grantgate-system".to_owned(),
    };
    let entries = gate_entries::entries(&[], &Subjects::default(), CANARY);
    let configuration = gate(&entries, &reach, "CA");
    let found = installed(&configuration);
    let service = configuration.webhooks.unwrap()[0]
        .client_config
        .service
        .clone()
        .unwrap();
    assert_eq!(service.path.unwrap(), format!("/gate/{}", found[0].digest));
    assert_eq!(service.name, manifests::SERVICE);
}

#[test]
fn the_guard_is_not_sent_what_must_work_while_it_is_down() {
    let configuration = guard("grantgate-system", &url(), "CA");
    let webhook = &configuration.webhooks.as_ref().unwrap()[0];
    let expression = &webhook.match_conditions.as_ref().unwrap()[0].expression;
    for name in [
        "system:serviceaccount:kube-system:namespace-controller",
        "system:serviceaccount:kube-system:generic-garbage-collector",
        "system:kube-controller-manager",
        "system:serviceaccount:grantgate-system:grantgate-controller",
    ] {
        assert!(expression.contains(&format!("'{name}'")), "{name}");
    }
}

#[test]
fn what_is_as_it_should_be_is_kept_and_any_drift_replaced() {
    let desired = gate_of(&["x"]);
    assert_eq!(plan(None, &desired), Plan::Create(desired.clone()));
    let mut live = desired.clone();
    live.metadata.resource_version = Some("7".to_owned());
    live.annotations_mut()
        .insert("theirs".to_owned(), "kept".to_owned());
    assert_eq!(plan(Some(&live), &desired), Plan::Keep);

    let drifts: [fn(&mut ValidatingWebhookConfiguration); 4] = [
        |live| live.webhooks.as_mut().unwrap()[0].failure_policy = Some("Ignore".to_owned()),
        |live| live.webhooks = None,
        |live| live.webhooks.as_mut().unwrap()[0].match_conditions = None,
        |live| {
            live.labels_mut().clear();
        },
    ];
    for drift in drifts {
        let mut drifted = live.clone();
        drift(&mut drifted);
        let Plan::Replace(wanted) = plan(Some(&drifted), &desired) else {
            panic!("kept {drifted:?}");
        };
        assert_eq!(
            wanted, live,
            "with the revision read and others' annotations"
        );
    }
}

#[test]
fn those_who_leave_are_sent_for_another_minute_whoever_leads_then() {
    let live = gate_of(&["stays", "goes"]);
    let declared = users(&["stays"]);
    let first = leaving(Some(&live), &declared, Some(at(100)));
    assert_eq!(first.subjects, users(&["goes"]));
    assert_eq!(first.until, Some(at(160)));
    assert!(first.news);

    // The next round, perhaps of another process, reads the annotation.
    let live = with_leaving(live, &first);
    let again = leaving(Some(&live), &declared, Some(at(150)));
    assert_eq!((again.until, again.news), (Some(at(160)), false));
    assert_eq!(
        leaving(Some(&live), &declared, Some(at(160))),
        Leaving::default()
    );

    // Declared again: nobody leaves, and the annotation goes.
    let back = users(&["stays", "goes"]);
    assert_eq!(
        leaving(Some(&live), &back, Some(at(150))),
        Leaving::default()
    );
    let Plan::Replace(wanted) = plan(Some(&live), &gate_of(&["stays", "goes"])) else {
        panic!("the annotation stayed");
    };
    assert!(wanted.annotations().is_empty());
}

#[test]
fn nobody_leaves_while_it_is_not_known_who_is_declared() {
    let live = gate_of(&["stays", "goes"]);
    let declared = users(&["stays"]);
    let leaves = leaving(Some(&live), &declared, None);
    assert_eq!(leaves.subjects, users(&["goes"]));
    assert_eq!((leaves.until, leaves.news), (None, false));
    // Known again: their minute begins.
    let live = with_leaving(live, &leaves);
    let leaves = leaving(Some(&live), &declared, Some(at(500)));
    assert_eq!((leaves.until, leaves.news), (Some(at(560)), true));
}

#[test]
fn only_what_every_configuration_trusts_is_published() {
    let certificate = |byte: u8| pem::encode(&pem::Pem::new("CERTIFICATE", vec![byte; 8]));
    let (one, two) = (certificate(1), certificate(2));
    let both = format!("{one}{two}");
    assert_eq!(
        published(&[both.as_bytes(), two.as_bytes()]),
        pem::encode_many(&[pem::parse(&two).unwrap()])
    );
    assert_eq!(published(&[one.as_bytes(), b""]), "");
    assert_eq!(published(&[]), "");
}

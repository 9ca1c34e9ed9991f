#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use std::collections::BTreeMap;

use super::super::{
    json::read,
    mismatch::differing,
    recorded::{binding, bound, bound_text, names, redactor, text, with},
};
use super::*;
use crate::api::approval_policy::Volatile;

use StateBinding::{Identity, TouchedFields, WholeObject};

const RESTARTED: &str = "/spec/template/metadata/annotations/kubectl.kubernetes.io~1restartedAt";
const RESTART: &str = "update-restartedat-by-kubectl-rollout-restart";

fn volatile(state: StateBinding, paths: &[&str]) -> ResolvedBinding {
    let volatile = paths
        .iter()
        .map(|path| Volatile {
            path: (*path).to_owned(),
            shape: VolatileShape::Timestamp,
        })
        .collect();
    ResolvedBinding {
        volatile,
        ..binding(state)
    }
}

#[test]
fn every_recorded_review_is_bound_as_its_name_says() {
    let names = names();
    assert_eq!(names.len(), 90);
    for name in names {
        let found = with(&text(&name), |comparison| {
            if comparison.is_noop() {
                return "no-op".to_owned();
            }
            let bound = comparison
                .bind(&binding(TouchedFields), &redactor())
                .unwrap();
            let change = read(&bound.change).unwrap();
            let paths: Vec<&str> = change
                .root()
                .entries()
                .map(|(path, _)| if path.is_empty() { "object" } else { path })
                .collect();
            paths.join(if paths.iter().any(|path| path.starts_with("as ")) {
                " | "
            } else {
                " "
            })
        });
        assert_eq!(Some(found.as_str()), expected::of(&name), "{name}");
    }
}

#[test]
fn what_is_bound_is_canonical_and_agrees_with_its_digests() {
    for name in names() {
        for state in [Identity, TouchedFields, WholeObject] {
            let bound = bound(&name, state);
            for (text, digest) in [
                (&bound.change, &bound.change_digest),
                (&bound.state, &bound.state_digest),
            ] {
                assert_eq!(
                    &canonical::to_string(read(text).unwrap().root()),
                    text,
                    "{name}"
                );
                assert_eq!(&canonical::digest(text), digest, "{name}");
            }
            assert_eq!(
                bound.content_digest, bound.change_digest,
                "nothing is volatile in {name}"
            );
            let spec = serde_json::to_string(&bound.diff).unwrap();
            assert!(
                !spec.contains("resourceVersion") && !spec.contains("managedFields"),
                "{name}: {spec}"
            );
        }
    }
}

#[test]
fn one_result_has_one_change_digest_whoever_makes_it() {
    let ways = [
        "put",
        "json-patch",
        "merge-patch",
        "strategic-merge-patch",
        "server-side-apply",
    ];
    let digests: Vec<String> = ways
        .iter()
        .map(|way| bound(&format!("update-replicas-by-{way}"), TouchedFields).change_digest)
        .collect();
    assert!(
        digests.windows(2).all(|pair| pair[0] == pair[1]),
        "{digests:?}"
    );
    let env = |way: &str| bound(&format!("update-env-{way}"), TouchedFields).change_digest;
    assert_ne!(
        env("appended-by-json-patch"),
        env("prepended-by-strategic-merge-patch")
    );
}

#[test]
fn another_target_value_or_old_value_is_another_digest() {
    let put = text("update-replicas-by-put");
    let base = bound_text(&put, &binding(TouchedFields));
    let other = bound_text(
        &put.replacen(r#""replicas":5"#, r#""replicas":6"#, 1),
        &binding(TouchedFields),
    );
    assert_ne!(base.change_digest, other.change_digest);
    assert_eq!(base.state_digest, other.state_digest);
    assert_eq!(differing(&base.change, &other.change), ["/spec/replicas"]);
    let moved = bound_text(
        &put.replace(r#""replicas":3"#, r#""replicas":4"#),
        &binding(TouchedFields),
    );
    assert_eq!(base.change_digest, moved.change_digest);
    assert_ne!(base.state_digest, moved.state_digest);
    assert_eq!(differing(&base.state, &moved.state), ["/spec/replicas"]);
    let replaced = bound_text(
        &put.replace("21cd294e", "21cd294f"),
        &binding(TouchedFields),
    );
    assert_eq!(base.change_digest, replaced.change_digest);
    assert_eq!(differing(&base.state, &replaced.state), ["uid"]);
}

#[test]
fn touched_fields_stay_good_while_others_write_elsewhere() {
    for case in ["status-write", "unrelated-spec-write"] {
        let calls = [1, 2].map(|call| {
            bound(
                &format!("conflict-retry-after-{case}-call-{call}"),
                TouchedFields,
            )
        });
        assert_eq!(calls[0], calls[1], "{case}");
    }
    let calls = [1, 2].map(|call| {
        bound(
            &format!("conflict-retry-after-same-field-write-call-{call}"),
            TouchedFields,
        )
    });
    assert_eq!(calls[0].change_digest, calls[1].change_digest);
    assert_ne!(calls[0].state_digest, calls[1].state_digest);
    let uids = [1, 2].map(|call| {
        bound(
            &format!("patch-object-recreated-meanwhile-call-{call}"),
            TouchedFields,
        )
    });
    assert_ne!(
        uids[0].state_digest, uids[1].state_digest,
        "a re-created object is another target"
    );
}

#[test]
fn the_whole_object_is_bound_less_status_and_what_the_server_makes() {
    let calls = |case: &str| {
        [1, 2].map(|call| {
            bound(
                &format!("conflict-retry-after-{case}-call-{call}"),
                WholeObject,
            )
        })
    };
    let [before, after] = calls("status-write");
    assert_eq!(before.state_digest, after.state_digest);
    assert!(
        !before.state.contains("status")
            && !before.state.contains("resourceVersion")
            && !before.state.contains("generation")
    );
    let [before, after] = calls("unrelated-spec-write");
    assert_eq!(
        differing(&before.state, &after.state),
        ["/spec/minReadySeconds"]
    );
    let status = bound("update-deployment-status-changes-metadata", WholeObject);
    assert!(
        status.state.contains(r#""status":{}"#),
        "a status write is bound to the status"
    );
    let service = bound("update-service-status-sets-ownerreference", WholeObject);
    assert!(!service.state.contains("clusterIP"), "{}", service.state);
}

#[test]
fn identity_is_uid_labels_and_the_fields_asked_for() {
    let mut binding = binding(Identity);
    binding.state_fields = [
        "/metadata/labels/tier",
        "/spec/replicas",
        "/spec/absent",
        "/metadata/generation",
    ]
    .map(str::to_owned)
    .to_vec();
    let bound = bound_text(
        &text("update-restartedat-by-kubectl-rollout-restart"),
        &binding,
    );
    let want = [
        r#"{"/metadata/generation":{"is":1},"/metadata/labels":{"is":{"app":"api","tier":"A"}},"/metadata/labels/tier":{"is":"A"},"#,
        r#""/spec/absent":{},"/spec/replicas":{"is":3},"uid":"e97e269b-8cfe-4032-86c9-1ccc2b02aa04"}"#,
    ];
    assert_eq!(bound.state, want.concat());
}

#[test]
fn a_creation_has_no_state_and_a_deletion_is_bound_to_its_target() {
    assert_eq!(bound("create-pod-1", WholeObject).state, "{}");
    for state in [Identity, TouchedFields] {
        let deletion = bound("delete-pod-grace-0-call-1", state);
        assert_eq!(
            deletion.state,
            r#"{"/metadata/labels":{"is":{"app":"api"}},"uid":"c4aa5def-4c62-4fb0-ad05-78eba04c19a2"}"#
        );
    }
    let calls = [1, 2, 3].map(|call| bound(&format!("delete-pod-grace-0-call-{call}"), Identity));
    assert!(
        calls[0] == calls[1] && calls[1] == calls[2],
        "the calls of one deletion bind the same"
    );
    assert_ne!(
        calls[0].change_digest,
        bound("delete-pod-bound-default-is-one-call", Identity).change_digest
    );
    let calls = [1, 2].map(|call| {
        bound(
            &format!("delete-conflict-after-status-write-call-{call}"),
            Identity,
        )
    });
    assert_eq!(calls[0], calls[1]);
}

#[test]
fn a_volatile_path_is_bound_as_changed_to_any_value_of_its_shape() {
    let first = text(RESTART);
    let second = first.replace(
        "2026-11-30T16:06:51Z\"}},\"spec\"",
        "2027-01-01T00:00:00Z\"}},\"spec\"",
    );
    assert_ne!(first, second);
    for state in [TouchedFields, WholeObject] {
        let [one, two] =
            [&first, &second].map(|text| bound_text(text, &volatile(state, &[RESTARTED])));
        assert_eq!((&one.change, &one.state), (&two.change, &two.state));
        assert_ne!(one.content_digest, two.content_digest);
        assert_eq!(
            one.change,
            format!(
                r#"{{"/spec/template/metadata/annotations":{{"to":{{}}}},"{RESTARTED}":{{"shape":"Timestamp"}}}}"#
            )
        );
        assert!(
            one.diff
                .iter()
                .any(|field| field.to.as_ref().is_some_and(|to| to.contains("16:06:51"))),
            "the reader sees the value"
        );
    }
    // Of another shape, or another path, it is bound exactly.
    let odd = first.replace("2026-11-30T16:06:51Z\"}},\"spec\"", "now\"}},\"spec\"");
    assert!(
        bound_text(&odd, &volatile(TouchedFields, &[RESTARTED]))
            .change
            .contains("\"now\"")
    );
    let other = bound_text(
        &first,
        &volatile(TouchedFields, &["/spec/replicas", "/spec/absent"]),
    );
    assert_eq!(
        other.change_digest,
        bound(RESTART, TouchedFields).change_digest
    );
}

#[test]
fn a_volatile_path_that_changes_again_leaves_its_old_value_out_of_the_state() {
    let again = |old: &str| {
        // Who restarted it before owns the annotations already.
        let text = text(RESTART).replace(r#""f:annotations":{".":{},"#, r#""f:annotations":{"#);
        let at = text.rfind(r#""labels":{"app":"api"}},"spec""#).unwrap();
        let old = format!(r#""annotations":{{"kubectl.kubernetes.io/restartedAt":"{old}"}},"#);
        bound_text(
            &format!("{}{old}{}", &text[..at], &text[at..]),
            &volatile(TouchedFields, &[RESTARTED]),
        )
    };
    let (one, two) = (again("2026-01-01T00:00:00Z"), again("2026-02-02T00:00:00Z"));
    assert_eq!(
        one.change,
        format!(r#"{{"{RESTARTED}":{{"shape":"Timestamp"}}}}"#)
    );
    assert_eq!((&one.change, &one.state), (&two.change, &two.state));
    assert!(!one.state.contains("restartedAt"));
    // A second spelling of the path changes nothing, and what is not touched is no change at all.
    let noop = bound_text(
        &text("update-noop-is-called"),
        &volatile(TouchedFields, &[RESTARTED]),
    );
    assert_eq!(noop.change, "{}");
}

#[test]
fn a_field_asked_for_stays_bound_though_it_is_volatile() {
    let mut binding = volatile(TouchedFields, &[RESTARTED]);
    binding.state_fields = vec![RESTARTED.to_owned()];
    assert!(
        bound_text(&text(RESTART), &binding)
            .state
            .contains(&format!(r#""{RESTARTED}":{{}}"#))
    );
}

#[test]
fn a_secret_is_never_stored_in_clear() {
    let values = [
        "ZXhhbXBsZS1wYXNzd29yZA",
        "ZXhhbXBsZS1wYXNzd29yZC0y",
        "example-password",
    ];
    for name in [
        "update-secret-value",
        "create-secret-stringdata-becomes-data",
        "create-helm-release-secret",
    ] {
        for state in [Identity, TouchedFields, WholeObject] {
            let mut binding = binding(state);
            binding.state_fields = vec!["/data".to_owned(), "/data/password".to_owned()];
            let all = format!("{:?}", bound_text(&text(name), &binding));
            assert!(all.contains("hmac:k1:"), "{name}");
            assert!(
                values.iter().all(|value| !all.contains(value)),
                "{name}: {all}"
            );
        }
    }
    let update = text("update-secret-value");
    let other = update.replacen("ZXhhbXBsZS1wYXNzd29yZC0y", "b3RoZXI=", 1);
    let [one, two] = [&update, &other].map(|text| bound_text(text, &binding(TouchedFields)));
    assert_ne!(
        one.change_digest, two.change_digest,
        "another value is another change"
    );
    assert_eq!(differing(&one.change, &two.change), ["/data/password"]);
}

#[test]
fn a_secrets_lists_put_no_value_into_a_path() {
    let update = text("update-secret-value").replacen(
        r#""type":"Opaque"},"oldObject""#,
        r#""type":"Opaque","list":[{"name":"hunter2","v":1}]},"oldObject""#,
        1,
    );
    let at = update.rfind(r#""type":"Opaque"}"#).unwrap();
    let update = format!(
        r#"{}"list":[{{"name":"hunter2","v":2}}],{}"#,
        &update[..at],
        &update[at..]
    );
    let bound = format!("{:?}", bound_text(&update, &binding(TouchedFields)));
    assert!(
        bound.contains("/list") && !bound.contains("hunter2"),
        "{bound}"
    );
}

#[test]
fn a_change_too_large_to_read_is_refused_and_never_cut() {
    let with_data = |length: usize| {
        text("create-dry-run").replace(
            r#"{"a":"1"}"#,
            &format!(r#"{{"a":"{}"}}"#, "x".repeat(length)),
        )
    };
    let bind = |text: &str| {
        with(text, |comparison| {
            comparison.bind(&binding(WholeObject), &redactor())
        })
    };
    assert!(bind(&with_data(MAX_BYTES - 200)).is_ok());
    let refused = bind(&with_data(MAX_BYTES)).unwrap_err();
    assert_eq!(refused.what, "change");
    assert!(
        refused.size > MAX_BYTES && refused.to_string().contains("131072"),
        "{refused}"
    );
    // A small change of a large object: only the whole object as state is too large.
    let old = text("update-noop-is-called").replace(
        r#""tier":"A""#,
        &format!(r#""tier":"{}""#, "x".repeat(MAX_BYTES)),
    );
    let small = old.replacen(r#""replicas":3"#, r#""replicas":4"#, 1);
    let bind = |state| {
        with(&small, |comparison| {
            comparison.bind(&binding(state), &redactor())
        })
    };
    assert!(bind(TouchedFields).is_ok());
    assert_eq!(bind(WholeObject).unwrap_err().what, "state");
}

#[test]
fn moved_ownership_is_part_of_the_change_and_shown() {
    let bound = bound("update-managedfields-only", TouchedFields);
    assert_eq!(
        bound.change,
        r#"{"as ops-bot (Apply)":{"gains":["/spec/replicas"]}}"#
    );
    assert_eq!(bound.diff.len(), 1);
    assert_eq!(
        (bound.diff[0].path.as_str(), bound.diff[0].to.as_deref()),
        (
            "as ops-bot (Apply)",
            Some(r#"{"gains":["/spec/replicas"]}"#)
        )
    );
}

#[test]
fn the_diff_shows_old_and_new_values() {
    let bound = bound(
        "conflict-retry-after-same-field-write-call-2",
        TouchedFields,
    );
    let fields: Vec<_> = bound
        .diff
        .iter()
        .map(|field| {
            (
                field.path.as_str(),
                field.from.as_deref(),
                field.to.as_deref(),
            )
        })
        .collect();
    assert_eq!(fields, [("/spec/replicas", Some("9"), Some("5"))]);
}

#[test]
fn one_manifest_by_several_clients_is_one_change() {
    let create = text("create-deployment-by-kubectl-create");
    let plain = bound_text(&create, &binding(WholeObject));
    let other = create
        .replace(r#""manager":"kubectl-create""#, r#""manager":"ops-bot""#)
        .replace(r#""fieldManager":"kubectl-create","#, "");
    assert_eq!(bound_text(&other, &binding(WholeObject)), plain);
    let distinct: BTreeMap<String, &str> = [
        "create-deployment-by-kubectl-create",
        "create-deployment-by-kubectl-apply",
    ]
    .map(|name| (bound(name, WholeObject).change_digest, name))
    .into();
    assert_eq!(distinct.len(), 2, "the last-applied annotation counts");
}

#[test]
fn the_deepest_object_fits_a_small_stack() {
    let check = || {
        let nested = |leaf: &str| {
            format!(
                "{}{leaf}{}",
                r#"{"n":"#.repeat(super::super::json::MAX_DEPTH - 4),
                "}".repeat(super::super::json::MAX_DEPTH - 4)
            )
        };
        let review = format!(
            r#"{{"request":{{"resource":{{"group":"example.com","resource":"widgets"}},"operation":"UPDATE","object":{{"spec":{}}},"oldObject":{{"spec":{}}}}}}}"#,
            nested("1"),
            nested("2")
        );
        assert_eq!(
            read(&review).unwrap().depth(),
            super::super::json::MAX_DEPTH - 1
        );
        let bound = bound_text(&review, &binding(WholeObject));
        assert_eq!(bound.diff.len(), 1);
    };
    std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(check)
        .unwrap()
        .join()
        .unwrap();
}

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use super::super::recorded::{binding, bound, bound_text, text};
use super::*;
use crate::api::approval_policy::StateBinding;

fn change(text: &str) -> String {
    bound_text(text, &binding(StateBinding::WholeObject)).change
}

fn digest(name: &str) -> String {
    bound(name, StateBinding::WholeObject).change_digest
}

#[test]
fn one_manifest_created_twice_is_one_change() {
    for name in ["create-pod", "create-job", "create-service-loadbalancer"] {
        assert_ne!(text(&format!("{name}-1")), text(&format!("{name}-2")));
        assert_eq!(
            digest(&format!("{name}-1")),
            digest(&format!("{name}-2")),
            "{name}"
        );
    }
    assert_eq!(
        digest("create-generatename-collision-call-1"),
        digest("create-generatename-collision-call-2")
    );
}

#[test]
fn an_address_and_a_port_that_the_client_chose_are_bound() {
    let chosen = text("create-service-client-chosen-ip-and-port");
    let all = change(&chosen);
    assert!(
        all.contains(r#""clusterIP":"10.96.200.77","clusterIPs":["10.96.200.77"]"#)
            && all.contains(r#""nodePort":30123"#),
        "{all}"
    );
    let made = chosen
        .replace(r#""f:clusterIP":{},"#, "")
        .replace(r#""f:nodePort":{},"#, "");
    let all = change(&made);
    assert!(
        !all.contains("10.96.200.77") && !all.contains("nodePort"),
        "{all}"
    );
    assert_ne!(change(&chosen), change(&made));
    // Another port of the list being chosen says nothing about this one.
    let other = chosen.replace(r#"k:{\"port\":80,"#, r#"k:{\"port\":81,"#);
    assert!(!change(&other).contains(r#""nodePort":"#));
}

#[test]
fn nothing_is_server_made_where_ownership_cannot_be_read() {
    let made = text("create-service-loadbalancer-1");
    assert!(!change(&made).contains("nodePort"));
    let entries_from = made.find(r#","managedFields":["#).unwrap();
    let entries_to = made.find(r#"]},"spec""#).unwrap();
    let with = |entries: &str| {
        format!(
            "{}{entries}{}",
            &made[..entries_from],
            &made[entries_to + 1..]
        )
    };
    for entries in [
        "",
        r#","managedFields":[]"#,
        r#","managedFields":[{}]"#,
        r#","managedFields":{"a":1}"#,
        r#","managedFields":[{"manager":"m","fieldsType":"FieldsV2","fieldsV1":{}}]"#,
        r#","managedFields":[{"manager":"m","fieldsType":"FieldsV1","fieldsV1":3}]"#,
        r#","managedFields":[{"manager":"m","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{}}}]"#,
        r#","managedFields":[{"manager":"m","fieldsType":"FieldsV1","fieldsV1":{"x":{"f:type":{}}}}]"#,
        r#","managedFields":[{"manager":"m","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:ports":{"k:x":{"f:nodePort":{}}},"f:clusterIP":{},"f:healthCheckNodePort":{}}}}]"#,
    ] {
        let all = change(&with(entries));
        assert!(
            all.contains("nodePort")
                && all.contains(r#""clusterIP":"10."#)
                && all.contains("healthCheckNodePort"),
            "{entries}: {all}"
        );
    }
}

#[test]
fn only_an_allocated_shape_is_left_out() {
    let made = text("create-service-loadbalancer-1");
    let (from, to) = (r#""clusterIP":"10.96.86.133""#, r#""clusterIP":"None""#);
    assert!(change(&made.replace(from, to)).contains(r#""clusterIP":"None""#));
    assert!(
        change(&made.replace(r#""nodePort":32220"#, r#""nodePort":"32220""#)).contains("nodePort")
    );
    assert!(
        change(&made.replace(r#""nodePort":32220"#, r#""nodePort":99999"#)).contains("nodePort")
    );
}

#[test]
fn a_volume_that_only_looks_like_the_servers_is_bound() {
    let all = change(&text("create-pod-client-volume-replaces-server-made"));
    assert!(
        all.contains("kube-api-access-evil1") && all.contains(r#""hostPath":{"path":"/""#),
        "{all}"
    );
    let made = text("create-pod-1");
    let shown = change(&made);
    assert!(
        shown.contains(r#""name":"kube-api-access-*","projected""#) && !shown.contains("7nfwl"),
        "{shown}"
    );
    for (from, to) in [
        (
            r#""expirationSeconds":3607"#,
            r#""expirationSeconds":999999"#,
        ),
        (r#""name":"kube-root-ca.crt""#, r#""name":"other""#),
        (r#""defaultMode":420"#, r#""defaultMode":511"#),
        ("kube-api-access-7nfwl", "kube-api-access-7nfw1"),
        ("kube-api-access-7nfwl", "kube-api-access-7nfwll"),
        (
            r#"{"name":"kube-api-access-7nfwl","projected""#,
            r#"{"name":"kube-api-access-7nfwl","emptyDir":{},"projected""#,
        ),
        (
            r#""f:containers""#,
            r#""f:volumes":{".":{},"k:{\"name\":\"kube-api-access-7nfwl\"}":{".":{}}},"f:containers""#,
        ),
    ] {
        assert!(made.contains(from), "{from}");
        let all = change(&made.replace(from, to));
        assert!(!all.contains("kube-api-access-*"), "{to}: {all}");
    }
    // A mount of it elsewhere, or writable, is not the server's.
    for (from, to) in [
        (r#","readOnly":true,"mountPath""#, r#","mountPath""#),
        ("/var/run/secrets/kubernetes.io/serviceaccount", "/tmp"),
    ] {
        assert!(made.contains(from), "{from}");
        assert!(
            change(&made.replace(from, to)).contains(r#""name":"kube-api-access-7nfwl""#),
            "{to}"
        );
    }
}

#[test]
fn a_jobs_labels_are_left_out_only_where_they_hold_its_own_uid() {
    let made = text("create-job-1");
    assert!(!change(&made).contains("controller-uid"));
    let label = r#""controller-uid":"83a4f2e2-a6f8-462f-923d-56f44c82efeb""#;
    assert!(made.contains(label));
    assert!(
        change(&made.replace(label, r#""controller-uid":"another""#))
            .contains(r#""controller-uid":"another""#)
    );
    let owned = made.replace(
        r#""f:template":{"#,
        r#""f:template":{"f:metadata":{"f:labels":{"f:controller-uid":{}}},"#,
    );
    assert!(
        change(&owned).contains(label),
        "what the client set is bound"
    );
    // The name of a Job stands in its labels; it is made only if the name is.
    assert!(change(&made).contains(r#""job-name":"report""#));
    let generated = made.replace("\"report\"", "\"report-x2z4w\"").replace(
        r#""name":"report-x2z4w","namespace":"web","uid""#,
        r#""name":"report-x2z4w","generateName":"report-","namespace":"web","uid""#,
    );
    let all = change(&generated);
    assert!(
        all.contains(r#""generateName":"report-""#) && !all.contains("x2z4w"),
        "{all}"
    );
}

/// A review whose object is what `object` makes of a body, and, on an update, whose old object is the other.
fn review(resource: &str, object: &str, old: Option<&str>) -> String {
    let (group, resource) = resource.split_once('/').unwrap_or(("", resource));
    let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
    format!(
        r#"{{"request":{{"resource":{{"group":"{group}","resource":"{resource}"}},"operation":"{operation}","object":{object},"oldObject":{}}}}}"#,
        old.unwrap_or("null")
    )
}

#[test]
fn an_update_that_makes_the_server_allocate_is_one_change_on_every_try() {
    let made = text("create-service-loadbalancer-1");
    let service = made
        .split(r#""object":"#)
        .nth(1)
        .unwrap()
        .split(r#","oldObject""#)
        .next()
        .unwrap();
    let before = service
        .replace(r#","nodePort":32220"#, "")
        .replace(r#""healthCheckNodePort":30199,"#, "");
    let before = before.replace(r#""type":"LoadBalancer""#, r#""type":"ClusterIP""#);
    let again = service.replace("32220", "31148").replace("30199", "32052");
    assert!(again != service && before != service);
    let [one, two] =
        [service, &again].map(|after| change(&review("services", after, Some(&before))));
    assert_eq!(one, two);
    assert_eq!(one, r#"{"/spec/type":{"to":"LoadBalancer"}}"#);
    // A port that the client chooses is part of the change, and its old value is shown though the server made it.
    let chosen = again.replace(r#""f:targetPort""#, r#""f:nodePort":{},"f:targetPort""#);
    let bound = bound_text(
        &review("services", &chosen, Some(service)),
        &binding(StateBinding::TouchedFields),
    );
    let port = bound
        .diff
        .iter()
        .find(|field| field.path.ends_with("/nodePort"))
        .unwrap();
    assert_eq!(
        (port.from.as_deref(), port.to.as_deref()),
        (Some("32220"), Some("31148"))
    );
}

#[test]
fn a_daemon_sets_counter_is_left_out_of_updates_alone() {
    let set = |count: &str, image: &str| {
        let managed = r#""managedFields":[{"manager":"m","operation":"Update","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{"f:deprecated.daemonset.template.generation":{}}}}}]"#;
        format!(
            r#"{{"metadata":{{"annotations":{{"deprecated.daemonset.template.generation":{count},"a":"b"}},{managed}}},"spec":{{"image":"{image}"}}}}"#
        )
    };
    let update = |from: &str, to: &str| {
        bound_text(
            &review("apps/daemonsets", &set(to, "y"), Some(&set(from, "x"))),
            &binding(StateBinding::WholeObject),
        )
    };
    let (one, two) = (update("\"1\"", "\"2\""), update("\"2\"", "\"3\""));
    assert_eq!(one, two);
    assert_eq!(one.change, r#"{"/spec/image":{"to":"y"}}"#);
    assert!(
        update("\"1\"", "\"x\"")
            .change
            .contains("template.generation")
    );
    // At creation the server keeps what a client chose, and else always writes 1.
    let create = |count: &str| change(&review("apps/daemonsets", &set(count, "x"), None));
    assert!(create("\"77\"").contains(r#""deprecated.daemonset.template.generation":"77""#));
    assert_ne!(create("\"1\""), create("\"77\""));
}

#[test]
fn a_persistent_volumes_phase_time_is_left_out() {
    let volume = |resource: &str, time: &str| {
        let managed = r#""managedFields":[{"manager":"m","operation":"Update","fieldsType":"FieldsV1","fieldsV1":{}}]"#;
        let object = format!(
            r#"{{"metadata":{{{managed}}},"status":{{"phase":"Pending","lastPhaseTransitionTime":"{time}"}}}}"#
        );
        change(&review(resource, &object, None))
    };
    let (one, two) = ("2026-11-30T16:06:51Z", "2026-11-30T16:06:52Z");
    assert_eq!(
        volume("persistentvolumes", one),
        volume("persistentvolumes", two)
    );
    assert_ne!(
        volume("persistentvolumes", one),
        volume("persistentvolumes", "today")
    );
    assert_ne!(
        volume("widgets", one),
        volume("widgets", two),
        "the same member in another kind is content"
    );
}

#[test]
fn only_a_prefix_and_five_characters_make_a_generated_name() {
    for (name, prefix, want) in [
        ("job-x2z4w", "job-", true),
        ("coredns", "job-", false),
        ("job-x2z4", "job-", false),
        ("job-x2z4wx", "job-", false),
        ("job-x2z4a", "job-", false),
        ("job-x2z41", "job-", false),
        ("x2z4w", "", false),
        ("job-", "job-", false),
    ] {
        assert_eq!(is_generated_name(name, prefix), want, "{name} {prefix}");
    }
    let long = "n".repeat(248);
    assert!(is_generated_name(&format!("{}x2z4w", &long[..58]), &long));
    assert!(!is_generated_name(&format!("{long}x2z4w"), &long));
}

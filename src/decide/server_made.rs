//! What the API server puts into an object by itself: it differs between two equal proposals, so no digest may hold it.
//!
//! Left out, in exact shape and only where no entry of `managedFields` owns it, that is, where no client set it (V11, W8):
//! a Service's addresses and node ports, a Job's uid labels, the time in a PersistentVolume's status. The token volume of a
//! Pod stays visible under a name without its random end. An object without readable `managedFields` has nothing left out but
//! the metadata that no client can set: whoever wipes the list must not hide a field by that.

use std::net::IpAddr;

use super::{
    canonical::{self, EditList},
    json::Value,
    ownership::{self, Step},
    shape,
};

/// Metadata that the server alone decides. The last two appear while a deletion is under way: the second call that one DELETE makes
/// shows what the first one did (X 4), and that is no other state.
pub const METADATA: [&str; 8] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "selfLink",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

/// Characters of which the server makes the end of a generated name.
const GENERATED: &str = "bcdfghjklmnpqrstvwxz2456789";
/// How many of them.
const GENERATED_LENGTH: usize = 5;
/// The server cuts a `generateName` to this length before it appends them.
const GENERATED_BASE_LENGTH: usize = 58;

const TOKEN_VOLUME: &str = "kube-api-access-";
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The volume that holds a Pod's token, as the server makes it.
const TOKEN_PROJECTION: &str = concat!(
    r#"{"defaultMode":420,"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},"#,
    r#"{"configMap":{"items":[{"key":"ca.crt","path":"ca.crt"}],"name":"kube-root-ca.crt"}},"#,
    r#"{"downwardAPI":{"items":[{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"},"path":"namespace"}]}}]}"#,
);

/// Whether a name is what the server makes of `generateName`: the prefix and five characters of its alphabet (V12).
pub fn is_generated_name(name: &str, generate_name: &str) -> bool {
    let base = generate_name
        .get(..GENERATED_BASE_LENGTH)
        .unwrap_or(generate_name);
    !base.is_empty() && name.strip_prefix(base).is_some_and(is_generated)
}

fn is_generated(end: &str) -> bool {
    end.len() == GENERATED_LENGTH && end.chars().all(|character| GENERATED.contains(character))
}

/// Adds to `edits` what the server made of this object. `is_new`: it is being created. `generated_name`: its name stands for its `generateName`.
pub fn leave_out(
    object: Value<'_>,
    group: &str,
    resource: &str,
    is_new: bool,
    generated_name: bool,
    edits: &mut EditList,
) {
    if let Some(metadata) = object.get("metadata") {
        for (key, value) in metadata.entries() {
            if METADATA.contains(&key) || (generated_name && key == "name") {
                edits.omit(value);
            }
        }
    }
    let mut made = Made {
        object,
        owners: Owners::of(object),
        edits,
    };
    match (group, resource) {
        ("", "services") => made.service(),
        ("", "pods") => made.pod(),
        ("batch", "jobs") => made.job(generated_name),
        ("apps", "daemonsets") if !is_new => made.daemon_set(),
        ("", "persistentvolumes") => made.persistent_volume(),
        _ => {}
    }
}

struct Made<'d, 'e> {
    object: Value<'d>,
    owners: Owners<'d>,
    edits: &'e mut EditList,
}

/// One step down to a field, to be looked up in `managedFields`.
#[derive(Clone, Copy)]
enum Down<'d> {
    Member(&'d str),
    Element(Value<'d>),
}

impl<'d> Made<'d, '_> {
    fn omit_unless_owned(
        &mut self,
        value: Option<Value<'d>>,
        path: &[Down<'d>],
        in_shape: impl Fn(Value<'d>) -> bool,
    ) {
        if let Some(value) = value
            && in_shape(value)
            && !self.owners.own(path)
        {
            self.edits.omit(value);
        }
    }

    fn service(&mut self) {
        use Down::{Element, Member};
        let Some(spec) = self.object.get("spec") else {
            return;
        };
        // One stands for the other: with either chosen by the client, both are.
        let (address, addresses) = (spec.get("clusterIP"), spec.get("clusterIPs"));
        let chosen = [Member("clusterIP"), Member("clusterIPs")]
            .iter()
            .any(|field| self.owners.own(&[Member("spec"), *field]));
        let allocated = address.is_some_and(is_address)
            && addresses.is_none_or(|list| {
                list.is_array() && !list.is_empty() && list.items().all(is_address)
            });
        if !chosen && allocated {
            for value in [address, addresses].into_iter().flatten() {
                self.edits.omit(value);
            }
        }
        for port in spec.get("ports").into_iter().flat_map(Value::items) {
            let path = [
                Member("spec"),
                Member("ports"),
                Element(port),
                Member("nodePort"),
            ];
            self.omit_unless_owned(port.get("nodePort"), &path, is_port);
        }
        self.omit_unless_owned(
            spec.get("healthCheckNodePort"),
            &[Member("spec"), Member("healthCheckNodePort")],
            is_port,
        );
    }

    fn pod(&mut self) {
        use Down::{Element, Member};
        let Some(spec) = self.object.get("spec") else {
            return;
        };
        let mut made = None;
        for volume in spec.get("volumes").into_iter().flat_map(Value::items) {
            if is_token_volume(volume)
                && !self
                    .owners
                    .own(&[Member("spec"), Member("volumes"), Element(volume)])
            {
                made = volume.get("name");
            }
        }
        let Some(name) = made else { return };
        // No client can choose a name with a star in it.
        let open = canonical::string(&format!("{TOKEN_VOLUME}*"));
        self.edits.replace(name, open.clone());
        for list in ["containers", "initContainers"] {
            for container in spec.get(list).into_iter().flat_map(Value::items) {
                for mount in container
                    .get("volumeMounts")
                    .into_iter()
                    .flat_map(Value::items)
                {
                    let path = [
                        Member("spec"),
                        Member(list),
                        Element(container),
                        Member("volumeMounts"),
                        Element(mount),
                    ];
                    if is_token_mount(mount, name)
                        && !self.owners.own(&path)
                        && let Some(mounted) = mount.get("name")
                    {
                        self.edits.replace(mounted, open.clone());
                    }
                }
            }
        }
    }

    fn job(&mut self, generated_name: bool) {
        use Down::Member;
        let metadata = |key| {
            self.object
                .get("metadata")
                .and_then(|metadata| metadata.get(key))
                .and_then(Value::as_str)
        };
        let (uid, name) = (metadata("uid"), metadata("name").filter(|_| generated_name));
        let places: [&[&'static str]; 2] = [
            &["spec", "selector", "matchLabels"],
            &["spec", "template", "metadata", "labels"],
        ];
        for place in places {
            let Some(labels) = place.iter().try_fold(self.object, |at, key| at.get(key)) else {
                continue;
            };
            for (key, value) in labels.entries() {
                let made_of = match key {
                    "controller-uid" | "batch.kubernetes.io/controller-uid" => uid,
                    "job-name" | "batch.kubernetes.io/job-name" => name,
                    _ => None,
                };
                let mut path: Vec<Down<'_>> = place.iter().map(|key| Member(key)).collect();
                path.push(Member(key));
                self.omit_unless_owned(Some(value), &path, |value| {
                    made_of.is_some() && value.as_str() == made_of
                });
            }
        }
    }

    /// The server writes this annotation from a counter of its own on every update and drops what a client sends; the entry
    /// of whoever created the object or tried that owns it all the same, so ownership says nothing here. At creation the
    /// server keeps a client's number and else writes 1, so there the number is bound.
    fn daemon_set(&mut self) {
        let annotations = self
            .object
            .get("metadata")
            .and_then(|metadata| metadata.get("annotations"));
        let counter = annotations
            .and_then(|annotations| annotations.get("deprecated.daemonset.template.generation"));
        let is_count =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if let Some(counter) = counter
            && counter.as_str().is_some_and(is_count)
        {
            self.edits.omit(counter);
        }
    }

    fn persistent_volume(&mut self) {
        use Down::Member;
        let time = self
            .object
            .get("status")
            .and_then(|status| status.get("lastPhaseTransitionTime"));
        let path = [Member("status"), Member("lastPhaseTransitionTime")];
        self.omit_unless_owned(time, &path, |time| {
            time.as_str().is_some_and(shape::is_timestamp)
        });
    }
}

fn is_address(value: Value<'_>) -> bool {
    value
        .as_str()
        .is_some_and(|text| text.parse::<IpAddr>().is_ok())
}

fn is_port(value: Value<'_>) -> bool {
    value
        .as_i64()
        .is_some_and(|port| (1..=65535).contains(&port))
}

fn is_token_volume(volume: Value<'_>) -> bool {
    let named = volume
        .get("name")
        .and_then(Value::as_str)
        .and_then(|name| name.strip_prefix(TOKEN_VOLUME));
    volume.len() == 2
        && named.is_some_and(is_generated)
        && volume
            .get("projected")
            .is_some_and(|projected| canonical::to_string(projected) == TOKEN_PROJECTION)
}

fn is_token_mount(mount: Value<'_>, name: Value<'_>) -> bool {
    let text = |key| mount.get(key).and_then(Value::as_str);
    mount.len() == 3
        && text("name") == name.as_str()
        && text("mountPath") == Some(TOKEN_PATH)
        && mount.get("readOnly").and_then(Value::as_bool) == Some(true)
}

/// Who owns which fields of an object.
struct Owners<'d> {
    /// Absent where nothing can be told: then everything counts as set by a client.
    entries: Option<Vec<Value<'d>>>,
}

impl<'d> Owners<'d> {
    fn of(object: Value<'d>) -> Self {
        let list =
            ownership::managed_fields(object).filter(|list| list.is_array() && !list.is_empty());
        Self {
            entries: list.and_then(|list| {
                list.items()
                    .map(|entry| ownership::fields(entry).ok())
                    .collect()
            }),
        }
    }

    /// Whether some entry owns the place, something in it, or a whole that it is a part of.
    fn own(&self, path: &[Down<'d>]) -> bool {
        self.entries
            .as_ref()
            .is_none_or(|entries| entries.iter().any(|fields| owns(*fields, path)))
    }
}

fn owns(fields: Value<'_>, path: &[Down<'_>]) -> bool {
    let mut at = fields;
    for (depth, step) in path.iter().enumerate() {
        if !at.is_object() || (depth > 0 && at.is_empty()) {
            // A leaf is owned as a whole; what is no tree cannot be read.
            return true;
        }
        let mut below = None;
        for (key, fields) in at.entries() {
            let is_it = match (Step::read(key), step) {
                (Some(Step::Member(name)), Down::Member(wanted)) => name == *wanted,
                (Some(Step::Element(text)), Down::Element(element)) => {
                    match super::json::read(text) {
                        Ok(key) => ownership::has_key(*element, key.root()),
                        Err(_) => return true,
                    }
                }
                // What cannot be read, or told apart, may be this place.
                (Some(Step::Index(_) | Step::Item(_)), Down::Element(_)) => return true,
                (None, _) if key != "." => return true,
                _ => false,
            };
            if is_it {
                below = Some(fields);
                break;
            }
        }
        match below {
            Some(fields) => at = fields,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests;

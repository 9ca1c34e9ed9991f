//! Where two stored changes, or two stored states, differ: for messages that say why a grant does not serve.

use super::{
    bind::OPTIONS,
    canonical::{self, AsIs},
    diff::{self, Lists},
    json::{self, Value},
    quorum::policy_label,
};
use crate::api::PolicyRef;

/// The policies that began or ceased to match, or say something else now, sorted.
pub fn policies(approved: &[PolicyRef], now: &[PolicyRef]) -> Vec<String> {
    let missing = |from: &[PolicyRef], of: &PolicyRef| {
        !from.iter().any(|other| {
            (&other.kind, &other.namespace, &other.name, &other.hash)
                == (&of.kind, &of.namespace, &of.name, &of.hash)
        })
    };
    let before = approved.iter().filter(|policy| missing(now, policy));
    let after = now.iter().filter(|policy| missing(approved, policy));
    let mut labels: Vec<String> = before.chain(after).map(policy_label).collect();
    labels.sort_unstable();
    labels.dedup();
    labels
}

/// The paths in which two changes, or two states, as [`super::bind::Bound`] holds them, differ; sorted. A path that both bind
/// to values of their own is followed down to what differs in them. Texts that cannot be read differ as a whole, in `""`.
pub fn differing(approved: &str, attempted: &str) -> Vec<String> {
    if approved == attempted {
        return Vec::new();
    }
    let (Ok(approved), Ok(attempted)) = (json::read(approved), json::read(attempted)) else {
        return vec![String::new()];
    };
    let (approved, attempted) = (approved.root(), attempted.root());
    let mut paths = Vec::new();
    for (path, value) in approved.entries() {
        match attempted.get(path) {
            Some(other) => descend(path, value, other, &mut paths),
            None => paths.push(path.to_owned()),
        }
    }
    paths.extend(
        attempted
            .entries()
            .filter(|(path, _)| approved.get(path).is_none())
            .map(|(path, _)| path.to_owned()),
    );
    paths.sort_unstable();
    paths.dedup();
    paths
}

fn descend<'d>(path: &str, approved: Value<'d>, attempted: Value<'d>, paths: &mut Vec<String>) {
    if canonical::equal(approved, attempted) {
        return;
    }
    let side = |value: Value<'d>, side| {
        if path == OPTIONS {
            Some(value)
        } else {
            value.get(side)
        }
    };
    for name in ["to", "is"] {
        if let (Some(approved), Some(attempted)) = (side(approved, name), side(attempted, name)) {
            let below = diff::between(approved, attempted, Lists::ByKey, &AsIs);
            paths.extend(
                below
                    .into_iter()
                    .map(|changed| format!("{path}{}", changed.path)),
            );
            return;
        }
    }
    paths.push(path.to_owned());
}

#[cfg(test)]
mod tests {
    use super::differing;

    #[test]
    fn equal_texts_differ_nowhere() {
        assert!(differing(r#"{"/a":{"to":1}}"#, r#"{"/a":{"to":1}}"#).is_empty());
        assert!(differing(r#"{"/a":{"to":1},"/b":{}}"#, r#"{ "/b":{}, "/a":{"to":1}}"#).is_empty());
    }

    #[test]
    fn each_path_that_differs_is_named() {
        assert_eq!(
            differing(
                r#"{"/a":{"to":1},"/b":{"to":null},"/c":{},"/e":{"to":2}}"#,
                r#"{"/a":{"to":2},"/b":{},"/d":{},"/e":{"to":2}}"#
            ),
            ["/a", "/b", "/c", "/d"]
        );
        assert_eq!(
            differing(r#"{"/t":{"to":"x"}}"#, r#"{"/t":{"shape":"Timestamp"}}"#),
            ["/t"]
        );
        assert_eq!(differing(r#"{"uid":"1"}"#, r#"{"uid":"2"}"#), ["uid"]);
    }

    #[test]
    fn whole_objects_are_followed_down() {
        let object = |image: &str| {
            format!(
                r#"{{"":{{"to":{{"spec":{{"containers":[{{"name":"app","image":"{image}"}}],"replicas":1}}}}}}}}"#
            )
        };
        assert_eq!(
            differing(&object("a"), &object("b")),
            ["/spec/containers/[name=app]/image"]
        );
        assert_eq!(
            differing(r#"{"options":{"g":1}}"#, r#"{"options":{"g":2}}"#),
            ["options/g"]
        );
    }

    #[test]
    fn an_unreadable_text_differs_as_a_whole() {
        assert_eq!(differing("", "{}"), [""]);
    }
}

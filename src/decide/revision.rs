//! Revisions of objects. Within one etcd their resourceVersions are ordered integers.

use std::cmp::Ordering;

use crate::api::approval_request::Base;

/// How two resourceVersions stand to each other; `None` where one of them is no integer.
pub fn order(a: &str, b: &str) -> Option<Ordering> {
    Some(a.parse::<u64>().ok()?.cmp(&b.parse::<u64>().ok()?))
}

/// How the revision shown stands to the one recorded. Equal where the operation shows none on either side, as a CREATE; `None` where it
/// cannot be told.
pub fn shown_against(recorded: Option<&Base>, shown: Option<&Base>) -> Option<Ordering> {
    match (recorded, shown) {
        (Some(recorded), Some(shown)) => order(&shown.resource_version, &recorded.resource_version),
        (None, None) => Some(Ordering::Equal),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(resource_version: &str) -> Base {
        Base {
            resource_version: resource_version.to_owned(),
            generation: None,
        }
    }

    #[test]
    fn revisions_are_ordered_as_integers_and_nothing_else_is_ordered() {
        assert_eq!(order("9", "10"), Some(Ordering::Less));
        assert_eq!(order("10", "10"), Some(Ordering::Equal));
        assert_eq!(order("", "10"), None);
        assert_eq!(order("10", "abc"), None);
    }

    #[test]
    fn a_revision_on_one_side_only_tells_nothing() {
        let (old, new) = (base("9"), base("10"));
        assert_eq!(
            shown_against(Some(&old), Some(&new)),
            Some(Ordering::Greater)
        );
        assert_eq!(shown_against(None, None), Some(Ordering::Equal));
        assert_eq!(shown_against(Some(&old), None), None);
        assert_eq!(shown_against(None, Some(&new)), None);
    }
}

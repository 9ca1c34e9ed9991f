#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use proptest::prelude::*;

use super::super::arbitrary::{PLAIN, spelling, tree};
use super::super::json::{MAX_DEPTH, read};
use super::*;

fn canonical(text: &str) -> String {
    to_string(read(text).unwrap().root())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_canonical_form_is_its_own(tree in tree(), spelling in spelling()) {
        let once = canonical(&tree.spell(spelling));
        prop_assert_eq!(canonical(&once), once);
    }

    #[test]
    fn another_spelling_has_the_same_form(tree in tree(), a in spelling(), b in spelling()) {
        let (a, b) = (tree.spell(a), tree.spell(b));
        prop_assert_eq!(canonical(&a), canonical(&b));
        let (a, b) = (read(&a).unwrap(), read(&b).unwrap());
        prop_assert!(equal(a.root(), b.root()));
    }

    #[test]
    fn different_values_have_different_forms(a in tree(), b in tree()) {
        let same = a.sorted() == b.sorted();
        let (a, b) = (a.spell(PLAIN), b.spell(PLAIN));
        prop_assert_eq!(canonical(&a) == canonical(&b), same);
        let (a, b) = (read(&a).unwrap(), read(&b).unwrap());
        prop_assert_eq!(equal(a.root(), b.root()), same);
    }

    #[test]
    fn the_form_means_what_the_text_meant(tree in tree(), spelling in spelling()) {
        let text = tree.spell(spelling);
        let before: serde_json::Value = serde_json::from_str(&text).unwrap();
        let after: serde_json::Value = serde_json::from_str(&canonical(&text)).unwrap();
        prop_assert_eq!(before, after);
    }
}

#[test]
fn members_are_sorted_by_the_bytes_of_their_keys() {
    assert_eq!(
        canonical(r#"{"é":1,"z":2,"":3,"Z":4,"😀":5,"":6,"a":{"y":1,"x":2}}"#),
        r#"{"":3,"":6,"Z":4,"a":{"x":2,"y":1},"z":2,"é":1,"😀":5}"#
    );
    // U+FF5E sorts before U+1F600 by UTF-8 bytes, behind it by UTF-16 units.
    assert_eq!(
        canonical("{\"\u{1F600}\":1,\"\u{FF5E}\":2}"),
        "{\"\u{FF5E}\":2,\"\u{1F600}\":1}"
    );
}

#[test]
fn strings_have_the_fewest_escapes() {
    assert_eq!(
        canonical(r#""\u003c\/\u2028\u001b\u0008\u000a\u007f\"\\\u00e9""#),
        "\"</\u{2028}\\u001b\\b\\n\u{7f}\\\"\\\\é\""
    );
}

#[test]
fn null_absent_and_empty_differ() {
    let forms: std::collections::BTreeSet<String> = [
        r#"{"a":null}"#,
        "{}",
        r#"{"a":{}}"#,
        r#"{"a":[]}"#,
        r#"{"a":""}"#,
        r#"{"a":0}"#,
        r#"{"a":false}"#,
    ]
    .into_iter()
    .map(canonical)
    .collect();
    assert_eq!(forms.len(), 7);
}

#[test]
fn an_object_of_texts_is_sorted_and_quoted() {
    assert_eq!(object([("b", "1"), ("a\"", "{}")]), r#"{"a\"":{},"b":1}"#);
    assert_eq!(object::<&str, &str>([]), "{}");
    assert_eq!(array(["1", "{}"]), "[1,{}]");
    assert_eq!(string("a\n"), "\"a\\n\"");
}

#[test]
fn a_digest_names_its_version_and_hash() {
    assert_eq!(
        digest(""),
        "v1:sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    );
}

#[test]
fn parts_can_be_left_out_or_replaced() {
    struct Marked<'d>(Value<'d>, Value<'d>);
    impl Edits for Marked<'_> {
        fn edit(&self, value: Value<'_>) -> Edit<'_> {
            if value.index() == self.0.index() {
                Edit::Omit
            } else if value.index() == self.1.index() {
                Edit::Text("\"x\"")
            } else {
                Edit::Keep
            }
        }
    }
    let document = read(r#"{"c":3,"a":1,"b":[1,2,3]}"#).unwrap();
    let root = document.root();
    let marked = Marked(root.at("/a").unwrap(), root.at("/b/1").unwrap());
    assert_eq!(to_string_edited(root, &marked), r#"{"b":[1,"x",3],"c":3}"#);
    let marked = Marked(root.at("/b/0").unwrap(), root.at("/c").unwrap());
    assert_eq!(
        to_string_edited(root, &marked),
        r#"{"a":1,"b":[2,3],"c":"x"}"#
    );
}

#[test]
fn the_deepest_value_fits_a_small_stack() {
    let check = || {
        let text = format!(
            "{}1{}",
            r#"{"a":["#.repeat(MAX_DEPTH / 2),
            "]}".repeat(MAX_DEPTH / 2)
        );
        let document = read(&text).unwrap();
        assert_eq!(document.depth(), MAX_DEPTH);
        assert_eq!(to_string(document.root()), text);
        let other = text.replace('1', "2");
        let other = read(&other).unwrap();
        assert!(!equal(document.root(), other.root()));
    };
    std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(check)
        .unwrap()
        .join()
        .unwrap();
}

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use proptest::prelude::*;

use super::super::arbitrary::{Tree, spelling, tree};
use super::*;

fn matches(value: Value<'_>, tree: &Tree) -> bool {
    match (value.kind(), tree) {
        (Kind::Null, Tree::Null) => true,
        (Kind::Bool(a), Tree::Bool(b)) => a == *b,
        (Kind::Number(a), Tree::Number(b)) => a == b,
        (Kind::String(a), Tree::String(b)) => a == b,
        (Kind::Array, Tree::Array(items)) => {
            value.len() == items.len() && value.items().zip(items).all(|(a, b)| matches(a, b))
        }
        (Kind::Object, Tree::Object(members)) => {
            value.len() == members.len()
                && members
                    .iter()
                    .all(|(key, member)| value.get(key).is_some_and(|a| matches(a, member)))
        }
        _ => false,
    }
}

/// Whether serde_json reads a text differently on purpose: numbers beyond f64 and lone surrogates, which we keep.
fn differs_on_purpose(problem: &serde_json::Error) -> bool {
    let words = problem.to_string();
    [
        "number out of range",
        "recursion limit",
        "surrogate",
        "unexpected end of hex escape",
    ]
    .iter()
    .any(|word| words.contains(word))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_written_is_read(tree in tree(), spelling in spelling()) {
        let text = tree.spell(spelling);
        let document = read(&text).unwrap();
        prop_assert!(matches(document.root(), &tree), "{text}");
        prop_assert!(document.duplicate_key().is_none());
    }

    #[test]
    fn any_text_is_answered_and_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let text = String::from_utf8_lossy(&bytes);
        let _ = read(&text);
    }

    #[test]
    fn what_serde_json_accepts_is_accepted_and_nothing_else(text in r#"[\[\]{}",:0-9eE+\-.\\utrfalsn \n]{0,24}"#) {
        match (read(&text), serde_json::from_str::<serde_json::Value>(&text)) {
            (Ok(_), Ok(_)) | (Err(_), Err(_)) => {}
            (Ok(_), Err(problem)) => prop_assert!(differs_on_purpose(&problem), "accepted {text:?}: {problem}"),
            (Err(problem), Ok(_)) => prop_assert!(false, "refused {text:?}: {problem}"),
        }
    }

    #[test]
    fn a_byte_changed_anywhere_is_read_as_serde_json_reads_it(tree in tree(), spelling in spelling(), at in any::<prop::sample::Index>(), byte in 0x20u8..0x7f) {
        let mut bytes = tree.spell(spelling).into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        match (read(&text), serde_json::from_str::<serde_json::Value>(&text)) {
            (Ok(_), Ok(_)) | (Err(_), Err(_)) => {}
            (Ok(_), Err(problem)) => prop_assert!(differs_on_purpose(&problem), "accepted {text:?}: {problem}"),
            (Err(problem), Ok(_)) => prop_assert!(false, "refused {text:?}: {problem}"),
        }
    }
}

#[test]
fn the_grammar_is_strict() {
    for text in [
        "",
        " ",
        "{",
        "[",
        "[1,]",
        "{\"a\":1,}",
        "{,}",
        "[,]",
        "{\"a\"}",
        "{a:1}",
        "{\"a\":}",
        "01",
        "-",
        "1.",
        ".5",
        "1e",
        "+1",
        "tru",
        "nul",
        "true false",
        "1 2",
        "{}}",
        "[]]",
        "[}",
        "{]",
        "\"",
        "\"\\",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12G4\"",
        "\"a\nb\"",
        "\"\u{1}\"",
        "\u{feff}{}",
        "'a'",
        "NaN",
        "Infinity",
        "/**/1",
        "[1 2]",
        "{\"a\":1 \"b\":2}",
        "\u{a0}1",
    ] {
        assert!(read(text).is_err(), "{text:?}");
    }
    for text in [
        "0",
        "-0",
        "-0.0e-0",
        "1E400",
        "\"\\/\"",
        "\"\u{7f}\u{2028}\"",
        " [ ] ",
        "\t{ }\r\n",
    ] {
        assert!(read(text).is_ok(), "{text:?}");
    }
}

#[test]
fn a_problem_says_where_and_what() {
    let problem = read("{\"a\": x}").unwrap_err();
    assert_eq!((problem.offset, problem.expected), (6, "a value"));
    assert_eq!(problem.to_string(), "not JSON at byte 6: expected a value");
    assert_eq!(read("[1").unwrap_err().expected, "`,` or `]`");
    assert_eq!(
        read("[1]x").unwrap_err(),
        Malformed {
            offset: 3,
            expected: "the end of the text"
        }
    );
    assert_eq!(read("\"ab").unwrap_err().offset, 3);
}

#[test]
fn surrogates_are_joined_and_lone_ones_replaced() {
    for (text, want) in [
        (r#""\ud83d\ude00""#, "😀"),
        (r#""\ud83d""#, "\u{FFFD}"),
        (r#""\ude00\ud83d""#, "\u{FFFD}\u{FFFD}"),
        (r#""\ud83d\ud83d\ude00""#, "\u{FFFD}😀"),
        (r#""\ud83dx\u0041""#, "\u{FFFD}xA"),
        (r#""\ud83d\n""#, "\u{FFFD}\n"),
        (r#""\u0000\b\f\r\t\"\\\/""#, "\0\u{8}\u{c}\r\t\"\\/"),
    ] {
        assert_eq!(read(text).unwrap().root().as_str(), Some(want), "{text}");
    }
    assert!(read(r#""\ud83d\uzzzz""#).is_err());
}

#[test]
fn the_first_repeated_key_is_named_and_the_first_value_wins() {
    let document = read(r#"{"a":{"x":1,"y":[0,{"k/":1,"k/":2}]},"b":1,"a":3}"#).unwrap();
    assert_eq!(document.duplicate_key(), Some("/a/y/1/k~1"));
    assert_eq!(document.root().at("/a/x").and_then(Value::as_i64), Some(1));
    assert_eq!(
        read(r#"{"a":1,"a":{"b":1,"b":1}}"#)
            .unwrap()
            .duplicate_key(),
        Some("/a")
    );
    assert_eq!(
        read(r#"{"a":1,"\u0061":2}"#).unwrap().duplicate_key(),
        Some("/a")
    );
    let many: String = (0..40)
        .map(|number| format!("\"k{number}\":{number},"))
        .collect();
    assert_eq!(
        read(&format!("{{{many}\"z\":0}}")).unwrap().duplicate_key(),
        None
    );
    assert_eq!(
        read(&format!("{{{many}\"k7\":0}}"))
            .unwrap()
            .duplicate_key(),
        Some("/k7")
    );
}

#[test]
fn depth_is_counted_and_ten_thousand_levels_are_harmless() {
    for (text, depth) in [("1", 0), ("[]", 1), ("{\"a\":[1]}", 2), ("[[],[[]]]", 3)] {
        assert_eq!(read(text).unwrap().depth(), depth, "{text}");
    }
    let deep = format!("{}{}", "[{\"a\":".repeat(50_000), "1") + &"}]".repeat(50_000);
    let document = read(&deep).unwrap();
    assert_eq!(document.depth(), 100_000);
    assert_eq!(document.root().len(), 1);
    let repeated = format!(
        "{}{}{}",
        "[".repeat(10_000),
        r#"{"a":1,"a":2}"#,
        "]".repeat(10_000)
    );
    assert_eq!(
        read(&repeated).unwrap().duplicate_key().map(str::len),
        Some(20_002)
    );
}

#[test]
fn an_object_of_many_members_is_read_in_time() {
    let members: String = (0..200_000)
        .map(|number| format!("\"{number}\":0,"))
        .collect();
    let text = format!("{{{members}\"end\":1}}");
    let document = read(&text).unwrap();
    assert_eq!(document.root().len(), 200_001);
    assert!(document.duplicate_key().is_none());
}

#[test]
fn numbers_keep_their_text() {
    let document = read("[9007199254740993,-0,1e+300,1.50,9223372036854775808,12]").unwrap();
    let texts: Vec<&str> = document.root().items().map(Value::raw).collect();
    assert_eq!(
        texts,
        [
            "9007199254740993",
            "-0",
            "1e+300",
            "1.50",
            "9223372036854775808",
            "12"
        ]
    );
    let integers: Vec<Option<i64>> = document.root().items().map(Value::as_i64).collect();
    assert_eq!(
        integers,
        [
            Some(9_007_199_254_740_993),
            Some(0),
            None,
            None,
            None,
            Some(12)
        ]
    );
}

#[test]
fn replacement_characters_are_found_in_keys_strings_and_escapes() {
    for (text, want) in [
        ("{\"a\":\"b\"}", false),
        ("{\"a\":\"\u{FFFD}\"}", true),
        ("{\"\u{FFFD}\":1}", true),
        (r#"{"a":"\ufffd"}"#, true),
        (r#"{"a":["\ud800"]}"#, true),
        (r#"{"a":"\n"}"#, false),
    ] {
        assert_eq!(
            read(text).unwrap().root().has_replacement_char(),
            want,
            "{text}"
        );
    }
    let document = read(r#"{"a":"\ufffd","b":"\n"}"#).unwrap();
    assert!(!document.root().at("/b").unwrap().has_replacement_char());
}

#[test]
fn debug_output_holds_no_text() {
    let document = read(r#"{"password":"hunter2"}"#).unwrap();
    let words = format!("{document:?} {:?}", document.root());
    assert!(
        !words.contains("hunter2") && !words.contains("password"),
        "{words}"
    );
}

#[test]
fn what_reading_takes_is_known_before() {
    for (text, nodes, decoded) in [
        ("1", 1, 0),
        (r#"{"a":1,"b":[true,null]}"#, 7, 0),
        (r#"{"a,:[{":"\"[,"}"#, 3, 16),
    ] {
        let document = read(text).unwrap();
        assert_eq!(document.nodes.len(), nodes, "{text}");
        assert_eq!(document.nodes.capacity(), nodes, "{text}");
        assert_eq!(
            bytes_to_read(text.as_bytes()),
            nodes as u64 * 20 + decoded,
            "{text}"
        );
    }
    // Empty containers and broken texts may have fewer, never more.
    assert!(bytes_to_read(b"[[],[],{}]") >= 4 * 20);
}

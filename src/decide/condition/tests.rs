#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use proptest::prelude::*;

use super::*;
use crate::decide::{arbitrary, attempt_for_tests::update, json, select::Situation};

fn holds_on(source: &str, object: Option<&str>, old: Option<&str>) -> Result<bool, ConditionError> {
    let object = object.map(|text| json::read(text).unwrap());
    let old = old.map(|text| json::read(text).unwrap());
    let situation = Situation {
        object: object.as_ref().map(|document| document.root()),
        old_object: old.as_ref().map(|document| document.root()),
        ..update()
    };
    Condition::compile(source)
        .unwrap_or_else(|problem| panic!("{source}: {problem}"))
        .holds(&situation.facts())
}

fn holds(source: &str) -> Result<bool, ConditionError> {
    holds_on(
        source,
        Some(r#"{"spec":{"replicas":5,"ratio":0.5},"metadata":{"labels":{"a/b":"c"}}}"#),
        Some(r#"{"spec":{"replicas":2}}"#),
    )
}

#[test]
fn a_condition_compares_and_calculates_with_json_numbers() {
    for (source, expected) in [
        ("object.spec.replicas == 5", true),
        ("object.spec.replicas + 1 == 6", true),
        ("object.spec.replicas > 2 * oldObject.spec.replicas", true),
        ("object.spec.replicas > 3 * oldObject.spec.replicas", false),
        ("object.spec.ratio < 1.0", true),
        ("object.spec.replicas in [4, 5]", true),
        ("object.metadata.labels['a/b'] == 'c'", true),
        ("'a/b' in object.metadata.labels", true),
        ("has(object.spec.paused)", false),
        ("has(object.spec.replicas) && !has(object.status)", true),
        ("object.?spec.?paused.orValue(false)", false),
        (
            "request.operation == 'UPDATE' && request.agent == 'ops-bot' && request.namespace == 'web'",
            true,
        ),
        ("'system:authenticated' in request.groups", true),
        ("request.subresource == ''", true),
        ("object['spec']['replicas'] == 5", true),
        ("type(object.spec.replicas) == int", true),
        (
            "object.metadata.labels.exists(key, key.startsWith('a/'))",
            true,
        ),
    ] {
        assert_eq!(holds(source), Ok(expected), "{source}");
    }
}

#[test]
fn an_integer_beyond_64_bits_is_a_double_and_a_number_beyond_all_is_an_error() {
    assert_eq!(
        holds_on("object.n > 1", Some(r#"{"n":9223372036854775808}"#), None),
        Ok(true)
    );
    assert_eq!(
        holds_on(
            "object.n == 9223372036854775807",
            Some(r#"{"n":9223372036854775807}"#),
            None
        ),
        Ok(true)
    );
    assert_eq!(
        holds_on("object.n > 1", Some(r#"{"n":1e999}"#), None),
        Err(ConditionError::Number)
    );
}

#[test]
fn an_absent_object_is_null_and_selecting_in_it_is_an_error() {
    assert_eq!(holds_on("oldObject == null", Some("{}"), None), Ok(true));
    assert_eq!(holds_on("object != null", Some("{}"), None), Ok(true));
    assert_eq!(
        holds_on(
            "oldObject == null || oldObject.spec.replicas > 1",
            Some("{}"),
            None
        ),
        Ok(true)
    );
    assert!(holds_on("oldObject.spec.replicas > 1", Some("{}"), None).is_err());
}

#[test]
fn an_absent_field_and_a_wrong_type_are_errors_that_show_no_value() {
    assert_eq!(
        holds("object.spec.missing == 1"),
        Err(ConditionError::NoSuchField("missing".into()))
    );
    assert!(matches!(
        holds("object.spec.replicas < 'x'"),
        Err(ConditionError::Types(_))
    ));
    assert_eq!(holds("object.spec.replicas"), Err(ConditionError::NotBool));
    assert_eq!(
        holds("object.spec.replicas / 0 == 1"),
        Err(ConditionError::Arithmetic("division by zero"))
    );
    let secret = holds_on(
        "object.data.password + 1 == 2",
        Some(r#"{"data":{"password":"hunter2"}}"#),
        None,
    )
    .unwrap_err();
    assert!(!secret.to_string().contains("hunter2"), "{secret}");
}

#[test]
fn an_error_is_in_doubt_for_a_policy_that_asks_and_does_not_hold_for_one_that_exempts() {
    let condition = Condition::compile("object.spec.missing == 1").unwrap();
    let document = json::read("{}").unwrap();
    let situation = Situation {
        object: Some(document.root()),
        ..update()
    };
    for (effect, expected) in [
        (Effect::RequireApproval, Held::InDoubt),
        (Effect::Unknown, Held::InDoubt),
        (Effect::Exempt, Held::No),
    ] {
        let mut trace = Trace::default();
        assert_eq!(
            condition.holds_for(effect, &situation.facts(), &"p", &mut trace),
            expected
        );
        assert!(
            matches!(trace.steps(), [Step::ConditionFailed { taken_as, .. }] if *taken_as == (expected == Held::InDoubt))
        );
    }
    let mut trace = Trace::default();
    assert_eq!(
        Condition::compile("true").unwrap().holds_for(
            Effect::Exempt,
            &situation.facts(),
            &"p",
            &mut trace
        ),
        Held::Yes
    );
    assert!(trace.steps().is_empty());
}

#[test]
fn only_the_paths_that_are_named_are_read() {
    let condition = Condition::compile("object.spec.replicas > 1 && has(oldObject.metadata.labels) && object['spec'].paused == null").unwrap();
    assert_eq!(
        condition.paths(),
        [
            "object.spec.paused",
            "object.spec.replicas",
            "oldObject.metadata.labels"
        ]
    );
    assert_eq!(
        Condition::compile("object == null").unwrap().paths(),
        Vec::<String>::new()
    );
    assert_eq!(
        Condition::compile("object.size() > 1 && object.spec == 1")
            .unwrap()
            .paths(),
        ["object"]
    );
    // What is not named may be as large and as deep as it likes.
    let large = format!(
        r#"{{"spec":{{"replicas":2}},"data":"{}","deep":{}1{}}}"#,
        "x".repeat(MAX_READ_BYTES),
        "[".repeat(100),
        "]".repeat(100)
    );
    assert_eq!(
        holds_on("object.spec.replicas == 2", Some(&large), None),
        Ok(true)
    );
    assert_eq!(
        holds_on("object.data == 'x'", Some(&large), None),
        Err(ConditionError::TooLarge)
    );
    assert_eq!(
        holds_on("object.deep == 1", Some(&large), None),
        Err(ConditionError::TooDeep)
    );
}

#[test]
fn a_source_beyond_the_guard_is_refused_with_its_reason() {
    let nested = |n: usize| format!("{}true{}", "(".repeat(n), ")".repeat(n));
    assert!(Condition::compile(&nested(16)).is_ok());
    for (source, problem) in [
        (String::new(), ConditionProblem::Empty),
        (nested(17), ConditionProblem::TooDeep),
        (nested(20), ConditionProblem::TooDeep),
        (nested(400), ConditionProblem::TooDeep),
        (
            format!("{}true", "!".repeat(200)),
            ConditionProblem::TooDeep,
        ),
        (
            format!("{}1 == 1", "- ".repeat(200)),
            ConditionProblem::TooDeep,
        ),
        (
            format!("{}true", "true ? true : ".repeat(60)),
            ConditionProblem::TooDeep,
        ),
        (
            format!("'\\q{}'", "(".repeat(90)),
            ConditionProblem::TooDeep,
        ),
        (format!("// '''\n{}", nested(40)), ConditionProblem::TooDeep),
        (format!("'\n{}", nested(40)), ConditionProblem::TooDeep),
        (
            format!("object{} == 1", ".a".repeat(400)),
            ConditionProblem::TooManyOperators,
        ),
        (
            format!("1{} == 1", "+1".repeat(300)),
            ConditionProblem::TooManyOperators,
        ),
        (
            format!("{}true", "1 in ".repeat(195)),
            ConditionProblem::TooManyOperators,
        ),
        (
            " ".repeat(1025) + "true",
            ConditionProblem::TooLong { bytes: 1029 },
        ),
        (
            "object.a.all(x, object.b.all(y, x == y))".into(),
            ConditionProblem::NestedLoop,
        ),
        (
            format!("1{} > 0", "+1".repeat(70)),
            ConditionProblem::TooManyCalls,
        ),
        (
            "params.x == 1".into(),
            ConditionProblem::UnknownVariable("params".into()),
        ),
        (
            "optional.of(1).hasValue()".into(),
            ConditionProblem::UnknownFunction("of".into()),
        ),
        (
            "lists.range(1000000000).size() > 0".into(),
            ConditionProblem::UnknownFunction("range".into()),
        ),
        (
            "[1].all(object, object.x)".into(),
            ConditionProblem::HiddenVariable("object".into()),
        ),
        (
            "Deployment{spec: 1} == 1".into(),
            ConditionProblem::Unsupported("a message type"),
        ),
    ] {
        assert_eq!(
            Condition::compile(&source).unwrap_err(),
            problem,
            "{source}"
        );
    }
    assert!(matches!(
        Condition::compile("object.spec >"),
        Err(ConditionProblem::Syntax(_))
    ));
    assert!(matches!(
        Condition::compile("a.b.c(("),
        Err(ConditionProblem::Syntax(_))
    ));
}

#[test]
fn brackets_in_strings_do_not_count_as_nesting() {
    assert_eq!(
        holds(&format!(
            "object.spec.replicas == 5 && '{}' != \"{}\"",
            "(".repeat(30),
            "[".repeat(30)
        )),
        Ok(true)
    );
    assert_eq!(holds(r"r'\' == '\\'"), Ok(true));
}

#[test]
fn a_pattern_is_a_small_literal() {
    assert_eq!(holds("'api-7'.matches('^[a-z]+-[0-9]{1,3}$')"), Ok(true));
    for source in [
        "'x'.matches(object.spec.pattern)",
        "'x'.matches('a' + 'b')",
        "'x'.matches('(a{50}){50}')",
        "'x'.matches('(')",
    ] {
        assert!(
            matches!(
                Condition::compile(source),
                Err(ConditionProblem::Pattern(_))
            ),
            "{source}"
        );
    }
}

#[test]
fn a_loop_over_too_much_is_an_error_and_not_a_wait() {
    let items: Vec<String> = (0..20_000).map(|n| n.to_string()).collect();
    let object = format!(r#"{{"a":[{0}],"b":[{0}],"c":["x"]}}"#, items.join(","));
    assert_eq!(
        holds_on("object.a.all(x, x in object.b)", Some(&object), None),
        Err(ConditionError::TooCostly)
    );
    assert_eq!(
        holds_on("object.a.all(x, x >= 0)", Some(&object), None),
        Ok(true)
    );
    assert_eq!(
        holds_on("object.c.all(x, x.matches('x'))", Some(&object), None),
        Ok(true)
    );
    assert_eq!(
        holds_on(
            "object.a.all(x, string(x).matches('[0-9]'))",
            Some(&object),
            None
        ),
        Err(ConditionError::TooCostly)
    );
}

/// The deepest sources that the guard lets through, on a stack of the size that worker threads have.
#[test]
fn what_the_guard_lets_through_fits_a_worker_s_stack() {
    let worker = std::thread::Builder::new().stack_size(2 * 1024 * 1024);
    let run = || {
        for source in [
            format!("{}true{}", "(".repeat(16), ")".repeat(16)),
            format!("{}1{} == 1", "[".repeat(16), "]".repeat(16)),
            format!("{}true", "true?true:".repeat(16)),
            format!("object{} == 1", ".a".repeat(180)),
            format!("1{} == 1", "+1".repeat(60)),
            format!("{}true", "true&&".repeat(60)),
            format!("{}1==1", "1==1==".repeat(30)),
            format!("({}true{}", "!!!!!!!!(".repeat(14), ")".repeat(15)),
            format!("'\\q{}", "(".repeat(64)),
        ] {
            if let Ok(condition) = Condition::compile(&source) {
                let _ = condition.holds(&update().facts());
            }
        }
    };
    worker.spawn(run).unwrap().join().unwrap();
}

fn cel_like() -> impl Strategy<Value = String> {
    let words = [
        "object",
        "oldObject",
        "request",
        ".",
        "spec",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "'",
        "\"",
        "\\",
        "has(",
        ".all(x,",
        ".map(x,",
        "&&",
        "||",
        "!",
        "-",
        "?",
        ":",
        "==",
        "<",
        "in",
        "1",
        "0x",
        "1e9",
        "null",
        "true",
        ",",
        " ",
        "\n",
        "//",
        "r'",
        "'''",
        ".matches('",
        "size(",
        "é",
        "\u{0}",
    ];
    proptest::collection::vec(proptest::sample::select(words.to_vec()), 0..60)
        .prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_source_and_no_value_makes_it_panic(source in prop_oneof![cel_like(), ".{0,80}".prop_map(String::from)], value in arbitrary::tree()) {
        let text = value.spell(arbitrary::PLAIN);
        let document = json::read(&text).unwrap();
        let situation = Situation { object: Some(document.root()), ..update() };
        if let Ok(condition) = Condition::compile(&source) {
            let _ = condition.holds(&situation.facts());
        }
        let reads = Condition::compile("object.a.b == object[0] || object.exists(x, x == object)").unwrap();
        let _ = reads.holds(&situation.facts());
    }
}

//! Bounds, patterns and rules that the types attach to their schema, and the last touches before a schema is published.
//!
//! Each function returns something that `#[schemars(transform = …)]` accepts, so that a bound stands beside the field it bounds.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};
use schemars::Schema;
use serde_json::{Map, Value, json};

/// One line of text: no control, format, private or surrogate characters and no line or paragraph separators, so that it is
/// shown on a terminal as it is.
pub const ONE_LINE: &str = r"^[^\p{C}\p{Zl}\p{Zp}]*$";
/// Text of several lines: the same, with line feeds.
pub const LINES: &str = r"^([^\p{C}\p{Zl}\p{Zp}]|\n)*$";
/// A digest or key: version tag, algorithm, 64 hex digits.
pub const DIGEST: &str = r"^v[1-9][0-9]*:sha256:[0-9a-f]{64}$";
/// A digest or a prefix of one that a person typed.
pub const DIGEST_PREFIX: &str = r"^v[1-9][0-9]*:sha256:[0-9a-f]{8,64}$";
/// A name of an object of ours or of a namespace (RFC 1123 subdomain).
pub const NAME: &str = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$";
/// A name of a namespace (RFC 1123 label).
pub const LABEL: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// A JSON pointer that names some member.
pub const POINTER: &str = r"^(/[^/\p{C}\p{Zl}\p{Zp}]*)+$";

/// A rule in CEL and the words that its breach is answered with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Validation {
    /// The rule: true where all is well.
    pub rule: &'static str,
    /// What is allowed, in words.
    pub message: &'static str,
}

/// A rule on `status` itself is not evaluated when `status` is removed: therefore this one, and every other transition rule,
/// stands at the root.
pub const STATUS_STAYS: Validation = Validation {
    rule: "!has(oldSelf.status) || has(self.status)",
    message: "`status` must not be removed",
};

impl From<&Validation> for ValidationRule {
    fn from(rule: &Validation) -> Self {
        Self {
            rule: rule.rule.to_owned(),
            message: Some(rule.message.to_owned()),
            ..Self::default()
        }
    }
}

fn set(schema: &mut Schema, key: &str, value: impl Into<Value>) {
    schema.insert(key.to_owned(), value.into());
}

fn matching(pattern: &'static str, max: u32) -> impl Fn(&mut Schema) {
    move |schema| {
        set(schema, "maxLength", max);
        set(schema, "pattern", pattern);
    }
}

/// One line of at most `max` characters, maybe empty.
pub fn line(max: u32) -> impl Fn(&mut Schema) {
    matching(ONE_LINE, max)
}

/// One line of 1 to `max` characters.
pub fn filled(max: u32) -> impl Fn(&mut Schema) {
    move |schema| {
        line(max)(schema);
        set(schema, "minLength", 1);
    }
}

/// Several lines of at most `max` characters together.
pub fn lines(max: u32) -> impl Fn(&mut Schema) {
    matching(LINES, max)
}

/// Any text of at most `max` characters: canonical JSON and paths into it, which hold what the target holds.
pub fn raw(max: u32) -> impl Fn(&mut Schema) {
    move |schema| set(schema, "maxLength", max)
}

/// The name of an object of ours, of a namespace or of a ServiceAccount.
pub fn name() -> impl Fn(&mut Schema) {
    matching(NAME, 253)
}

/// The name of a namespace.
pub fn namespace() -> impl Fn(&mut Schema) {
    matching(LABEL, 63)
}

/// One of a few words that Rust keeps as text.
pub fn one_of(words: &'static [&'static str]) -> impl Fn(&mut Schema) {
    move |schema| set(schema, "enum", json!(words))
}

/// The uid of an API object.
pub fn uid() -> impl Fn(&mut Schema) {
    line(36)
}

/// A whole digest or key.
pub fn digest() -> impl Fn(&mut Schema) {
    matching(DIGEST, 80)
}

/// A digest or a prefix of one.
pub fn digest_prefix() -> impl Fn(&mut Schema) {
    matching(DIGEST_PREFIX, 80)
}

/// A JSON pointer.
pub fn pointer() -> impl Fn(&mut Schema) {
    matching(POINTER, 512)
}

/// One line that begins as a selector word (`@all`) only if it is one of `words`; otherwise the name of a tool.
pub fn tools(words: &'static [&'static str]) -> impl Fn(&mut Schema) {
    move |schema| {
        let name = r"[^@\p{C}\p{Zl}\p{Zp}][^\p{C}\p{Zl}\p{Zp}]*";
        let known: String = words.iter().map(|word| format!("{word}|")).collect();
        set(schema, "maxLength", 128);
        set(schema, "pattern", format!("^({known}{name})$"));
    }
}

/// A whole number from `least` to `most`.
pub fn between(least: i64, most: i64) -> impl Fn(&mut Schema) {
    move |schema| {
        set(schema, "minimum", least);
        set(schema, "maximum", most);
    }
}

/// A whole number of at least zero.
pub fn counted() -> impl Fn(&mut Schema) {
    move |schema| set(schema, "minimum", 0)
}

/// Items that need no bound of their own.
pub fn any() -> impl Fn(&mut Schema) {
    |_schema| {}
}

fn list(
    kind: &'static str,
    least: u32,
    most: u32,
    each: impl Fn(&mut Schema),
) -> impl Fn(&mut Schema) {
    move |schema| {
        set(schema, "maxItems", most);
        if least > 0 {
            set(schema, "minItems", least);
        }
        set(schema, "x-kubernetes-list-type", kind);
        if let Some(items) = schema
            .get_mut("items")
            .and_then(|items| <&mut Schema>::try_from(items).ok())
        {
            each(items);
        }
    }
}

/// A list that is replaced as a whole.
pub fn atomic(least: u32, most: u32, each: impl Fn(&mut Schema)) -> impl Fn(&mut Schema) {
    list("atomic", least, most, each)
}

/// A list of words in which none occurs twice.
pub fn unique(least: u32, most: u32, each: impl Fn(&mut Schema)) -> impl Fn(&mut Schema) {
    list("set", least, most, each)
}

/// A list whose items are known by one member.
pub fn keyed(key: &'static str, least: u32, most: u32) -> impl Fn(&mut Schema) {
    move |schema| {
        list("map", least, most, any())(schema);
        set(schema, "x-kubernetes-list-map-keys", json!([key]));
    }
}

/// A map of at most `most` entries that is replaced as a whole: its rules cost n, those of a list map n².
pub fn atomic_map(most: u32) -> impl Fn(&mut Schema) {
    move |schema| {
        set(schema, "maxProperties", most);
        set(schema, "x-kubernetes-map-type", "atomic");
    }
}

/// Members that the schema requires although a client leaves them out, because admission fills them in before the schema is checked.
pub fn required(member: &'static str) -> impl Fn(&mut Schema) {
    move |schema| {
        let required = schema
            .ensure_object()
            .entry("required")
            .or_insert_with(|| json!([]));
        if let Some(required) = required.as_array_mut() {
            required.push(json!(member));
        }
    }
}

/// Rules on a value.
pub fn rules(rules: &'static [Validation]) -> impl Fn(&mut Schema) {
    move |schema| {
        for rule in rules {
            validate(schema, rule.rule, rule.message);
        }
    }
}

fn validate(schema: &mut Schema, rule: &str, message: &str) {
    let validations = schema
        .ensure_object()
        .entry("x-kubernetes-validations")
        .or_insert_with(|| json!([]));
    if let Some(validations) = validations.as_array_mut() {
        validations.push(json!({"rule": rule, "message": message}));
    }
}

/// A union: exactly one of these members.
pub fn exactly_one(members: &'static [&'static str]) -> impl Fn(&mut Schema) {
    move |schema| {
        let present: Vec<String> = members
            .iter()
            .map(|member| format!("has(self.{member})"))
            .collect();
        let rule = if let [only] = present.as_slice() {
            only.clone()
        } else {
            format!(
                "[{}].filter(present, present).size() == 1",
                present.join(", ")
            )
        };
        let names: Vec<String> = members.iter().map(|member| format!("`{member}`")).collect();
        let message = format!("must hold exactly one of {}", names.join(", "));
        validate(schema, &rule, &message);
    }
}

/// The words of an enumeration: one list of values, and what each means kept as the title until [`finish`] moves it into the
/// description of the field.
pub fn words() -> impl Fn(&mut Schema) {
    |schema| {
        let Some(variants) = schema.remove("oneOf") else {
            return;
        };
        let mut values = Vec::new();
        let mut meanings = Vec::new();
        for variant in variants.as_array().into_iter().flatten() {
            let Some(word) = variant.get("const").and_then(Value::as_str) else {
                continue;
            };
            values.push(json!(word));
            if let Some(meaning) = variant.get("description").and_then(Value::as_str) {
                meanings.push(format!("`{word}`: {meaning}"));
            }
        }
        set(schema, "type", "string");
        set(schema, "enum", values);
        set(schema, "title", meanings.join("\n"));
    }
}

/// Labels that are looked for, as `metav1.LabelSelector`, bounded.
pub fn selector() -> impl Fn(&mut Schema) {
    |schema| {
        let label = json!({"type": "string", "maxLength": 317});
        let value = json!({"type": "string", "maxLength": 63});
        let members = json!({
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "properties": {
                "matchLabels": {
                    "description": "Labels that must be there with exactly these values.",
                    "type": "object", "maxProperties": 16, "additionalProperties": value,
                },
                "matchExpressions": {
                    "description": "Further conditions on labels; all must hold.",
                    "type": "array", "maxItems": 16, "x-kubernetes-list-type": "atomic",
                    "items": {
                        "description": "One condition on one label.",
                        "type": "object",
                        "required": ["key", "operator"],
                        "properties": {
                            "key": merged(&label, "Key of the label."),
                            "operator": {
                                "description": "How the label's value relates to `values`.",
                                "type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                            },
                            "values": {
                                "description": "Values for In and NotIn; empty for Exists and DoesNotExist.",
                                "type": "array", "maxItems": 64, "x-kubernetes-list-type": "atomic", "items": value,
                            },
                        },
                        "x-kubernetes-validations": [{
                            "rule": "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
                            "message": "`values` must be filled for In and NotIn, and empty for Exists and DoesNotExist",
                        }],
                    },
                },
            },
        });
        replace(schema, members);
    }
}

/// Conditions: a list map by `type`.
pub fn conditions() -> impl Fn(&mut Schema) {
    |schema| {
        let items = json!({
            "description": "One statement about the object.",
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": {
                    "description": "What the statement is about, in CamelCase.",
                    "type": "string", "maxLength": 63, "pattern": "^[A-Z][A-Za-z0-9]*$",
                },
                "status": {
                    "description": "Whether it holds: True, False or Unknown. A missing condition means Unknown.",
                    "type": "string", "enum": ["True", "False", "Unknown"],
                },
                "reason": {
                    "description": "Why, as one CamelCase word for programs.",
                    "type": "string", "maxLength": 63, "pattern": "^[A-Z][A-Za-z0-9]*$",
                },
                "message": {
                    "description": "Why, in words for people, and what to do.",
                    "type": "string", "maxLength": 4096,
                },
                "observedGeneration": {
                    "description": "metadata.generation of the object when the statement was made; older than the object's means out of date.",
                    "type": "integer", "format": "int64", "minimum": 0,
                },
                "lastTransitionTime": {
                    "description": "When `status` last changed.",
                    "type": "string", "format": "date-time",
                },
            },
        });
        set(schema, "items", items);
        set(schema, "maxItems", 16);
        set(schema, "x-kubernetes-list-type", "map");
        set(schema, "x-kubernetes-list-map-keys", json!(["type"]));
    }
}

fn merged(schema: &Value, description: &str) -> Value {
    let mut schema = schema.clone();
    if let Some(members) = schema.as_object_mut() {
        members.insert("description".to_owned(), description.into());
    }
    schema
}

fn replace(schema: &mut Schema, members: Value) {
    let description = schema.remove("description");
    let mut members: Map<String, Value> = match members {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    if let Some(description) = description {
        members.insert("description".to_owned(), description);
    }
    *schema = Schema::from(members);
}

/// What a published schema keeps of the defaults that serde knows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Defaults {
    /// They are written into stored objects.
    Kept,
    /// Stored objects hold what was sent: a later version that changed a default would change what a digest covers.
    Left,
}

/// The last touches, over a whole schema: no `nullable`, no null among the words, no formats that API servers warn of, no
/// defaults where they are not wanted, meanings of words moved into descriptions.
pub fn finish(schema: &mut JSONSchemaProps, defaults: Defaults) {
    schema.nullable = None;
    if let Some(words) = &mut schema.enum_ {
        words.retain(|word| !word.0.is_null());
    }
    if !matches!(
        schema.format.as_deref(),
        None | Some("int32" | "int64" | "date-time")
    ) {
        schema.format = None;
    }
    if defaults == Defaults::Left {
        schema.default = None;
    }
    describe(schema);
    for member in schema.properties.iter_mut().flat_map(BTreeMap::values_mut) {
        finish(member, defaults);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        finish(items, defaults);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        finish(values, defaults);
    }
}

/// Moves the meanings of words, the field's own or its items', to the end of the field's description.
fn describe(schema: &mut JSONSchemaProps) {
    let mut meanings = schema.title.take();
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        meanings = meanings.or_else(|| items.title.take());
    }
    if let Some(meanings) = meanings.filter(|meanings| !meanings.is_empty()) {
        schema.description = Some(match schema.description.take() {
            Some(description) => format!("{description}\n{meanings}"),
            None => meanings,
        });
    }
}

/// Rules that freeze every member of `spec` but one, by name, so that a member added later is frozen too.
pub fn frozen_but(spec: &JSONSchemaProps, mutable: &str) -> Vec<ValidationRule> {
    let required = spec.required.clone().unwrap_or_default();
    let members = spec
        .properties
        .iter()
        .flat_map(BTreeMap::keys)
        .filter(|member| member.as_str() != mutable);
    members
        .map(|member| {
            let same = format!("self.spec.{member} == oldSelf.spec.{member}");
            let rule = if required.contains(member) {
                same
            } else {
                format!(
                    "has(self.spec.{member}) == has(oldSelf.spec.{member}) && (!has(self.spec.{member}) || {same})"
                )
            };
            let message = format!("`spec.{member}` must stay as it is: only `spec.{mutable}` may change, to true");
            ValidationRule { rule, message: Some(message), ..ValidationRule::default() }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests"
    )]
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSON;

    use super::*;

    #[test]
    fn nulls_and_unknown_formats_do_not_reach_the_published_schema() {
        let mut schema = JSONSchemaProps {
            nullable: Some(true),
            enum_: Some(vec![JSON(json!("A")), JSON(Value::Null)]),
            format: Some("uint32".to_owned()),
            default: Some(JSON(json!("A"))),
            title: Some("`A`: first.".to_owned()),
            description: Some("A word.".to_owned()),
            ..JSONSchemaProps::default()
        };
        finish(&mut schema, Defaults::Left);
        let expected = JSONSchemaProps {
            enum_: Some(vec![JSON(json!("A"))]),
            description: Some("A word.\n`A`: first.".to_owned()),
            ..JSONSchemaProps::default()
        };
        assert_eq!(schema, expected);
    }

    #[test]
    fn every_member_but_the_mutable_one_is_frozen() {
        let properties = ["a", "b", "revoked"]
            .map(|name| (name.to_owned(), JSONSchemaProps::default()))
            .into_iter()
            .collect();
        let spec = JSONSchemaProps {
            properties: Some(properties),
            required: Some(vec!["a".to_owned()]),
            ..JSONSchemaProps::default()
        };
        let rules: Vec<String> = frozen_but(&spec, "revoked")
            .into_iter()
            .map(|rule| rule.rule)
            .collect();
        assert_eq!(
            rules,
            [
                "self.spec.a == oldSelf.spec.a",
                "has(self.spec.b) == has(oldSelf.spec.b) && (!has(self.spec.b) || self.spec.b == oldSelf.spec.b)",
            ]
        );
    }
}

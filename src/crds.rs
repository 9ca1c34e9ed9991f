//! The CustomResourceDefinitions, made from the types in [`crate::api`].

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, ValidationRule,
};
use kube::CustomResourceExt;

use crate::api::{
    AgentIdentity, ApprovalDecision, ApprovalPolicy, ApprovalRequest, ClusterApprovalPolicy, Grant,
    ToolMount, ToolServer, approval_decision, approval_request, grant,
    schema::{Defaults, Validation, finish, frozen_but},
};

/// Every kind that grantgate ships, in the order in which a reader meets them.
pub fn all() -> Vec<CustomResourceDefinition> {
    vec![
        declared(AgentIdentity::crd()),
        declared(ToolServer::crd()),
        declared(ToolMount::crd()),
        declared(ApprovalPolicy::crd()),
        declared(ClusterApprovalPolicy::crd()),
        recorded(ApprovalRequest::crd(), approval_request::RULES),
        recorded(ApprovalDecision::crd(), approval_decision::RULES),
        granted(Grant::crd()),
    ]
}

/// The file name of a definition within `crds/`.
pub fn file_name(crd: &CustomResourceDefinition) -> String {
    format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural)
}

/// A kind that people write.
fn declared(crd: CustomResourceDefinition) -> CustomResourceDefinition {
    publish(crd, Defaults::Kept, "What is declared.", |_schema| {
        Vec::new()
    })
}

/// A kind that records what was proposed or decided.
fn recorded(
    crd: CustomResourceDefinition,
    rules: &'static [Validation],
) -> CustomResourceDefinition {
    publish(
        crd,
        Defaults::Left,
        "What is recorded. It never changes.",
        |_schema| rules.iter().map(Into::into).collect(),
    )
}

fn granted(crd: CustomResourceDefinition) -> CustomResourceDefinition {
    publish(
        crd,
        Defaults::Left,
        "What is granted. Only `revoked` can be changed, to true.",
        |schema| {
            let spec = schema
                .properties
                .as_ref()
                .and_then(|members| members.get("spec"));
            let frozen = spec
                .map(|spec| frozen_but(spec, "revoked"))
                .unwrap_or_default();
            frozen
                .into_iter()
                .chain(grant::RULES.iter().map(Into::into))
                .collect()
        },
    )
}

/// The last touches on each version: the spec's words become the kind's, and rules are added at the root.
fn publish(
    mut crd: CustomResourceDefinition,
    defaults: Defaults,
    spec_words: &str,
    rules: impl Fn(&JSONSchemaProps) -> Vec<ValidationRule>,
) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        let Some(schema) = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut())
        else {
            continue;
        };
        finish(schema, defaults);
        if let Some(spec) = schema
            .properties
            .as_mut()
            .and_then(|members| members.get_mut("spec"))
        {
            schema.description = spec.description.replace(spec_words.to_owned());
        }
        let rules = rules(schema);
        if !rules.is_empty() {
            schema
                .x_kubernetes_validations
                .get_or_insert_default()
                .extend(rules);
        }
    }
    crd
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests"
    )]
    use std::{collections::BTreeMap, path::Path};

    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
    };

    use super::*;
    use crate::yaml;

    fn walk(path: &str, schema: &JSONSchemaProps, visit: &mut impl FnMut(&str, &JSONSchemaProps)) {
        visit(path, schema);
        for (name, member) in schema.properties.iter().flat_map(BTreeMap::iter) {
            walk(&format!("{path}.{name}"), member, visit);
        }
        if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
            walk(&format!("{path}[]"), items, visit);
        }
        if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
            walk(&format!("{path}{{}}"), values, visit);
        }
    }

    fn every_field(mut visit: impl FnMut(&str, &JSONSchemaProps)) {
        for crd in all() {
            let version = crd.spec.versions.first().unwrap();
            let schema = version
                .schema
                .as_ref()
                .unwrap()
                .open_api_v3_schema
                .as_ref()
                .unwrap();
            walk(&crd.spec.names.kind, schema, &mut visit);
        }
    }

    #[test]
    fn every_field_is_described() {
        let mut without = Vec::new();
        every_field(|path, schema| {
            let scalar_item =
                (path.ends_with("[]") || path.ends_with("{}")) && schema.properties.is_none();
            if schema.description.is_none() && !scalar_item {
                without.push(path.to_owned());
            }
        });
        assert_eq!(without, Vec::<String>::new());
    }

    #[test]
    fn every_text_list_and_map_is_bounded() {
        let mut without = Vec::new();
        every_field(|path, schema| {
            let bounded = match schema.type_.as_deref() {
                Some("string") => {
                    schema.max_length.is_some() || schema.enum_.is_some() || schema.format.is_some()
                }
                Some("array") => {
                    schema.max_items.is_some() && schema.x_kubernetes_list_type.is_some()
                }
                Some("object") if schema.additional_properties.is_some() => {
                    schema.max_properties.is_some()
                }
                _ => true,
            };
            if !bounded && !path.ends_with("{}") {
                without.push(path.to_owned());
            }
        });
        // metadata, apiVersion and kind are the API server's own.
        assert_eq!(without, Vec::<String>::new());
    }

    #[test]
    fn words_of_later_versions_and_nulls_are_not_offered() {
        every_field(|path, schema| {
            assert_eq!(schema.nullable, None, "{path}");
            assert_eq!(schema.title, None, "{path}");
            let unknown_is_a_word = path.ends_with(".effect") && path.contains("uses")
                || path.ends_with("conditions[].status");
            for word in schema.enum_.iter().flatten() {
                assert!(word.0.is_string(), "{path}");
                assert!(word.0 != "Unknown" || unknown_is_a_word, "{path}");
            }
        });
    }

    #[test]
    fn records_hold_what_was_sent_and_no_defaults() {
        every_field(|path, schema| {
            let declared =
                ["AgentIdentity.spec.surface", "ToolMount.spec.unannotated"].contains(&path);
            assert_eq!(schema.default.is_some(), declared, "{path}");
        });
    }

    #[test]
    fn both_policy_kinds_say_the_same_in_plain_members() {
        let members = |kind: &str| {
            let crd = all()
                .into_iter()
                .find(|crd| crd.spec.names.kind == kind)
                .unwrap();
            let version = crd.spec.versions.into_iter().next().unwrap();
            let mut schema = version.schema.unwrap().open_api_v3_schema.unwrap();
            schema
                .properties
                .as_mut()
                .unwrap()
                .remove("spec")
                .unwrap()
                .properties
                .unwrap()
        };
        let mut cluster = members("ClusterApprovalPolicy");
        assert!(cluster.remove("namespaceMay").is_some());
        assert_eq!(members("ApprovalPolicy"), cluster);
        assert!(cluster.contains_key("effect") && !cluster.contains_key("body"));
    }

    #[test]
    fn the_checked_in_definitions_are_fresh() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crds");
        let mut expected = BTreeMap::new();
        for crd in all() {
            expected.insert(file_name(&crd), yaml::document(&crd).unwrap());
        }
        let mut found = BTreeMap::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            found.insert(
                entry.file_name().into_string().unwrap(),
                std::fs::read_to_string(entry.path()).unwrap(),
            );
        }
        assert!(expected == found, "run `cargo run -- crds --output crds`");
    }
}

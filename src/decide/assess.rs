//! From a review to a verdict, up to the point where grants and requests matter.
//!
//! The order is the order of questions: can it be read, who acts, is the operation understood, is what the review shows what would
//! be stored, may this agent do it at all, does it change anything, and does a person decide about it.

use std::collections::BTreeMap;

use crate::{
    api::{
        Action, Operation, Requester, Surface,
        approval_request::{Base, Fact},
    },
    decide::{
        comparison::{Compared, Comparison},
        denial::{Denial, Reason},
        json::{Document, MAX_DEPTH, Value},
        mount::Coverage,
        name, options,
        proposal::{self, Options, Proposal},
        redact::Redactor,
        resolve::{self, Outcome, Situation},
        resources::VersionVerdict,
        review::Review,
        server_made,
        subject::{self, Agent, SubjectError},
        trace::{Step, Trace},
        world::World,
    },
};

/// Most policies that a request can hold.
const MAX_POLICIES: usize = 64;

/// What a review comes to before grants are looked at.
#[derive(Debug)]
pub enum Assessment {
    /// The canary's call: answered with the digest of the entry that sent it.
    Canary,
    /// Admitted without a grant.
    Allow(Free),
    /// Never admitted as it is.
    Deny(Denial),
    /// This replica cannot tell. Never admitted.
    Unready(String),
    /// A person decides.
    Ask(Box<Proposal>),
}

/// Why a write is admitted without a grant.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Free {
    /// Why.
    pub because: FreeBecause,
    /// The answer hands out a Secret's data: the requester must be allowed to read it.
    pub reads_secret: bool,
    /// Who acts.
    pub agent: String,
}

/// Why a write is admitted without a grant.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FreeBecause {
    /// It changes nothing that is stored.
    NoChange,
    /// Nothing will be stored; a real run would need approval.
    DryRun,
    /// This standing policy exempts it.
    Exempt(String),
}

/// An assessment with the trace that it made on its way.
#[derive(Debug)]
pub struct Assessed {
    /// What it comes to.
    pub assessment: Assessment,
    /// What was looked at, in order.
    pub trace: Trace,
}

/// Assesses a review.
pub fn assess(world: &World, document: &Document<'_>, review: &Review<'_>) -> Assessed {
    let mut trace = Trace::default();
    let assessment = match examine(world, document, review, &mut trace) {
        Ok(assessment) => assessment,
        Err(Stop::Deny(denial)) => Assessment::Deny(denial),
        Err(Stop::Unready(why)) => Assessment::Unready(why),
    };
    Assessed { assessment, trace }
}

enum Stop {
    Deny(Denial),
    Unready(String),
}

impl From<Denial> for Stop {
    fn from(denial: Denial) -> Self {
        Self::Deny(denial)
    }
}

fn examine(
    world: &World,
    document: &Document<'_>,
    review: &Review<'_>,
    trace: &mut Trace,
) -> Result<Assessment, Stop> {
    readable(document)?;
    if review.user.username == &*world.canary {
        trace.push(Step::note("the canary's call"));
        return Ok(Assessment::Canary);
    }
    let agent = who(world, review)?;
    trace.push(Step::Subject {
        agent: agent.name.clone(),
        by: review.user.username.to_owned(),
    });
    let on_behalf_of = subject::on_behalf_of(&review.user).map_err(ambiguous)?;
    modelled(review)?;
    let mixed = stored_version(world, review)?;

    let generated = generated_name(review);
    let comparison = Comparison::of(&compared(review, generated));
    honest(&comparison)?;

    let groups: Vec<&str> = review.user.groups().collect();
    let destructive = review.operation == Operation::Delete
        || comparison.touches("/metadata/finalizers")
        || comparison.touches("/metadata/ownerReferences");
    let labels = labels(world, review)?;
    let situation = Situation {
        agent_name: &agent.name,
        agent_labels: &agent.labels,
        operation: review.operation,
        group: review.group,
        resource: review.resource,
        subresource: review.subresource,
        namespace: review.request_namespace,
        namespace_labels: labels.as_ref(),
        // Also a generated one: a client may send it together with its prefix, and so choose it.
        name: review
            .name
            .or_else(|| review.metadata("name"))
            .unwrap_or_default(),
        destructive,
        object: review.object,
        old_object: review.old_object,
        username: review.user.username,
        groups: &groups,
    };
    covered(world, agent, &situation, trace)?;

    let secret = Redactor::covers(review.group, review.resource);
    let free = |because| {
        Assessment::Allow(Free {
            because,
            reads_secret: secret,
            agent: agent.name.clone(),
        })
    };
    if review.operation == Operation::Update && comparison.is_noop() && !mixed {
        trace.push(Step::note("changes nothing that is stored"));
        return Ok(free(FreeBecause::NoChange));
    }
    let resolved = resolve::resolve(&world.policies, &situation);
    trace.append(resolved.trace);
    let rules = match resolved.outcome {
        Outcome::Unready(reasons) => return Err(Stop::Unready(reasons.join("; "))),
        Outcome::Exempt(by) => {
            return Ok(Assessment::Allow(Free {
                because: FreeBecause::Exempt(by),
                reads_secret: false,
                agent: agent.name.clone(),
            }));
        }
        Outcome::Approval(rules) => rules,
    };
    if rules.policies.len() > MAX_POLICIES {
        return Err(Stop::Unready(format!(
            "{} policies match, and a request holds at most {MAX_POLICIES}",
            rules.policies.len()
        )));
    }
    if review.dry_run {
        trace.push(Step::note("dry run: nothing is stored"));
        return Ok(free(FreeBecause::DryRun));
    }

    let mut bound = comparison
        .bind(&rules.binding, &world.redactor)
        .map_err(|too_large| {
            Denial::new(
                Reason::NotApprovable,
                "TooLargeToReview",
                format!("{too_large}: a person could not review it"),
            )
        })?;
    let options = Options::from(options::normalised_options(review.options));
    if review.operation == Operation::Delete {
        // A deletion is the same write with a longer grace; the use record keeps the grace beside it.
        bound.content_digest.clone_from(&options.digest);
    }
    let action = action(review, generated, &options.canonical);
    let action_key = name::action_key(review.user.username, &agent.name, &action);
    let facts = facts(review, &comparison, destructive);
    Ok(Assessment::Ask(Box::new(Proposal {
        admission_uid: review.uid.to_owned(),
        requester: Requester {
            username: review.user.username.to_owned(),
            uid: review.user.uid.map(str::to_owned),
            agent: agent.name.clone(),
            on_behalf_of: on_behalf_of.map(str::to_owned),
        },
        home: world.home(review.namespace()),
        base: base(review),
        object_uid: review.metadata("uid").unwrap_or_default().to_owned(),
        raises_generation: comparison.raises_generation(),
        action,
        action_key,
        bound,
        rules,
        options,
        facts,
    })))
}

/// Whether a review says one thing to every reader, at a depth that can be followed. Every path asks this first.
pub fn readable(document: &Document<'_>) -> Result<(), Denial> {
    if let Some(path) = document.duplicate_key() {
        return Err(Denial::new(
            Reason::NotApprovable,
            "DuplicateKey",
            format!(
                "the review holds a member twice ({path}), so what it says depends on the reader"
            ),
        ));
    }
    if document.depth() > MAX_DEPTH {
        return Err(Denial::new(
            Reason::NotApprovable,
            "TooDeep",
            format!(
                "nested {} levels deep; at most {MAX_DEPTH} can be reviewed",
                document.depth()
            ),
        ));
    }
    Ok(())
}

fn who<'w>(world: &'w World, review: &Review<'_>) -> Result<&'w Agent, Stop> {
    let agent = world
        .agents
        .resolve(&review.user)
        .map_err(|error| match error {
            SubjectError::Unknown => Stop::Unready(error.to_string()),
            other => Stop::Deny(ambiguous(other)),
        })?;
    if agent.surface == Surface::Unknown {
        return Err(Stop::Unready(format!(
            "AgentIdentity {} has a surface that this version does not know",
            agent.name
        )));
    }
    Ok(agent)
}

fn ambiguous(error: SubjectError) -> Denial {
    Denial::new(Reason::ToolNotEnabled, "AmbiguousAgent", error.to_string())
}

/// Operations that a person can be asked about. What is not here is refused in words, never let through.
fn modelled(review: &Review<'_>) -> Result<(), Denial> {
    let refuse = |cause, words: String| Err(Denial::new(Reason::NotApprovable, cause, words));
    if review.group == crate::api::GROUP {
        return refuse(
            "OwnKinds",
            "an agent writes none of grantgate's own kinds".to_owned(),
        );
    }
    let what = match review.subresource {
        Some(subresource) => format!(
            "{} {}/{subresource}",
            review.operation.as_str(),
            review.resource
        ),
        None => format!("{} {}", review.operation.as_str(), review.resource),
    };
    match (review.operation, review.subresource) {
        (Operation::Delete, None) if review.name.is_none() => refuse(
            "Collection",
            "a whole collection cannot be approved: delete by name".to_owned(),
        ),
        (Operation::Create, None) if review.group.is_empty() && review.resource == "bindings" => {
            refuse("NotModelled", format!("{what} cannot be approved yet"))
        }
        (Operation::Create | Operation::Update | Operation::Delete, None)
        | (Operation::Update, Some("scale" | "status")) => {
            if helm_release(review) {
                return refuse(
                    "NotModelled",
                    "a Helm release record cannot be approved yet: apply the rendered manifests instead".to_owned(),
                );
            }
            Ok(())
        }
        _ => refuse(
            "NotModelled",
            format!("{what} cannot be approved yet, so it is refused"),
        ),
    }
}

fn helm_release(review: &Review<'_>) -> bool {
    if !review.group.is_empty() || !matches!(review.resource, "secrets" | "configmaps") {
        return false;
    }
    [review.object, review.old_object]
        .into_iter()
        .flatten()
        .any(|object| {
            object.get("type").and_then(|value| value.as_str()) == Some("helm.sh/release.v1")
                || (object
                    .at("/metadata/labels/owner")
                    .and_then(|value| value.as_str())
                    == Some("helm")
                    && object
                        .at("/metadata/name")
                        .and_then(|value| value.as_str())
                        .is_some_and(|name| name.starts_with("sh.helm.release.v1.")))
        })
}

/// Whether objects of the resource may still be stored in other versions, so that nothing is a no-op.
fn stored_version(world: &World, review: &Review<'_>) -> Result<bool, Stop> {
    match world
        .resources
        .judge(review.group, review.resource, review.version)
    {
        VersionVerdict::Faithful => Ok(false),
        VersionVerdict::MixedStorage { .. } => Ok(true),
        VersionVerdict::Use(version) => Err(Stop::Deny(Denial::new(
            Reason::NotApprovable,
            "Version",
            format!(
                "{} must be written in version {version}, not {}: conversion could change what the review does not show",
                review.resource, review.version
            ),
        ))),
        VersionVerdict::Unknown => Err(Stop::Unready(format!(
            "resource {} of group {:?} is not known here yet",
            review.resource, review.group
        ))),
    }
}

/// Refuses what a review cannot show truthfully.
fn honest(comparison: &Comparison<'_>) -> Result<(), Denial> {
    if comparison.holds_replacement_char() {
        return Err(Denial::new(
            Reason::NotApprovable,
            "NotUtf8",
            "a string holds U+FFFD: bytes that are no UTF-8 all look so in a review",
        ));
    }
    if comparison.sets_generation_on_create() {
        return Err(Denial::new(
            Reason::NotApprovable,
            "Generation",
            "leave metadata.generation to the server",
        ));
    }
    if comparison.raises_generation_only() {
        return Err(Denial::new(
            Reason::NotApprovable,
            "HiddenChange",
            "the write raises the generation, yet nothing else differs in the review: what it changes cannot be shown",
        ));
    }
    Ok(())
}

/// Labels that a namespace selector looks at: those of the review's namespace as it is; of a Namespace that is being made, its own.
fn labels(world: &World, review: &Review<'_>) -> Result<Option<BTreeMap<String, String>>, Stop> {
    let Some(name) = review.request_namespace else {
        return Ok(None);
    };
    if let Some(namespace) = world.namespaces.get(name) {
        return Ok(Some(namespace.labels.clone()));
    }
    // Of one that is there and not known yet, the labels shown are those that the write itself sets.
    if review.namespace().is_none() && review.operation == Operation::Create {
        let own = review
            .object
            .and_then(|object| object.at("/metadata/labels"));
        return Ok(Some(
            own.into_iter()
                .flat_map(|labels| labels.entries())
                .filter_map(|(key, value)| Some((key.to_owned(), value.as_str()?.to_owned())))
                .collect(),
        ));
    }
    Err(Stop::Unready(format!(
        "namespace {name} is not known here yet"
    )))
}

fn covered(
    world: &World,
    agent: &Agent,
    situation: &Situation<'_>,
    trace: &mut Trace,
) -> Result<(), Stop> {
    if agent.surface != Surface::Mounts {
        trace.push(Step::note(
            "surface Policies: no tool list bounds this agent",
        ));
        return Ok(());
    }
    match world.mounts.covers(situation) {
        Coverage::Covered(tools) => {
            trace.push(Step::Covered { tools });
            Ok(())
        }
        Coverage::NotCovered(words) => {
            trace.push(Step::NotCovered {
                words: words.clone(),
            });
            Err(Stop::Deny(Denial::new(
                Reason::ToolNotEnabled,
                "NoTool",
                words,
            )))
        }
        Coverage::Unready(words) => Err(Stop::Unready(words)),
    }
}

fn action(review: &Review<'_>, generated: bool, options: &str) -> Action {
    Action {
        operation: review.operation,
        group: review.group.to_owned(),
        version: review.version.to_owned(),
        resource: review.resource.to_owned(),
        subresource: review.subresource.map(str::to_owned),
        namespace: review.namespace().map(str::to_owned),
        name: if generated {
            None
        } else {
            review.name.map(str::to_owned)
        },
        generate_name: if generated {
            review.metadata("generateName").map(str::to_owned)
        } else {
            None
        },
        target_uid: review
            .old_metadata("uid")
            .and_then(|value| value.as_str())
            .map(str::to_owned),
        options: options.to_owned(),
    }
}

fn base(review: &Review<'_>) -> Option<Base> {
    let text = |key| {
        review
            .old_metadata(key)
            .and_then(|value: Value<'_>| value.as_str())
    };
    Some(Base {
        resource_version: text("resourceVersion")?.to_owned(),
        generation: review
            .old_metadata("generation")
            .and_then(|value| value.as_i64()),
    })
}

fn facts(review: &Review<'_>, comparison: &Comparison<'_>, destructive: bool) -> Vec<Fact> {
    let fact = |kind: &str, value: String| Fact {
        kind: kind.to_owned(),
        value,
        source: "Request".to_owned(),
    };
    let mut facts = Vec::new();
    if review.operation == Operation::Delete {
        facts.push(fact(
            "Irreversible",
            "the object is deleted; whatever re-creates it asks again".to_owned(),
        ));
    } else if destructive {
        facts.push(fact(
            "Destructive",
            "finalizers or owner references change: the object can be deleted by it".to_owned(),
        ));
    }
    if review.subresource == Some("status") {
        facts.push(fact(
            "Status",
            "a write of status can also store metadata".to_owned(),
        ));
    }
    if !comparison.shifts().is_empty() {
        facts.push(fact(
            "FieldOwnership",
            "takes fields over, or drops them, without changing their value".to_owned(),
        ));
    }
    facts.push(fact("Tool", "not proven".to_owned()));
    facts.push(fact(
        "Declared",
        "value, destination and data class are not declared".to_owned(),
    ));
    facts
}

/// What of a review is compared.
fn compared<'d>(review: &Review<'d>, generated_name: bool) -> Compared<'d> {
    Compared {
        operation: review.operation,
        group: review.group,
        resource: review.resource,
        subresource: review.subresource,
        object: review.object,
        old_object: review.old_object,
        options: review.options,
        generated_name,
    }
}

/// Whether the name is what the server made of `generateName`: a client may send both itself.
fn generated_name(review: &Review<'_>) -> bool {
    review.operation == Operation::Create
        && match (review.metadata("name"), review.metadata("generateName")) {
            (Some(name), Some(prefix)) => server_made::is_generated_name(name, prefix),
            _ => false,
        }
}

impl From<options::Options> for Options {
    fn from(options: options::Options) -> Self {
        Self {
            digest: crate::decide::canonical::digest(&options.without_grace),
            canonical: options.canonical,
            grace_seconds: options.grace_seconds,
        }
    }
}

/// The target of a review in one phrase, for messages about reviews that never became a proposal.
pub fn target_of(review: &Review<'_>) -> String {
    proposal::target(&action(review, false, "{}"))
}

#[cfg(test)]
mod second_calls_tests;
#[cfg(test)]
mod tests;

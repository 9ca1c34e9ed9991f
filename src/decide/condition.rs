//! CEL conditions: the one place that compiles and evaluates them.
//!
//! The interpreter has neither a cost budget nor an interrupt, and its parser recurses. So a condition is bounded before it
//! is parsed (size, nesting), after it is parsed (one loop deep, 64 calls, known names only) and before it is evaluated (size,
//! depth and a cost estimate of what it reads). What passes cannot exhaust the stack or the time of a call.
//!
//! **Facts.** `object` and `oldObject` are `null` where the request has none (`object` on DELETE, `oldObject` on CREATE and
//! CONNECT), as in a ValidatingAdmissionPolicy; selecting a field of `null`, or a field that is absent, is an error: guard it
//! with `has(…)`, or compare `oldObject == null` first. Only the paths that the source names are converted, so a large object
//! costs nothing unless it is read.
//!
//! **Numbers.** A JSON integer becomes `int` where it fits 64 bits, otherwise, like a fraction or an exponent, `double`:
//! what the API server itself stores.
//!
//! **Errors.** A condition that cannot be evaluated counts as *in doubt* for a policy that asks (it asks, and outranks no other)
//! and does not hold for one that exempts: [`Condition::holds_for`] says so in one place. Error texts never carry values of the object: it may be a Secret.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, LazyLock},
};

use cel::{Context, Env, ExecutionError, Program};

use super::json::Value;
use super::trace::{Step, Trace};
use crate::api::{Operation, approval_policy::Effect};

mod guard;
mod source;
mod value;

pub use guard::MAX_CALLS;
pub use source::{MAX_NESTING, MAX_SOURCE_BYTES};
pub use value::{MAX_READ_BYTES, MAX_READ_DEPTH};

/// A compiled condition.
pub struct Condition {
    source: String,
    program: Program,
    reads: guard::Reads,
}

/// What a condition is evaluated over.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// The object as it would be stored; absent for DELETE.
    pub object: Option<Value<'a>>,
    /// The object as it is stored; absent for CREATE and CONNECT.
    pub old_object: Option<Value<'a>>,
    /// The request itself.
    pub request: RequestFacts<'a>,
}

/// The members of the variable `request`.
#[derive(Clone, Copy)]
pub struct RequestFacts<'a> {
    /// `request.operation`, in the words of AdmissionReview.
    pub operation: Operation,
    /// `request.group`; empty for the core group.
    pub group: &'a str,
    /// `request.resource`, plural.
    pub resource: &'a str,
    /// `request.subresource`; empty for the main resource.
    pub subresource: Option<&'a str>,
    /// `request.namespace`; empty for cluster-scoped targets.
    pub namespace: Option<&'a str>,
    /// `request.name`; empty where the server has not made it up yet.
    pub name: &'a str,
    /// `request.username`.
    pub username: &'a str,
    /// `request.groups`.
    pub groups: &'a [&'a str],
    /// `request.agent`: name of the AgentIdentity.
    pub agent: &'a str,
}

/// What a condition comes to for a policy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Held {
    /// It holds.
    Yes,
    /// It does not.
    No,
    /// It could not be evaluated, and the policy asks: it counts, but displaces nobody. An agent can bring such an error about, so
    /// it may not choose its approvers by it.
    InDoubt,
}

/// Why a source is no usable condition.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ConditionProblem {
    /// Nothing is written.
    #[error("the condition is empty: leave `when` out to match always")]
    Empty,
    /// The source is too long.
    #[error("the condition has {bytes} bytes; at most {MAX_SOURCE_BYTES} are read")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Brackets or conditionals are nested too deeply.
    #[error(
        "brackets are nested deeper than {MAX_NESTING}: split the condition into several targets"
    )]
    TooDeep,
    /// Too many operators for the parser to be safe on.
    #[error("the condition has too many operators: split it into several targets")]
    TooManyOperators,
    /// It does not parse.
    #[error("the condition does not compile: {0}")]
    Syntax(String),
    /// Loops within loops.
    #[error("a loop (all, exists, filter, map) stands within another: at most one is evaluated")]
    NestedLoop,
    /// Too many calls.
    #[error("the condition makes more than {MAX_CALLS} calls")]
    TooManyCalls,
    /// A name that is no variable.
    #[error("`{0}` is not known here: a condition reads object, oldObject and request")]
    UnknownVariable(String),
    /// A loop variable that hides one of ours.
    #[error("the loop variable `{0}` hides a variable of that name: call it something else")]
    HiddenVariable(String),
    /// A function that is not in the standard library.
    #[error("the function `{0}` is not known here: only CEL's standard functions are")]
    UnknownFunction(String),
    /// Something that conditions do not use.
    #[error("{0} cannot be used in a condition")]
    Unsupported(&'static str),
    /// A regular expression that is not a plain, small literal.
    #[error(
        "`matches` needs a literal pattern of at most 128 bytes without large repetitions: {0}"
    )]
    Pattern(String),
}

/// Why a condition could not be evaluated. Holds no value of the object.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ConditionError {
    /// A field that is not there.
    #[error("no such field: {0}")]
    NoSuchField(String),
    /// The result is not true or false.
    #[error("the condition is neither true nor false")]
    NotBool,
    /// What it reads is too large.
    #[error("what the condition reads is larger than {MAX_READ_BYTES} bytes")]
    TooLarge,
    /// What it reads is too deep.
    #[error("what the condition reads is nested deeper than {MAX_READ_DEPTH}")]
    TooDeep,
    /// Its loop would take too long on what it reads.
    #[error("the condition would loop over too much")]
    TooCostly,
    /// A number that no CEL type holds.
    #[error("a number is too large")]
    Number,
    /// Types do not fit an operation.
    #[error("types do not fit: {0}")]
    Types(String),
    /// Arithmetic failed.
    #[error("arithmetic failed: {0}")]
    Arithmetic(&'static str),
    /// Anything else.
    #[error("the condition could not be evaluated")]
    Other,
}

/// The standard library and nothing else: no `lists.range`, which can ask for any amount of memory.
static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));
/// Making a root context costs some 30 µs, a scope within it one.
static ROOT: LazyLock<Context<'static, 'static>> =
    LazyLock::new(|| Context::with_env(Arc::clone(&ENV)));

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Condition").field(&self.source).finish()
    }
}

impl Condition {
    /// Compiles a condition, or says why it is none.
    pub fn compile(source: &str) -> Result<Self, ConditionProblem> {
        source::check_source(source)?;
        let program = ENV
            .compile(source)
            .map_err(|errors| ConditionProblem::Syntax(syntax_words(&errors)))?;
        let reads = guard::check_expression(program.expression())?;
        Ok(Self {
            source: source.to_owned(),
            program,
            reads,
        })
    }

    /// What was written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The paths that the condition reads, e.g. `object.spec.replicas`, sorted; a bare `object` stands for all of it.
    pub fn paths(&self) -> Vec<String> {
        self.reads.paths()
    }

    /// Whether the condition is true for these facts.
    pub fn holds(&self, facts: &Facts<'_>) -> Result<bool, ConditionError> {
        let mut budget = value::Budget::default();
        let object = value::read(facts.object, &self.reads.object, &mut budget)?;
        let old_object = value::read(facts.old_object, &self.reads.old_object, &mut budget)?;
        if self.reads.loop_cost(&budget) > guard::MAX_LOOP_COST {
            return Err(ConditionError::TooCostly);
        }
        let mut scope = ROOT.new_inner_scope();
        scope.add_variable_from_value("object", object);
        scope.add_variable_from_value("oldObject", old_object);
        if self.reads.request {
            scope.add_variable_from_value("request", request_value(&facts.request));
        }
        match self.program.execute(&scope) {
            Ok(cel::Value::Bool(held)) => Ok(held),
            Ok(_) => Err(ConditionError::NotBool),
            Err(error) => Err(without_values(&error)),
        }
    }

    /// Whether the condition counts as holding for a policy of this effect: after an error it does not for one that exempts, and
    /// is in doubt for one that asks. The error goes into the trace under `owner`.
    pub fn holds_for(
        &self,
        effect: Effect,
        facts: &Facts<'_>,
        owner: &dyn fmt::Display,
        trace: &mut Trace,
    ) -> Held {
        match self.holds(facts) {
            Ok(true) => Held::Yes,
            Ok(false) => Held::No,
            Err(error) => {
                let taken_as = effect != Effect::Exempt;
                trace.push(Step::ConditionFailed {
                    owner: owner.to_string(),
                    source: self.source.clone(),
                    error: error.to_string(),
                    taken_as,
                });
                if taken_as { Held::InDoubt } else { Held::No }
            }
        }
    }
}

fn request_value(request: &RequestFacts<'_>) -> cel::Value {
    let text = |text: &str| cel::Value::from(text);
    let groups: Vec<cel::Value> = request.groups.iter().map(|group| text(group)).collect();
    let members: HashMap<&str, cel::Value> = HashMap::from([
        ("operation", text(request.operation.as_str())),
        ("group", text(request.group)),
        ("resource", text(request.resource)),
        ("subresource", text(request.subresource.unwrap_or_default())),
        ("namespace", text(request.namespace.unwrap_or_default())),
        ("name", text(request.name)),
        ("username", text(request.username)),
        ("groups", cel::Value::List(Arc::new(groups))),
        ("agent", text(request.agent)),
    ]);
    cel::Value::from(members)
}

/// The parser's words on one line, bounded: its messages quote the source.
fn syntax_words(errors: &cel::ParseErrors) -> String {
    let text = errors.to_string();
    let line: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('|'))
        .collect();
    line.join("; ")
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(300)
        .collect()
}

/// The interpreter's errors quote values; ours name what went wrong.
fn without_values(error: &ExecutionError) -> ConditionError {
    match error {
        ExecutionError::NoSuchKey(key) => {
            ConditionError::NoSuchField(key.chars().take(100).collect())
        }
        ExecutionError::NoSuchOverload(overload) => ConditionError::Types(format!(
            "`{}` on {}",
            overload.function(),
            overload.argument_types().join(", ")
        )),
        ExecutionError::UnexpectedType { want, .. } => {
            ConditionError::Types(format!("{want} is needed"))
        }
        ExecutionError::ValuesNotComparable(..) => {
            ConditionError::Types("two values cannot be compared".to_owned())
        }
        ExecutionError::UnsupportedBinaryOperator(operator, ..) => {
            ConditionError::Types(format!("`{operator}`"))
        }
        ExecutionError::UnsupportedIndex(..) | ExecutionError::UnsupportedKeyType(_) => {
            ConditionError::Types("a value cannot be an index".to_owned())
        }
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => {
            ConditionError::Arithmetic("division by zero")
        }
        ExecutionError::Overflow(..) => ConditionError::Arithmetic("overflow"),
        ExecutionError::IndexOutOfBounds(_) => {
            ConditionError::NoSuchField("an index out of bounds".to_owned())
        }
        _ => ConditionError::Other,
    }
}

#[cfg(test)]
mod tests;

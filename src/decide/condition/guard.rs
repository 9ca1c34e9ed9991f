//! What a condition may do: checked in its expression before it is ever run, with what it reads and what its loops may cost.

use std::collections::BTreeMap;

use cel::{
    IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators},
};

use super::{ConditionProblem, value::Budget};

/// Calls, operators included.
pub const MAX_CALLS: usize = 64;
/// Bytes of a regular expression.
pub const MAX_PATTERN_BYTES: usize = 128;
/// What loops may cost: some tenths of a second, or 50 MB, at worst.
pub const MAX_LOOP_COST: u64 = 50_000_000;

/// Calls of `matches`.
const MAX_PATTERNS: usize = 8;
/// Counted repetitions multiply: `(a{8}){8}` is 64 copies.
const MAX_REPETITION: u64 = 64;
/// Compiling one copy of a pattern, in the unit of [`MAX_LOOP_COST`].
const PATTERN_COST: u64 = 50_000;

const VARIABLES: [&str; 3] = ["object", "oldObject", "request"];
const TYPES: [&str; 9] = [
    "bool",
    "bytes",
    "double",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "uint",
];
const FUNCTIONS: [&str; 18] = [
    "bool",
    "bytes",
    "contains",
    "double",
    "dyn",
    "endsWith",
    "hasValue",
    "int",
    "matches",
    "max",
    "min",
    "or",
    "orValue",
    "size",
    "startsWith",
    "string",
    "type",
    "uint",
];
const OPERATORS: [&str; 19] = [
    operators::CONDITIONAL,
    operators::LOGICAL_AND,
    operators::LOGICAL_OR,
    operators::LOGICAL_NOT,
    operators::SUBSTRACT,
    operators::ADD,
    operators::MULTIPLY,
    operators::DIVIDE,
    operators::MODULO,
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::GREATER_EQUALS,
    operators::LESS_EQUALS,
    operators::GREATER,
    operators::LESS,
    operators::NEGATE,
    operators::INDEX,
    operators::IN,
    operators::NOT_STRICTLY_FALSE,
];

/// The paths read below one variable.
#[derive(Debug, Default)]
pub struct PathTree {
    /// Everything from here down.
    pub whole: bool,
    /// By member.
    pub below: BTreeMap<String, PathTree>,
}

/// What an expression reads, and what its loops do for each element.
#[derive(Debug, Default)]
pub struct Reads {
    /// Below `object`.
    pub object: PathTree,
    /// Below `oldObject`.
    pub old_object: PathTree,
    /// Whether `request` is read.
    pub request: bool,
    calls: usize,
    loops: usize,
    calls_in_loops: usize,
    patterns: usize,
    pattern_copies_in_loops: u64,
    loops_read_outside: bool,
}

/// Where the walk stands.
#[derive(Clone, Copy, Default)]
struct Within<'e> {
    of_loop: Option<&'e ComprehensionExpr>,
}

impl Reads {
    /// `object.spec.replicas` and so on, sorted.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.object.list("object", &mut paths);
        self.old_object.list("oldObject", &mut paths);
        if self.request {
            paths.push("request".to_owned());
        }
        paths
    }

    /// An upper bound of what the loops cost on what was read: a loop goes over at most every value read, and each call in
    /// it goes over at most everything read, or, where it reads its own element only, over each element once.
    pub fn loop_cost(&self, read: &Budget) -> u64 {
        if self.loops == 0 {
            return 0;
        }
        let wide = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let (values, bytes) = (wide(read.values), wide(read.bytes));
        let each = if self.loops_read_outside {
            bytes.saturating_add(16).saturating_mul(values)
        } else {
            bytes.saturating_add(values.saturating_mul(16))
        };
        let calls = wide(self.calls_in_loops.max(1)).saturating_mul(each);
        calls.saturating_add(
            self.pattern_copies_in_loops
                .saturating_mul(values)
                .saturating_mul(PATTERN_COST),
        )
    }
}

impl PathTree {
    fn add(&mut self, path: &[&str]) {
        let mut at = self;
        for name in path {
            at = at.below.entry((*name).to_owned()).or_default();
        }
        at.whole = true;
    }

    fn list(&self, path: &str, into: &mut Vec<String>) {
        if self.whole {
            into.push(path.to_owned());
            return;
        }
        for (name, below) in &self.below {
            below.list(&format!("{path}.{name}"), into);
        }
    }
}

/// Bounds what is run, and collects what it reads.
pub fn check_expression(expression: &IdedExpr) -> Result<Reads, ConditionProblem> {
    let mut reads = Reads::default();
    reads.walk(expression, Within::default())?;
    if reads.calls > MAX_CALLS {
        Err(ConditionProblem::TooManyCalls)
    } else {
        Ok(reads)
    }
}

impl Reads {
    fn walk<'e>(&mut self, at: &'e IdedExpr, within: Within<'e>) -> Result<(), ConditionProblem> {
        if let Some(path) = path_of(at) {
            return self.read(&path, within);
        }
        match &at.expr {
            Expr::Unspecified => Err(ConditionProblem::Unsupported("an empty expression")),
            Expr::Struct(_) => Err(ConditionProblem::Unsupported("a message type")),
            Expr::Literal(_) | Expr::Ident(_) => Ok(()),
            Expr::Select(select) => self.walk(&select.operand, within),
            Expr::List(list) => list
                .elements
                .iter()
                .try_for_each(|element| self.element(element, within)),
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => {
                    self.element(&entry.key, within)?;
                    self.element(&entry.value, within)
                }
                EntryExpr::StructField(_) => Err(ConditionProblem::Unsupported("a message type")),
            }),
            Expr::Call(call) => self.call(call, within),
            Expr::Comprehension(inner) => self.comprehension(inner, within),
        }
    }

    /// An element of a list or map literal is copied, which costs like a call unless it is a literal.
    fn element<'e>(
        &mut self,
        at: &'e IdedExpr,
        within: Within<'e>,
    ) -> Result<(), ConditionProblem> {
        if !matches!(at.expr, Expr::Literal(_)) {
            self.count_call(within);
        }
        self.walk(at, within)
    }

    fn count_call(&mut self, within: Within<'_>) {
        self.calls += 1;
        self.calls_in_loops += usize::from(within.of_loop.is_some());
    }

    fn call<'e>(&mut self, call: &'e CallExpr, within: Within<'e>) -> Result<(), ConditionProblem> {
        let name = call.func_name.as_str();
        self.count_call(within);
        let optional = matches!(name, operators::OPT_INDEX | operators::OPT_SELECT);
        if !optional && !OPERATORS.contains(&name) && !FUNCTIONS.contains(&name) {
            return Err(ConditionProblem::UnknownFunction(
                name.chars().take(60).collect(),
            ));
        }
        if name == "matches" {
            let copies = check_pattern(call)?;
            self.patterns += 1;
            if self.patterns > MAX_PATTERNS {
                return Err(ConditionProblem::Pattern(format!(
                    "more than {MAX_PATTERNS} patterns are matched"
                )));
            }
            if within.of_loop.is_some() {
                self.pattern_copies_in_loops = self.pattern_copies_in_loops.saturating_add(copies);
            }
        }
        if matches!(name, operators::EQUALS | operators::NOT_EQUALS) && asks_for_null(call) {
            // Whether there is an object at all: no need to convert it.
            return Ok(());
        }
        if let Some(target) = &call.target {
            self.walk(target, within)?;
        }
        call.args
            .iter()
            .try_for_each(|argument| self.walk(argument, within))
    }

    fn comprehension<'e>(
        &mut self,
        inner: &'e ComprehensionExpr,
        within: Within<'e>,
    ) -> Result<(), ConditionProblem> {
        if within.of_loop.is_some() {
            return Err(ConditionProblem::NestedLoop);
        }
        for name in std::iter::once(&inner.iter_var).chain(&inner.iter_var2) {
            if VARIABLES.contains(&name.as_str()) {
                return Err(ConditionProblem::HiddenVariable(name.clone()));
            }
        }
        self.loops += 1;
        // A loop whose range is itself a loop runs them one after the other; only the range's own body would nest.
        self.walk(&inner.iter_range, within)?;
        let body = Within {
            of_loop: Some(inner),
        };
        for part in [
            &inner.accu_init,
            &inner.loop_cond,
            &inner.loop_step,
            &inner.result,
        ] {
            self.walk(part, body)?;
        }
        Ok(())
    }

    fn read(&mut self, path: &[&str], within: Within<'_>) -> Result<(), ConditionProblem> {
        let Some((root, below)) = path.split_first() else {
            return Ok(());
        };
        if let Some(of) = within.of_loop {
            let own = *root == of.iter_var
                || *root == of.accu_var
                || of.iter_var2.as_deref() == Some(root);
            if own {
                return Ok(());
            }
            self.loops_read_outside = true;
        }
        match *root {
            "object" => self.object.add(below),
            "oldObject" => self.old_object.add(below),
            "request" => self.request = true,
            _ if below.is_empty() && TYPES.contains(root) => {}
            other => {
                return Err(ConditionProblem::UnknownVariable(
                    other.chars().take(60).collect(),
                ));
            }
        }
        Ok(())
    }
}

/// `object.spec.replicas`, `object['spec'].replicas` and `object.?spec.?replicas` as segments; nothing else is a path.
fn path_of(at: &IdedExpr) -> Option<Vec<&str>> {
    let mut segments = Vec::new();
    let mut at = at;
    loop {
        match &at.expr {
            Expr::Ident(name) => {
                segments.push(name.as_str());
                segments.reverse();
                return Some(segments);
            }
            Expr::Select(select) => {
                segments.push(select.field.as_str());
                at = &select.operand;
            }
            Expr::Call(call) => {
                let indexes = matches!(
                    call.func_name.as_str(),
                    operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT
                );
                let (true, None, [operand, index]) = (indexes, &call.target, call.args.as_slice())
                else {
                    return None;
                };
                let Expr::Literal(LiteralValue::String(name)) = &index.expr else {
                    return None;
                };
                segments.push(name.inner());
                at = operand;
            }
            _ => return None,
        }
    }
}

/// `object == null` and its like.
fn asks_for_null(call: &CallExpr) -> bool {
    let [left, right] = call.args.as_slice() else {
        return false;
    };
    let document = |at: &IdedExpr| matches!(&at.expr, Expr::Ident(name) if name == "object" || name == "oldObject");
    let null = |at: &IdedExpr| matches!(&at.expr, Expr::Literal(LiteralValue::Null));
    (document(left) && null(right)) || (null(left) && document(right))
}

/// The pattern is compiled anew on each call, so it is a literal, short, and small when compiled. Gives its copies.
fn check_pattern(call: &CallExpr) -> Result<u64, ConditionProblem> {
    let pattern = match call.args.last().map(|argument| &argument.expr) {
        Some(Expr::Literal(LiteralValue::String(pattern))) => pattern.inner(),
        _ => return Err(ConditionProblem::Pattern("it is no literal".to_owned())),
    };
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(ConditionProblem::Pattern(format!(
            "it has {} bytes",
            pattern.len()
        )));
    }
    let mut copies = 1_u64;
    for counted in pattern.split('{').skip(1) {
        let inside = counted.split('}').next().unwrap_or_default();
        let most = inside
            .split(',')
            .filter_map(|n| n.trim().parse::<u64>().ok())
            .max()
            .unwrap_or(1);
        copies = copies.saturating_mul(most.max(1));
    }
    if copies > MAX_REPETITION {
        return Err(ConditionProblem::Pattern(format!(
            "its repetitions make {copies} copies"
        )));
    }
    let probe = cel::Value::resolve(
        &IdedExpr {
            id: 0,
            expr: Expr::Call(CallExpr {
                func_name: "matches".to_owned(),
                target: None,
                args: probe_arguments(pattern),
            }),
        },
        &super::ROOT,
    );
    match probe {
        Ok(_) => Ok(copies),
        Err(_) => Err(ConditionProblem::Pattern(
            "it is no valid regular expression".to_owned(),
        )),
    }
}

fn probe_arguments(pattern: &str) -> Vec<IdedExpr> {
    let literal = |text: &str| IdedExpr {
        id: 0,
        expr: Expr::Literal(LiteralValue::String(text.to_owned().into())),
    };
    vec![literal(""), literal(pattern)]
}

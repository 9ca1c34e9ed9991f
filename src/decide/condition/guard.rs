//! What a condition may be: checked in its bytes before the parser sees them, and in its expression before it is ever run.

use std::collections::BTreeMap;

use cel::{
    IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators},
};

use super::{ConditionProblem, value::Budget};

/// Bytes of a source.
pub const MAX_SOURCE_BYTES: usize = 1024;
/// Nesting of brackets, and number of conditionals (`?`), which nest too.
pub const MAX_NESTING: usize = 16;
/// Calls, operators included.
pub const MAX_CALLS: usize = 64;
/// Bytes of a regular expression.
pub const MAX_PATTERN_BYTES: usize = 128;
/// What loops may cost: some tenths of a second, or 50 MB, at worst.
pub const MAX_LOOP_COST: u64 = 50_000_000;

/// Operator bytes outside of strings: each may add a level to the parser's recursion.
const MAX_OPERATORS: usize = 192;
/// Operators in a row, e.g. `!!!!x`.
const MAX_OPERATORS_IN_A_ROW: usize = 8;
/// Brackets and conditionals in all, also in what looks like a string: where the lexer meets an escape that it does not know it
/// drops the quote and reads on. The parser itself stops at 96.
const MAX_NESTING_ANYWHERE: usize = 64;
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

/// Bounds what the parser is given: it recurses once per bracket, conditional and unary operator.
pub fn check_source(source: &str) -> Result<(), ConditionProblem> {
    if source.trim().is_empty() {
        return Err(ConditionProblem::Empty);
    }
    if source.len() > MAX_SOURCE_BYTES {
        return Err(ConditionProblem::TooLong {
            bytes: source.len(),
        });
    }
    let nesting = source
        .bytes()
        .filter(|byte| matches!(byte, b'(' | b'[' | b'{' | b'?'))
        .count();
    if nesting > MAX_NESTING_ANYWHERE {
        return Err(ConditionProblem::TooDeep);
    }
    let (mut depth, mut conditionals, mut operators, mut in_a_row) =
        (0_usize, 0_usize, 0_usize, 0_usize);
    let mut rest = source.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'"' | b'\'' => {
                rest = after_string(byte, after, raw_prefix(source, after.len()));
                in_a_row = 0;
                continue;
            }
            b'/' if after.first() == Some(&b'/') => {
                let line_end = after
                    .iter()
                    .position(|byte| *byte == b'\n')
                    .unwrap_or(after.len());
                rest = after.get(line_end..).unwrap_or_default();
                continue;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'?' => conditionals += 1,
            _ => {}
        }
        if byte.is_ascii_punctuation() && byte != b'_' {
            operators += 1;
            in_a_row = if matches!(byte, b'!' | b'-') {
                in_a_row + 1
            } else {
                0
            };
        } else if !byte.is_ascii_whitespace() {
            in_a_row = 0;
        }
        if depth > MAX_NESTING || conditionals > MAX_NESTING || in_a_row > MAX_OPERATORS_IN_A_ROW {
            return Err(ConditionProblem::TooDeep);
        }
    }
    let words = source
        .split_ascii_whitespace()
        .filter(|word| *word == "in")
        .count();
    if operators + words > MAX_OPERATORS {
        Err(ConditionProblem::TooManyOperators)
    } else {
        Ok(())
    }
}

/// Whether the quote with this many bytes behind it opens a raw string (`r'…'`), in which a backslash escapes nothing.
fn raw_prefix(source: &str, bytes_after_quote: usize) -> bool {
    let quote = source.len().saturating_sub(bytes_after_quote + 1);
    let before = source.as_bytes().get(..quote).unwrap_or_default();
    let prefix = before
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_')
        .count();
    let word = before.get(before.len() - prefix..).unwrap_or_default();
    matches!(
        word,
        b"r" | b"R" | b"br" | b"bR" | b"Br" | b"BR" | b"rb" | b"rB" | b"Rb" | b"RB"
    )
}

/// What follows the string that `quote` opened. An unclosed string ends with its line, or with the source: the parser refuses
/// it, and brackets behind the end of the line count again, so that nothing hides from the count.
fn after_string(quote: u8, source: &[u8], raw: bool) -> &[u8] {
    let triple = source.first() == Some(&quote) && source.get(1) == Some(&quote);
    let mut rest = if triple {
        source.get(2..).unwrap_or_default()
    } else {
        source
    };
    loop {
        match rest {
            [] => return rest,
            [b'\\', escaped, after @ ..]
                if !raw && (triple || !matches!(escaped, b'\n' | b'\r')) =>
            {
                rest = after
            }
            [a, b, c, after @ ..] if triple && *a == quote && *b == quote && *c == quote => {
                return after;
            }
            [a, after @ ..] if !triple && *a == quote => return after,
            [b'\n' | b'\r', after @ ..] if !triple => return after,
            [_, after @ ..] => rest = after,
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

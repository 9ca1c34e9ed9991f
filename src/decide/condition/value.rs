//! From our JSON to CEL's values: only the paths that a condition reads, within limits.

use std::{collections::HashMap, sync::Arc};

use super::{ConditionError, guard::PathTree};
use crate::decide::json::{Kind, Value};

/// What one condition may read, in bytes of names, strings and numbers.
pub const MAX_READ_BYTES: usize = 1024 * 1024;
/// How deep what one condition reads may be nested.
pub const MAX_READ_DEPTH: usize = 32;

/// What was read so far.
#[derive(Debug, Default)]
pub struct Budget {
    /// Bytes of names, strings and numbers, one at least for each value.
    pub bytes: usize,
    /// Values.
    pub values: usize,
}

impl Budget {
    fn take(&mut self, bytes: usize) -> Result<(), ConditionError> {
        self.values = self.values.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes.max(1));
        if self.bytes > MAX_READ_BYTES {
            Err(ConditionError::TooLarge)
        } else {
            Ok(())
        }
    }
}

/// The part of a document that the tree names: `null` where there is no document, absent where a path ends nowhere.
pub fn read(
    document: Option<Value<'_>>,
    tree: &PathTree,
    budget: &mut Budget,
) -> Result<cel::Value, ConditionError> {
    match document {
        None => Ok(cel::Value::Null),
        Some(document) => read_at(document, tree, 0, budget),
    }
}

fn read_at(
    at: Value<'_>,
    tree: &PathTree,
    depth: usize,
    budget: &mut Budget,
) -> Result<cel::Value, ConditionError> {
    if depth > MAX_READ_DEPTH {
        return Err(ConditionError::TooDeep);
    }
    // A scalar or a list where the source expects an object is converted whole, so that CEL itself meets the wrong type.
    if tree.whole || !matches!(at.kind(), Kind::Object) {
        return convert(at, depth, budget);
    }
    budget.take(0)?;
    let mut members = HashMap::with_capacity(tree.below.len());
    for (name, below) in &tree.below {
        if let Some(member) = at.get(name) {
            members.insert(name.clone(), read_at(member, below, depth + 1, budget)?);
        }
    }
    Ok(cel::Value::from(members))
}

/// Recursion is bounded by the depth limit.
fn convert(at: Value<'_>, depth: usize, budget: &mut Budget) -> Result<cel::Value, ConditionError> {
    if depth > MAX_READ_DEPTH {
        return Err(ConditionError::TooDeep);
    }
    match at.kind() {
        Kind::Null => budget.take(0).map(|()| cel::Value::Null),
        Kind::Bool(value) => budget.take(0).map(|()| cel::Value::Bool(value)),
        Kind::Number(text) => {
            budget.take(text.len())?;
            number(text)
        }
        Kind::String(text) => {
            budget.take(text.len())?;
            Ok(cel::Value::from(text))
        }
        Kind::Array => {
            budget.take(0)?;
            let mut items = Vec::new();
            for item in at.items() {
                items.push(convert(item, depth + 1, budget)?);
            }
            Ok(cel::Value::List(Arc::new(items)))
        }
        Kind::Object => {
            budget.take(0)?;
            let mut members = HashMap::new();
            for (name, member) in at.entries() {
                budget.take(name.len())?;
                members.insert(name.to_owned(), convert(member, depth + 1, budget)?);
            }
            Ok(cel::Value::from(members))
        }
    }
}

/// An integer that fits 64 bits is an `int`; everything else a `double`, if it is finite.
fn number(text: &str) -> Result<cel::Value, ConditionError> {
    if let Ok(integer) = text.parse::<i64>() {
        return Ok(cel::Value::Int(integer));
    }
    match text.parse::<f64>() {
        Ok(double) if double.is_finite() => Ok(cel::Value::Float(double)),
        _ => Err(ConditionError::Number),
    }
}

//! YAML as grantgate prints it.

use serde::Serialize;

/// A value that cannot be written as YAML.
#[derive(Debug, thiserror::Error)]
#[error("cannot be written as YAML: {0}")]
pub struct Unwritable(String);

/// One document, without a marker before it.
pub fn document<T: Serialize>(value: &T) -> Result<String, Unwritable> {
    serde_saphyr::to_string(value).map_err(|error| Unwritable(error.to_string()))
}

/// Several documents, with a marker between them.
pub fn documents<'v, T: Serialize + 'v>(
    values: impl IntoIterator<Item = &'v T>,
) -> Result<String, Unwritable> {
    let documents: Result<Vec<String>, Unwritable> = values.into_iter().map(document).collect();
    Ok(documents?.join("---\n"))
}

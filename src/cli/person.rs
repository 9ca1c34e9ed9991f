//! Whoever runs the plugin, as the API server authenticated them.

use serde::Deserialize;

/// A username and its groups.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
pub struct Person {
    /// Username.
    #[serde(default)]
    pub username: String,
    /// Groups.
    #[serde(default)]
    pub groups: Vec<String>,
}

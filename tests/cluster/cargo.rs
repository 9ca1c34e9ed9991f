//! Cargo, run by a program that cargo started.

use std::path::Path;
use std::process::{Command, Stdio};

use super::process::tethered;

/// What cargo tells the programs it starts about the package they come from.
const OF_THE_PACKAGE: [&str; 4] = [
    "CARGO_PKG_",
    "CARGO_MANIFEST_",
    "CARGO_BIN_",
    "CARGO_CRATE_",
];

/// Cargo on this package, with the environment that a person's cargo has: a build script that looks at what is taken away here
/// (ring's does) would run again, and everything above it be compiled again, at each change between the two.
pub fn cargo() -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = tethered(Path::new(&cargo));
    for (name, _) in std::env::vars_os() {
        let is_of_the_package = name
            .to_str()
            .is_some_and(|name| OF_THE_PACKAGE.iter().any(|start| name.starts_with(start)));
        if is_of_the_package {
            command.env_remove(name);
        }
    }
    command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null());
    command
}

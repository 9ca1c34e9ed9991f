//! `grantgate manifests`: what an installation needs before its components start.

use clap::Args;
use grantgate::{
    manifests::{self, NAMESPACE, Options},
    yaml,
};

use super::print;

/// Arguments of `grantgate manifests`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Namespace of the components.
    #[arg(long, short, default_value = NAMESPACE)]
    namespace: String,
}

/// Prints the objects.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    let objects = manifests::render(&Options {
        namespace: arguments.namespace,
    })?;
    print(&yaml::documents(&objects)?)
}

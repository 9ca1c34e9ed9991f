//! `grantgate crds`: the CustomResourceDefinitions.

use std::{fs, path::PathBuf};

use anyhow::Context;
use clap::Args;
use grantgate::{crds, yaml};

use super::print;

/// Arguments of `grantgate crds`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Folder to write to, one file for each kind. Without it everything is printed.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// Prints or writes the definitions.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let definitions = crds::all();
    let Some(folder) = &arguments.output else {
        return print(&yaml::documents(&definitions)?);
    };
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    for definition in &definitions {
        let path = folder.join(crds::file_name(definition));
        fs::write(&path, yaml::document(definition)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

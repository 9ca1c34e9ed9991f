//! The one integration binary: every test that needs a real cluster or a built program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod again;
mod attacks;
mod authorship;
mod bad_input;
mod bed;
mod blind;
mod bound;
mod boundaries;
mod cluster;
mod configuration;
mod cost;
mod crashes;
mod demo_runs;
mod kinds;
mod main_job;
mod mcp;
mod plugin;
mod races;
mod recorded;
mod records;
mod rights;
mod samples;
mod sequences;
mod stack;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// These have targets of their own in Cargo.toml.
const OTHER_TARGETS: [&str; 2] = ["demo", "bench"];

/// The files that `file` declares as modules, directly and further down. `dir` is where its modules lie.
fn declared(file: &Path, dir: &Path, found: &mut BTreeSet<PathBuf>) {
    let text = fs::read_to_string(file).unwrap();
    found.insert(file.to_path_buf());
    for line in text.lines() {
        let line = line
            .trim_start_matches("pub ")
            .trim_start_matches("pub(crate) ");
        let Some(name) = line
            .strip_prefix("mod ")
            .and_then(|rest| rest.strip_suffix(';'))
        else {
            continue;
        };
        let inside = dir.join(name);
        let beside = dir.join(format!("{name}.rs"));
        let file = if beside.is_file() {
            beside
        } else {
            inside.join("mod.rs")
        };
        declared(&file, &inside, found);
    }
}

fn present(dir: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            present(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.insert(path);
        }
    }
}

#[test]
fn every_file_under_tests_is_part_of_the_suite() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let (mut listed, mut there) = (BTreeSet::new(), BTreeSet::new());
    declared(&tests.join("suite.rs"), &tests, &mut listed);
    present(&tests, &mut there);
    let is_elsewhere = |path: &&PathBuf| {
        OTHER_TARGETS
            .iter()
            .any(|dir| path.starts_with(tests.join(dir)))
    };
    let forgotten: Vec<&PathBuf> = there
        .difference(&listed)
        .filter(|path| !is_elsewhere(path))
        .collect();
    assert!(
        forgotten.is_empty(),
        "no `mod` line leads to these files, so their tests never run: {forgotten:?}"
    );
}

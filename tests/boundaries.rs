//! What the source promises about itself.

use std::{
    fs,
    path::{Path, PathBuf},
};

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn under(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    sources(
        &Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("src")
            .join(folder),
        &mut found,
    );
    found
}

/// Lines of code that hold one of the words; comments, and tests beside the code, are left out.
fn holding(files: &[PathBuf], words: &[&str]) -> Vec<String> {
    let mut hits = Vec::new();
    for file in files {
        let of_tests = |part: std::path::Component<'_>| {
            matches!(part.as_os_str().to_str(), Some("tests" | "model"))
        };
        let is_test = file.components().any(of_tests)
            || file.file_stem().is_some_and(|stem| {
                let stem = stem.to_string_lossy();
                stem.ends_with("tests") || matches!(&*stem, "arbitrary" | "recorded")
            });
        if is_test {
            continue;
        }
        let text = fs::read_to_string(file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for (number, line) in code.lines().enumerate() {
            let line = line.split("//").next().unwrap();
            if let Some(word) = words.iter().find(|word| line.contains(**word)) {
                hits.push(format!("{}:{}: {word}", file.display(), number + 1));
            }
        }
    }
    hits
}

#[test]
fn the_core_touches_nothing() {
    let files = under("decide");
    assert!(files.len() > 30, "{}", files.len());
    let words = [
        "async fn",
        ".await",
        "tokio::",
        "kube::Client",
        "kube::Api",
        "Api<",
        "std::fs",
        "std::env",
        "std::net::Tcp",
        "std::process",
        "SystemTime",
        "Instant::",
        "Timestamp::now",
        "crate::cluster",
        "crate::serve",
        "crate::control",
        "crate::cli",
        "thread::",
        "println!",
    ];
    let hits = holding(&files, &words);
    assert!(hits.is_empty(), "{hits:#?}");
}

#[test]
fn the_api_is_data_only() {
    let words = [
        "crate::decide",
        "crate::cluster",
        "crate::serve",
        "crate::control",
        "async fn",
        "std::fs",
    ];
    let hits = holding(&under("api"), &words);
    assert!(hits.is_empty(), "{hits:#?}");
}

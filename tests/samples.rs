//! What `docs/samples/` shows works as it stands.

use std::fs;
use std::path::{Path, PathBuf};

use grantgate::api::ToolServer;
use grantgate::decide::catalog;

use crate::cluster::{Cluster, Options, User};

/// The samples in the order in which `kubectl apply -f docs/samples/` takes them.
fn samples() -> Vec<(PathBuf, String)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/samples");
    let mut paths: Vec<PathBuf> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            (path, text)
        })
        .collect()
}

#[tokio::test]
async fn every_sample_applies_to_the_real_server_in_order_and_without_a_warning() {
    // The names in the samples are fixed, so they get a cluster of their own.
    let cluster = Cluster::start(Options::default()).await;
    cluster.install().await.unwrap();
    let kubectl = cluster.kubectl(&User::admin());
    for (path, _) in samples() {
        let file = path.to_str().unwrap();
        let applied = kubectl.run(["apply", "-f", file]).await;
        assert!(
            applied.ok() && applied.stderr.is_empty(),
            "{file}: {applied:?}"
        );
        // Applied again it changes nothing: what is written is what is stored.
        let again = kubectl.run(["apply", "-f", file]).await.expect_ok();
        assert!(
            again.lines().all(|line| line.ends_with(" unchanged")),
            "{file}: {again}"
        );
    }
}

#[test]
fn every_sample_begins_by_saying_what_it_does() {
    let samples = samples();
    assert!(!samples.is_empty());
    for (path, text) in samples {
        let first = text.lines().next().unwrap();
        assert!(
            first.starts_with("# ") && first.ends_with('.'),
            "{}: {first}",
            path.display()
        );
    }
}

#[test]
fn the_sample_server_names_a_catalogue_that_is_shipped() {
    let servers: Vec<ToolServer> = samples()
        .iter()
        .filter_map(|(_, text)| serde_saphyr::from_str(text).ok())
        .filter(|server: &ToolServer| server.spec.catalog.is_some())
        .collect();
    assert_eq!(servers.len(), 1);
    let named = servers[0].spec.catalog.as_ref().unwrap();
    assert!(catalog::find(&named.name, &named.version).is_some());
}

//! The README's first command does what the README says.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::cluster::cargo::cargo;
use crate::cluster::programs::Programs;

/// Far more than it takes: what never ends must fail.
const LIMIT: Duration = Duration::from_secs(600);

#[tokio::test]
async fn the_demonstration_tells_its_story_without_a_terminal_and_leaves_nothing_running() {
    // Minutes of building are not part of what is limited.
    tokio::task::spawn_blocking(Programs::ensure)
        .await
        .unwrap()
        .unwrap();
    let mut command = tokio::process::Command::from(cargo());
    command.arg("demo").kill_on_drop(true);
    let output = tokio::time::timeout(LIMIT, command.output())
        .await
        .expect("the demonstration does not end")
        .unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{complaint}");
    assert!(!told.contains('\u{1b}'), "colours without a terminal");

    let facts = [
        "kubernetes-mcp-server v0.0.67, an MCP server over stdio",
        "isError: true",
        "isError: false",
        "NOT EXECUTED (this write), waiting for a person: request web/ar-",
        "/spec/replicas",
        "kubectl grantgate approve ar-",
        "deployment.apps/api condition met",
        "deployment.apps/api scaled",
        " Spent",
    ];
    // Long messages are broken at spaces.
    let words = told.split_whitespace().collect::<Vec<_>>().join(" ");
    for fact in facts {
        assert!(words.contains(fact), "no {fact:?} in:\n{told}\n{complaint}");
    }

    let (_, after) = told.split_once("https://").unwrap();
    let address: String = after
        .chars()
        .take_while(|c| c.is_ascii_digit() || matches!(c, '.' | ':'))
        .collect();
    let address: SocketAddr = address.trim_end_matches('.').parse().unwrap();
    assert!(
        TcpStream::connect(address).is_err(),
        "the API server still runs"
    );
}

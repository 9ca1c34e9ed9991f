//! API servers that are found, not given.

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, api::DeleteParams};
use serde_json::{Value, json};

use super::{PATIENCE, apply_all, identity, wait_condition};
use crate::{
    cluster::{Cluster, Options, wait::eventually},
    stack::{Setup, Stack},
};

/// An address of this machine that is not loopback: the API server takes no other into an EndpointSlice.
fn address() -> String {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    // Nothing is sent: this only asks which way it would go.
    socket.connect("192.0.2.1:9").unwrap();
    socket.local_addr().unwrap().ip().to_string()
}

fn slice(number: usize, address: &str, port: u16) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": format!("kubernetes-{number}"), "namespace": "default",
            "labels": {"kubernetes.io/service-name": "kubernetes"},
        },
        "addressType": "IPv4", "endpoints": [{"addresses": [address]}], "ports": [{"name": "https", "port": port}],
    })
}

async fn wait_endpoints(cluster: &Cluster, wanted: &[String]) {
    let api: Api<grantgate::api::AgentIdentity> = Api::all(cluster.admin());
    eventually(
        &format!("proven through {wanted:?}"),
        PATIENCE,
        async || {
            let status = api.get("ops-bot").await.ok()?.status?;
            let shown = status.endpoints.iter().filter(|seen| seen.enforced);
            let shown: Vec<String> = shown.map(|seen| seen.url.clone()).collect();
            (shown == wanted).then_some(())
        },
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn the_gate_is_proven_through_every_api_server_that_is_found() {
    let cluster = Cluster::start(Options {
        servers: 2,
        api_server_args: vec!["--bind-address=0.0.0.0".to_owned()],
        ..Options::default()
    })
    .await;
    let setup = Setup {
        find_api_servers: true,
        ..Setup::default()
    };
    let stack = Stack::start(&cluster, setup).await;
    apply_all(
        &stack,
        &[identity("ops-bot", json!([{"user": "oidc:ops-bot"}]))],
    )
    .await;
    wait_condition(&stack, "ops-bot", "Enforced", ("True", "Proven")).await;
    let own = [cluster.endpoint(0).url.clone()];
    wait_endpoints(&cluster, &own).await;

    let address = address();
    let ports: Vec<u16> = (0..2)
        .map(|server| {
            let url: http::Uri = cluster.endpoint(server).url.parse().unwrap();
            url.port_u16().unwrap()
        })
        .collect();
    let slices = [slice(0, &address, ports[0]), slice(1, &address, ports[1])];
    apply_all(&stack, &slices).await;
    let mut both: Vec<String> = ports
        .iter()
        .map(|port| format!("https://{address}:{port}"))
        .collect();
    both.sort();
    wait_endpoints(&cluster, &both).await;

    // Nobody is at that address: what the kubeconfig names is what is left.
    apply_all(&stack, &[slice(0, &address, 1)]).await;
    let slices: Api<EndpointSlice> = Api::namespaced(cluster.admin(), "default");
    let params = DeleteParams::default();
    slices.delete("kubernetes-1", &params).await.unwrap();
    wait_endpoints(&cluster, &own).await;
}

//! Which version of each built-in resource the server prefers: aggregated discovery, `apidiscovery.k8s.io/v2`.
//!
//! Versions of a group come preferred first; a resource's own preference is the first of them that serves it.

use kube::Client;
use serde::Deserialize;

use crate::decide::resources::{Resources, Versions, is_built_in};

use super::client::{CALL_TIMEOUT, CallError, within};

const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

#[derive(Deserialize)]
struct GroupList {
    #[serde(default)]
    items: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    metadata: GroupName,
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Default, Deserialize)]
struct GroupName {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Version {
    version: String,
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    resource: String,
}

/// Asks the server what it serves itself. A custom resource is known by its definition alone: it could be listed here before that is.
pub async fn discover(client: &Client) -> Result<Resources, CallError> {
    let mut resources = Resources::default();
    for path in ["/api", "/apis"] {
        let request = http::Request::get(path)
            .header(http::header::ACCEPT, ACCEPT)
            .body(Vec::new())
            .map_err(|error| {
                kube::Error::BuildRequest(kube::core::request::Error::BuildRequest(error))
            })?;
        let groups: GroupList = within(CALL_TIMEOUT, client.request(request)).await?;
        for group in groups
            .items
            .iter()
            .filter(|group| is_built_in(&group.metadata.name))
        {
            for version in &group.versions {
                for resource in &version.resources {
                    // The first to come is the preferred one; later ones do not replace it.
                    resources.insert(
                        &group.metadata.name,
                        &resource.resource,
                        Versions::BuiltIn {
                            preferred: version.version.clone(),
                        },
                    );
                }
            }
        }
    }
    Ok(resources)
}

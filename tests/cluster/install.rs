//! Our kinds, accounts, rights and policies in a cluster, from what the program prints.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use grantgate::manifests;
use grantgate::{crds, yaml};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::http::Answer;
use super::wait::{PATIENCE, eventually};
use super::{Cluster, Options, User};

/// A cluster with everything in it that `grantgate crds` and `grantgate manifests` print, and no component running: what holds
/// here holds in the API server alone.
pub async fn installed() -> &'static Cluster {
    static INSTALLED: OnceCell<Cluster> = OnceCell::const_new();
    INSTALLED
        .get_or_init(async || {
            let cluster = Cluster::start(Options {
                controller_manager: true,
                ..Options::default()
            })
            .await;
            cluster.install().await.unwrap();
            cluster
        })
        .await
}

impl Cluster {
    /// Installs into the default namespace, and returns when every API server serves the kinds and runs the policies.
    pub async fn install(&self) -> Result<()> {
        for definition in crds::all() {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            self.apply(path, &serde_json::to_value(&definition)?)
                .await?;
        }
        for object in manifests::render(&manifests::Options::default())? {
            let object = serde_json::to_value(&object)?;
            self.apply(&collection(&object)?, &object).await?;
        }
        for number in 0..self.servers() {
            let what = format!("API server {number} refuses a forged decision");
            let refused = async || {
                let answer = self.forge(number).await.ok()?;
                (answer.status == 403 && answer.text().contains("grantgate-authorship"))
                    .then_some(())
            };
            eventually(&what, PATIENCE, refused).await?;
        }
        Ok(())
    }

    /// A dry run of a decision in another's name.
    async fn forge(&self, number: usize) -> Result<Answer> {
        let forged = json!({
            "apiVersion": "grantgate.dev/v1alpha1",
            "kind": "ApprovalDecision",
            "metadata": {"name": "forged"},
            "spec": {
                "requests": [{"name": "ar-1", "uid": "1", "digest": "v1:sha256:00000000"}],
                "verdict": "Approve",
                "approver": {"username": "somebody-else", "uid": "", "groups": []},
            },
        });
        let path = "/apis/grantgate.dev/v1alpha1/namespaces/default/approvaldecisions?dryRun=All";
        self.try_raw(
            number,
            &User::admin(),
            "POST",
            path,
            "application/json",
            forged.to_string(),
        )
        .await
    }

    /// Server-side apply by the administrator. Fails on a warning too: what we print must be clean.
    async fn apply(&self, collection: &str, object: &Value) -> Result<()> {
        let name = object["metadata"]["name"].as_str().context("no name")?;
        let path = format!("{collection}/{name}?fieldManager=install&force=true");
        let body = yaml::document(object)?;
        let answer = self
            .raw(
                &User::admin(),
                "PATCH",
                &path,
                "application/apply-patch+yaml",
                body,
            )
            .await;
        if answer.status >= 300 || answer.headers.contains_key("warning") {
            bail!(
                "{path}: {} {:?} {}",
                answer.status,
                answer.headers.get("warning"),
                answer.text()
            );
        }
        let established = async || {
            let answer = self
                .raw(
                    &User::admin(),
                    "GET",
                    &format!("{collection}/{name}"),
                    "application/json",
                    "",
                )
                .await;
            let object = answer.json().ok()?;
            let conditions = object["status"]["conditions"].as_array()?;
            let is_there = |condition: &Value| {
                condition["type"] == "Established" && condition["status"] == "True"
            };
            conditions.iter().any(is_there).then_some(())
        };
        if object["kind"] == "CustomResourceDefinition" {
            eventually(
                &format!("{name} is established"),
                Duration::from_secs(60),
                established,
            )
            .await?;
        }
        Ok(())
    }
}

/// Where objects of this kind are served, for the kinds that an installation consists of.
fn collection(object: &Value) -> Result<String> {
    let kind = object["kind"].as_str().context("no kind")?;
    let version = object["apiVersion"].as_str().context("no apiVersion")?;
    let root = if version == "v1" {
        "/api/v1".to_owned()
    } else {
        format!("/apis/{version}")
    };
    let plural = match kind {
        "ValidatingAdmissionPolicy" => "validatingadmissionpolicies".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    Ok(match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
        None => format!("{root}/{plural}"),
    })
}

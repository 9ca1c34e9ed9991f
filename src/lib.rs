//! grantgate puts a person's decision between an AI agent and a change to a Kubernetes cluster.

pub mod api;
pub mod cli;
pub mod cluster;
pub mod control;
pub mod crds;
pub mod decide;
pub mod manifests;
pub mod serve;
pub mod telemetry;
pub mod yaml;

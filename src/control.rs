//! The controller: one file per kind, each with a pure `plan` and what carries it out.
//!
//! Leadership only keeps two replicas from doing the same work. Whatever is written here stays right under two leaders: names are
//! deterministic, and every change is a compare-and-swap on the exact revision that the plan was made from.

pub mod authorship;
pub mod canary;
pub mod certificate;
pub mod configuration;
pub mod context;
pub mod default_policy;
pub mod identities;
pub mod installation;
pub mod servers;
mod wake;

pub use context::Context;

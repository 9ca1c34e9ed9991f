//! The controller: one file per kind, each with a pure `plan` and what carries it out.
//!
//! Leadership only keeps two replicas from doing the same work. Whatever is written here stays right under two leaders: names are
//! deterministic, and every change is a compare-and-swap on the exact revision that the plan was made from.

pub mod access;
pub mod authorship;
pub mod canary;
mod carry;
pub mod certificate;
pub mod configuration;
pub mod context;
pub mod decision;
mod declarations;
pub mod declared;
pub mod default_policy;
mod desk;
pub mod force;
pub mod grant;
pub mod identities;
pub mod installation;
pub mod journal;
pub mod mount;
pub mod records;
pub mod request;
pub mod rights;
pub mod servers;
pub mod settle;
pub mod store;
pub mod votes;
mod wake;

pub use context::Context;

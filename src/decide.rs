//! The pure core: no IO, no clock, no environment; `now` is an argument. Webhook, controller and plugin call the same functions.

pub mod bind;
pub mod canonical;
pub mod catalog;
pub mod comparison;
pub mod condition;
pub mod diff;
pub mod ended;
pub mod json;
pub mod mismatch;
pub mod mount;
pub mod options;
pub mod ownership;
pub mod pointer;
pub mod policy;
pub mod quorum;
pub mod redact;
pub mod resolve;
pub mod select;
pub mod server;
pub mod server_made;
pub mod shape;
mod strictest;
pub mod trace;
pub mod visible;

#[cfg(test)]
mod arbitrary;
#[cfg(test)]
mod attempt_for_tests;
#[cfg(test)]
mod recorded;

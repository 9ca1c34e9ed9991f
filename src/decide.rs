//! The pure core: no IO, no clock, no environment; `now` is an argument. Webhook, controller and plugin call the same functions.

pub mod canonical;
pub mod catalog;
pub mod condition;
pub mod ended;
pub mod json;
pub mod mount;
pub mod pointer;
pub mod policy;
pub mod quorum;
pub mod resolve;
pub mod select;
pub mod server;
mod strictest;
pub mod trace;
pub mod visible;

#[cfg(test)]
mod arbitrary;
#[cfg(test)]
mod attempt_for_tests;

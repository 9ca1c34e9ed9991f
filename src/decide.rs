//! The pure core: no IO, no clock, no environment; `now` is an argument. Webhook, controller and plugin call the same functions.

pub mod assess;
pub mod bind;
pub mod boundary;
pub mod canonical;
pub mod catalog;
pub mod cel_text;
pub mod chain;
pub mod comparison;
pub mod condition;
pub mod conditions;
pub mod denial;
pub mod diff;
pub mod ended;
pub mod gate_entries;
pub mod json;
pub mod live;
pub mod message;
pub mod mismatch;
pub mod mount;
pub mod name;
pub mod observe;
pub mod options;
pub mod ownership;
pub mod pointer;
pub mod policy;
pub mod proposal;
pub mod quorum;
pub mod record;
pub mod redact;
pub mod resolve;
pub mod resources;
pub mod review;
pub mod revision;
pub mod select;
pub mod server;
pub mod server_made;
pub mod settle;
pub mod shape;
pub mod spend;
pub mod standing;
mod strictest;
pub mod subject;
pub mod trace;
pub mod visible;
pub mod witness;
pub mod world;

#[cfg(test)]
mod arbitrary;
#[cfg(test)]
mod attempt_for_tests;
#[cfg(test)]
mod permission_for_tests;
#[cfg(test)]
mod recorded;

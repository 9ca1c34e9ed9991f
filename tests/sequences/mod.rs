//! Sequences that broke earlier drafts of the design, by their numbers in its records: each runs on a real API server.

pub mod definitions;
mod grants;
mod no_change;
mod records;
mod retries;
mod values;

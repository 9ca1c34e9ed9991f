//! The pure core: no IO, no clock, no environment; `now` is an argument. Webhook, controller and plugin call the same functions.

pub mod canonical;
pub mod ended;
pub mod json;
pub mod pointer;
pub mod visible;

#[cfg(test)]
mod arbitrary;

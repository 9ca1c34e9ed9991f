//! The pure core: no IO, no clock, no environment; `now` is an argument. Webhook, controller and plugin call the same functions.

pub mod ended;
pub mod visible;

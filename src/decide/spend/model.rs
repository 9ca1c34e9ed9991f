//! Every interleaving of replicas, API-server retries, crashes, lost replies, late commits and other people, and what a grant then
//! comes to: the real decisions (`assess`, `spend::turn`, `moved`, `witness::event`, `settle`, `observe`, `ended`) over a small API server.
//!
//! The explorer is ours: breadth first, so the first counterexample is a shortest one, and it prints the steps in words. `stateright`
//! would bring a web server and its dependencies, and wants states that it may share between threads; here a state is a few dozen
//! bytes, and grants, proposals and verdicts are interned beside it, since the decisions are pure.
//!
//! - [`target`]: an object, what others write to it, and its revisions.
//! - [`writes`]: what agents send, and the real proposal of it.
//! - [`gate`]: what any replica decides, without the [`rules`] that a test drops; [`controller`]: what else is written into the grant.
//! - [`world`]: one state. [`steps`]: what may happen next, in a [`replica`], in the [`store`] or by others. [`explore`]: all of it.
//! - [`holds`]: with every rule nothing goes wrong. [`without`]: what goes wrong without one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod controller;
mod explore;
mod gate;
mod holds;
mod replica;
mod rules;
mod steps;
mod store;
mod target;
mod without;
mod world;
mod writes;

//! The world outside, on one machine: a private PostgreSQL, a private chain, a simulated bank and converter.
//!
//! **Architecture invariant:** nothing that serves real customers depends on this crate. The binary has it behind its
//! feature `sandbox`; the other crates only for their tests.
//!
//! Reading order: [`embedded`] the programs we start and their databases, [`anvil`] the chain, [`rails`] the providers
//! that misbehave on purpose, [`bank`] a bank behind files.

pub mod anvil;
pub mod bank;
pub mod embedded;
pub mod rails;

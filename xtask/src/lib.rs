//! Reads the structure of the workspace: crates from `cargo metadata`, modules from their `use` lines.
//!
//! **Architecture invariant:** nothing here changes a file.
//!
//! Reading order: [`workspace`] the crates, [`modules`] a crate's modules and their imports, [`graph`] layers and
//! cycles.

pub mod graph;
pub mod modules;
pub mod workspace;

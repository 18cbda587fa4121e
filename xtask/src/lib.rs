//! Tasks of the repository: its structure as a graph, and its release.
//!
//! Reading order: [`workspace`] the crates, from `cargo metadata`, [`modules`] a crate's modules and their imports, from
//! their `use` lines, [`graph`] layers and cycles; [`dist`] builds and packs. No file of the tree is changed.

pub mod dist;
pub mod graph;
pub mod modules;
pub mod workspace;

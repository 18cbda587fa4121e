//! What the listeners of the API and the console share.

pub mod answering;
pub mod connections;

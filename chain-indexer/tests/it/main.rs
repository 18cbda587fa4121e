//! The chain side against a real node and a real database.

mod contracts;
mod flow;
mod lanes;
mod sim;
mod support;

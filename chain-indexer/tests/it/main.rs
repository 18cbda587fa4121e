//! The chain side against a real node and a real database.

mod contracts;
mod flow;
mod sim;
mod support;

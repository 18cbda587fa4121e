//! The chain side against a real node and a real database.

mod bulk;
mod contracts;
mod flow;
mod followed;
mod hardened;
mod lanes;
mod prices;
mod sim;
mod support;

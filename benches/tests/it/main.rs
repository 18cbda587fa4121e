//! A large history: the books of one, and the plans of every statement over it.

mod history;
mod plans;

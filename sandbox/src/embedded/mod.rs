//! Programs that dvp brings along for the sandbox and the tests: a private PostgreSQL of its own directory, and
//! tools for other crates' programs (the search for programs, the supervised child).
//!
//! Invariants:
//! - nothing outlives its users: a program started here stops when our process ends in any way, SIGKILL included
//!   ([`child`]), and its files outside its directory are removed;
//! - nothing is shared: a directory has one owner at a time (a lock that dies with its process), a test has a database
//!   that no other test sees;
//! - nothing is downloaded that the machine has, and downloads are pinned by version and content.

pub mod account;
pub mod black_hole;
pub mod child;
pub mod free_port;
pub mod npm;
pub mod orphan;
pub mod postgres;
pub mod replicas;
pub mod signals;
pub mod test_database;
pub mod tools;

mod cluster;
mod error;
pub(crate) mod files;
mod test_cluster;

pub use error::EmbeddedError;
pub use free_port::FreePort;
pub use postgres::{Options, Postgres, ServerTls};
pub use test_database::TestDatabase;

/// Random bytes as lowercase hex, for names and passwords that cannot be guessed.
///
/// # Panics
/// When the operating system has no randomness to give; nothing that needs a secret can go on then.
pub fn random_hex(bytes: usize) -> String {
    let mut buffer = vec![0_u8; bytes];
    getrandom::fill(&mut buffer).expect("the operating system gives random bytes");
    hex::encode(buffer)
}

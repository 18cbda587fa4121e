//! What listeners share: the server, and the sources of connections and requests.

mod answering;
pub mod server;
pub mod source;

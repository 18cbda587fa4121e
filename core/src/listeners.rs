//! What the listeners of the API and the console share: the server, and the sources of connections and requests.

mod answering;
pub mod server;
pub mod source;

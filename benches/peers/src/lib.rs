//! Nothing here: see `benches/fix_codec.rs`.

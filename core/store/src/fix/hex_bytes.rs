//! Bytes as hex digits in JSON.

use serde::{Deserialize, Deserializer, Serialize as _, Serializer, de};

fn decode<E: de::Error>(digits: &str) -> Result<Vec<u8>, E> {
    hex::decode(digits).map_err(E::custom)
}

pub(super) fn serialize<S: Serializer>(bytes: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
    bytes.as_ref().map(hex::encode).serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u8>>, D::Error> {
    let digits = Option::<String>::deserialize(deserializer)?;
    digits.map(|digits| decode(&digits)).transpose()
}

/// A list of them.
pub(super) mod list {
    use super::{Deserialize as _, Deserializer, Serializer, decode};
    use serde::Serialize as _;

    pub(in super::super) fn serialize<S: Serializer>(
        list: &Option<Vec<Vec<u8>>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let digits = list.as_ref().map(|list| list.iter().map(hex::encode).collect::<Vec<_>>());
        digits.serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Vec<Vec<u8>>>, D::Error> {
        let digits = Option::<Vec<String>>::deserialize(deserializer)?;
        digits.map(|list| list.iter().map(|one| decode(one)).collect()).transpose()
    }
}

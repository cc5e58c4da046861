//! How the values of the treaty look as JSON. Which field looks how is said once, by the rules in `build.rs`.

use crate::v1;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::ser::{SerializeSeq, Serializer};
use serde::{Serialize, ser};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::marker::PhantomData;
use utoipa::ToSchema;

/// A lease id as people see it: 16 hexadecimal digits. Leading zeros may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
#[schema(value_type = String, pattern = "^[0-9a-fA-F]{1,16}$", example = "6b1f0c9d2e5a7348")]
pub struct Id(pub u64);

impl Id {
    /// The id of a lease, unless there is none.
    pub fn of(number: u64) -> Option<Self> {
        (number != 0).then_some(Self(number))
    }

    /// Reads 1 to 16 hexadecimal digits that are not zero.
    pub fn parse(text: &str) -> Option<Self> {
        let is_hex = text.len() <= 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = is_hex.then(|| u64::from_str_radix(text, 16).ok()).flatten()?;
        Self::of(number)
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("a lease id is a text of 1 to 16 hexadecimal digits, not 0"))
    }
}

/// Bytes: as they are if they are text, else `{"hex": "00ff"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Bytes {
    /// Text.
    Text(String),
    /// Anything else.
    Hex(Hex),
}

/// Bytes that are not text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Hex {
    /// Two hexadecimal digits a byte.
    #[schema(pattern = "^([0-9a-fA-F]{2})*$")]
    pub hex: String,
}

impl Bytes {
    /// As they are if they are text, else as hex.
    pub fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.into()),
            Err(_) => Self::Hex(Hex { hex: hex(bytes) }),
        }
    }

    /// The bytes, if the hex is hex.
    pub fn into_vec(self) -> Option<Vec<u8>> {
        match self {
            Self::Text(text) => Some(text.into_bytes()),
            Self::Hex(Hex { hex }) => unhex(&hex),
        }
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrHex)
    }
}

struct TextOrHex;

impl<'de> Visitor<'de> for TextOrHex {
    type Value = Bytes;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a text, or {\"hex\": \"00ff\"}")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Bytes, E> {
        Ok(Bytes::Text(text.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Bytes, A::Error> {
        Hex::deserialize(MapAccessDeserializer::new(fields)).map(Bytes::Hex)
    }
}

/// Two hexadecimal digits a byte.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a text takes every byte");
        text
    })
}

/// The bytes of a hexadecimal text.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect()
}

pub(crate) mod id {
    use super::{Deserialize, Deserializer, Id, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        Id(*number).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        Id::deserialize(deserializer).map(|id| id.0)
    }
}

pub(crate) mod ids {
    use super::{Deserialize, Deserializer, Id, SerializeSeq, Serializer};

    pub(crate) fn serialize<S: Serializer>(numbers: &[u64], serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(numbers.len()))?;
        numbers.iter().try_for_each(|number| list.serialize_element(&Id(*number)))?;
        list.end()
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
        Ok(Vec::<Id>::deserialize(deserializer)?.into_iter().map(|id| id.0).collect())
    }
}

pub(crate) mod bytes {
    use super::{Bytes, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        Bytes::of(bytes).serialize(serializer)
    }
}

pub(crate) mod hex_text {
    use super::{Serializer, hex};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex(bytes))
    }
}

pub(crate) mod cursor {
    use super::{Serialize, Serializer, v1};
    use crate::write_cursor;

    pub(crate) fn serialize<S: Serializer>(at: &Option<v1::Cursor>, serializer: S) -> Result<S::Ok, S::Error> {
        at.as_ref().map(write_cursor).serialize(serializer)
    }
}

/// Labels, none of them twice.
pub fn labels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    deserializer.deserialize_map(OnceEach)
}

/// Something that is an object and nothing else: serde alone would take a list of its fields, too.
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectOf(PhantomData))
    }
}

struct ObjectOf<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectOf<T> {
    type Value = Object<T>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields)).map(Object)
    }
}

/// A list of objects.
pub fn objects<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Ok(Vec::<Object<T>>::deserialize(deserializer)?.into_iter().map(|Object(each)| each).collect())
}

/// An object, or `null`.
pub fn maybe_object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Ok(Option::<Object<T>>::deserialize(deserializer)?.map(|Object(it)| it))
}

struct OnceEach;

impl<'de> Visitor<'de> for OnceEach {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("labels: texts by their keys")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut given: A) -> Result<Self::Value, A::Error> {
        let mut labels = BTreeMap::new();
        while let Some((key, value)) = given.next_entry()? {
            match labels.entry(key) {
                Entry::Vacant(place) => place.insert(value),
                Entry::Occupied(there) => return Err(A::Error::custom(format!("duplicate label `{}`", there.key()))),
            };
        }
        Ok(labels)
    }
}

/// An enum of the treaty as its words in lower case; what is unspecified is left out.
macro_rules! words {
    ($(#[$doc:meta])* $word:ident, $module:ident, $of:ident { $($(#[$each:meta])* $name:ident),* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
        #[serde(rename_all = "lowercase")]
        pub enum $word {
            $($(#[$each])* $name,)*
        }

        impl<'de> Deserialize<'de> for $word {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                const WORDS: &[&str] = &[$(stringify!($name),)*];
                let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
                $(if *text == stringify!($name).to_lowercase() {
                    return Ok(Self::$name);
                })*
                let words = WORDS.join(", ").to_lowercase();
                Err(D::Error::custom(format!("unknown word `{text}`, expected one of {words}")))
            }
        }

        impl From<$word> for v1::$of {
            fn from(word: $word) -> Self {
                match word { $($word::$name => Self::$name,)* }
            }
        }

        pub(crate) mod $module {
            use super::{Deserialize, Deserializer, Serialize, Serializer, $word, ser, v1};

            pub(crate) fn serialize<S: Serializer>(number: &i32, serializer: S) -> Result<S::Ok, S::Error> {
                match v1::$of::try_from(*number) {
                    $(Ok(v1::$of::$name) => $word::$name.serialize(serializer),)*
                    _ => Err(ser::Error::custom("the server writes no word that it does not know")),
                }
            }

            #[allow(dead_code, reason = "not every word is read in a message")]
            pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
                $word::deserialize(deserializer).map(|word| v1::$of::from(word).into())
            }
        }
    };
}

words! {
    /// How a claim shares its resource with others.
    ModeWord, mode, Mode {
        /// It is alone.
        Exclusive,
        /// It sits beside other shared claims, and beside no other.
        Shared,
        /// It takes so many of the resource's units.
        Units
    }
}

words! {
    /// What a renewal is. The class of a lease may refuse it.
    RenewKindWord, renewkind, RenewKind {
        /// A heartbeat.
        Auto,
        /// Something was done with the lease.
        Touch,
        /// Somebody decided to keep it.
        Explicit
    }
}

words! {
    /// What renews the leases of a class.
    RenewPolicyWord, renewpolicy, RenewPolicy {
        /// Every renewal.
        Auto,
        /// Any command that names the lease, and a renewal that is a touch or explicit.
        Activity,
        /// A renewal that is explicit.
        Explicit,
        /// Nothing.
        Never
    }
}

words! {
    /// How well an instance is, apart from whether it lives.
    HealthWord, health, Health {
        /// All is well.
        Passing,
        /// It works, and others are to be preferred.
        Degraded,
        /// It does not work.
        Critical,
        /// Nobody has told yet.
        Unknown
    }
}

words! {
    /// Who tells what a check found.
    CheckKindWord, checkkind, CheckKind {
        /// The instance, or whoever looks after it.
        Pushed,
        /// The leader, which looks whether a connection is accepted.
        Tcp,
        /// The leader, which looks how a GET is answered.
        Http,
        /// The leader, which asks the standard health service of gRPC.
        Grpc
    }
}

words! {
    /// What becomes of an instance when it is critical.
    OnCriticalWord, oncritical, OnCritical {
        /// It is not routed to.
        Mark,
        /// It is not routed to, and its lease ends if it stays critical.
        Revoke,
        /// Nothing: its checks are shown and do not count.
        Observe
    }
}

impl From<tenure_core::Health> for HealthWord {
    fn from(health: tenure_core::Health) -> Self {
        match health {
            tenure_core::Health::Passing => Self::Passing,
            tenure_core::Health::Degraded => Self::Degraded,
            tenure_core::Health::Unknown => Self::Unknown,
            tenure_core::Health::Critical => Self::Critical,
        }
    }
}

pub(crate) fn is_zero(number: &u64) -> bool {
    *number == 0
}

pub(crate) fn is_nothing(number: &i32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_ids_are_hexadecimal_text() {
        assert_eq!(Id::parse("2a"), Some(Id(42)));
        assert_eq!(Id(42).to_string(), "000000000000002a");
        for bad in ["", "0", "0000", "+1", "g", "11112222333344445", " 1"] {
            assert_eq!(Id::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn bytes_are_text_or_hex() {
        for bytes in [&b"plain"[..], "ä".as_bytes(), &[0xff, 0x00], &[]] {
            assert_eq!(Bytes::of(bytes).into_vec().as_deref(), Some(bytes));
        }
        assert_eq!(Bytes::of(&[0xff, 0x00]), Bytes::Hex(Hex { hex: "ff00".into() }));
        for bad in ["0", "0g", "ä", "+1"] {
            assert_eq!(unhex(bad), None, "{bad:?}");
        }
    }
}

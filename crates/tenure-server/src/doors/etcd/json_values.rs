//! JSON values out of a body that comes bit by bit. Each byte is looked at once, however the body is cut.

use crate::limits::ETCD_MESSAGE_BYTES_MAX;
use bytes::{Buf, BytesMut};
use serde_json::Value;
use tenure_api::etcd::Fault;
use tonic::Code;

/// What has come of a body, and how far it was looked at.
#[derive(Debug, Default)]
pub(super) struct JsonValues {
    bytes: BytesMut,
    /// How much of it was looked at for the end of the first value.
    scanned: usize,
    state: State,
    /// How long it was when it was parsed in vain. What is wrong with a value is found out before its end, but a parse begins at
    /// the beginning: the next one waits until there is twice as much.
    tried: usize,
}

/// Where in a value the scan is.
#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    /// Before it.
    #[default]
    Before,
    /// In objects or lists, so many deep.
    Within { depth: usize, text: Text },
    /// In something that is neither: it ends before whatever cannot be a part of it.
    Bare(Text),
    /// Behind it.
    Behind,
}

/// Whether the scan is in a text, in which brackets are only letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Text {
    #[default]
    No,
    Yes,
    /// Behind a backslash.
    Escaped,
}

impl Text {
    const fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::Yes, b'\\') => Self::Escaped,
            (Self::Yes, b'"') => Self::No,
            (Self::No, b'"') | (Self::Escaped, _) => Self::Yes,
            (text, _) => text,
        }
    }
}

impl State {
    /// After one more byte, which is not behind the value.
    fn after(self, byte: u8) -> Self {
        match self {
            Self::Before if byte.is_ascii_whitespace() => Self::Before,
            Self::Before if matches!(byte, b'{' | b'[') => Self::Within { depth: 1, text: Text::No },
            Self::Before => Self::Bare(Text::No.after(byte)),
            Self::Within { depth, text: Text::No } if matches!(byte, b'{' | b'[') => {
                Self::Within { depth: depth + 1, text: Text::No }
            }
            Self::Within { depth: 1, text: Text::No } if matches!(byte, b'}' | b']') => Self::Behind,
            Self::Within { depth, text: Text::No } if matches!(byte, b'}' | b']') => {
                Self::Within { depth: depth - 1, text: Text::No }
            }
            Self::Within { depth, text } => Self::Within { depth, text: text.after(byte) },
            Self::Bare(Text::No) if byte.is_ascii_whitespace() || b"{}[]\",:".contains(&byte) => Self::Behind,
            Self::Bare(Text::Yes) if byte == b'"' => Self::Behind,
            Self::Bare(text) => Self::Bare(text.after(byte)),
            Self::Behind => Self::Behind,
        }
    }
}

impl JsonValues {
    /// Takes in the next part of the body.
    pub(super) fn push(&mut self, part: &[u8]) -> Result<(), Fault> {
        if self.bytes.len() + part.len() > ETCD_MESSAGE_BYTES_MAX {
            return Err(Fault::too_large());
        }
        self.bytes.extend_from_slice(part);
        Ok(())
    }

    /// The next value; none if it is not all there yet.
    pub(super) fn next(&mut self) -> Result<Option<Value>, Fault> {
        while self.state != State::Behind && self.scanned < self.bytes.len() {
            self.state = std::mem::take(&mut self.state).after(self.bytes[self.scanned]);
            self.scanned += 1;
        }
        if self.state == State::Before || self.state != State::Behind && self.bytes.len() < 2 * self.tried {
            return Ok(None);
        }
        let mut values = serde_json::Deserializer::from_slice(&self.bytes).into_iter::<Value>();
        match values.next() {
            // A number may go on.
            Some(Ok(value)) if self.state == State::Behind || !value.is_number() => {
                let taken = values.byte_offset();
                self.bytes.advance(taken);
                (self.scanned, self.state, self.tried) = (0, State::Before, 0);
                Ok(Some(value))
            }
            Some(Err(error)) if !error.is_eof() => Err(Fault::ours(Code::InvalidArgument, error.to_string())),
            Some(Ok(_) | Err(_)) | None => {
                self.tried = self.bytes.len();
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What a body has, when it comes in parts of so many bytes.
    fn read(body: &[u8], size: usize) -> (Vec<Value>, Option<String>) {
        let (mut values, mut read) = (JsonValues::default(), Vec::new());
        for part in body.chunks(size) {
            values.push(part).unwrap();
            loop {
                match values.next() {
                    Ok(Some(value)) => read.push(value),
                    Ok(None) => break,
                    Err(fault) => return (read, Some(fault.text)),
                }
            }
        }
        (read, None)
    }

    #[test]
    fn values_are_the_same_however_a_body_is_cut() {
        let body = br#" {"a":[1,{"b":"}]\"\\"}]} {}[] "te\"xt"{"c":{}} 12 true{"d":null}"#;
        let all =
            [json!({"a": [1, {"b": "}]\"\\"}]}), json!({}), json!([]), json!("te\"xt"), json!({"c": {}}), json!(12)];
        let all: Vec<_> = all.into_iter().chain([json!(true), json!({"d": null})]).collect();
        for size in 1..=body.len() {
            assert_eq!(read(body, size), (all.clone(), None), "parts of {size}");
        }
    }

    #[test]
    fn what_is_no_json_is_refused_before_its_end() {
        for size in [1, 3, 100] {
            for body in [&b"}"[..], b"{\"a\" 1 ", b"{\"a\":1,}", b"nonsense ", b"[1 2]", b"{]"] {
                let (values, error) = read(&[body, &[b' '; 32]].concat(), size);
                assert!(values.is_empty() && error.is_some(), "{body:?} in parts of {size}");
            }
            assert_eq!(read(b"{\"a\":", size), (vec![], None), "it may still become one");
        }
    }

    /// A value that comes byte by byte costs as much as one that comes at once, times a constant: it is parsed a few times, not
    /// once for each byte.
    #[test]
    fn a_value_byte_by_byte_is_parsed_a_few_times() {
        let body = serde_json::to_vec(&json!({ "a": "x".repeat(1 << 16), "b": vec![0; 1000] })).unwrap();
        let (mut values, mut tries, mut tried) = (JsonValues::default(), 0, 0);
        for (at, part) in body.chunks(1).enumerate() {
            values.push(part).unwrap();
            let value = values.next().unwrap();
            assert_eq!(value.is_some(), at + 1 == body.len());
            tries += usize::from(values.tried != tried);
            tried = values.tried;
        }
        assert!(tries <= 20, "it was parsed {tries} times");
    }
}

//! Who may ask: API keys, each by its hash and by what it may do. No secret is kept, printed or logged.

use crate::limits::{API_KEY_NAME_BYTES_MAX, API_KEYS_MAX};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use ring::rand::{SecureRandom, SystemRandom};
use std::future::Future;
use std::sync::Arc;
use subtle::{ConditionallySelectable, ConstantTimeEq};
use tenure_api::Code;
use tenure_api::v1::Failure;
use tokio::sync::watch;

/// What every secret begins with, so that people and scanners know one when they see it.
const MARK: &str = "tnr_";

/// Bytes of chance in a secret: nobody guesses so many, so a plain hash keeps it.
const SECRET_BYTES: usize = 32;

type Hash = [u8; SHA256_OUTPUT_LEN];

/// What an API key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Look, and nothing else.
    Read,
    /// Everything.
    Full,
}

impl Role {
    const fn text(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Full => "full",
        }
    }
}

/// What a call needs of whoever asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing: it says only whether the server is there.
    Nothing,
    /// A key that may read.
    Read,
    /// A key that may do everything.
    Full,
}

/// A key as the server knows it.
#[derive(Clone, Debug)]
struct ApiKey {
    name: String,
    role: Role,
    hash: Hash,
}

/// The keys that are let in.
#[derive(Clone, Debug, Default)]
pub struct ApiKeys {
    keys: Vec<ApiKey>,
}

/// A line of a file of keys that cannot be one. It does not repeat the line, which may have a secret in it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct BadLine {
    line: usize,
    why: &'static str,
}

impl ApiKeys {
    /// Reads lines of the form `NAME read|full sha256:HEX`. Empty lines and what follows a # are left out.
    pub fn parse(text: &str) -> Result<Self, BadLine> {
        let mut keys: Vec<ApiKey> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let bad = |why| BadLine { line: at + 1, why };
            let line = line.split('#').next().unwrap_or_default();
            if line.trim().is_empty() {
                continue;
            }
            let key = ApiKey::parse(line).map_err(bad)?;
            if keys.iter().any(|other| other.name == key.name || other.hash == key.hash) {
                return Err(bad("a key with this name or this hash is there already"));
            }
            keys.push(key);
            if keys.len() > API_KEYS_MAX {
                return Err(bad("there are too many keys"));
            }
        }
        Ok(Self { keys })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.keys.len()
    }

    /// The key of a secret. All keys are looked at, and each of them whole, so that time tells nothing.
    fn find(&self, secret: &[u8]) -> Option<&ApiKey> {
        let hash = hash(secret);
        let none = u32::MAX;
        let mut found = none;
        for (at, key) in (0..).zip(&self.keys) {
            found.conditional_assign(&at, key.hash.ct_eq(&hash));
        }
        self.keys.get(found as usize)
    }
}

impl ApiKey {
    fn parse(line: &str) -> Result<Self, &'static str> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, role, hash] = words[..] else { return Err("it is not NAME ROLE sha256:HEX") };
        if !is_name(name) {
            return Err("its name has more than 64 bytes, or others than letters, digits and -._");
        }
        let role = match role {
            "read" => Role::Read,
            "full" => Role::Full,
            _ => return Err("its role is neither read nor full"),
        };
        let hash =
            hash.strip_prefix("sha256:").and_then(read_hex).ok_or("its hash is not sha256: and 64 hex digits")?;
        Ok(Self { name: name.into(), role, hash })
    }
}

fn is_name(name: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    (1..=API_KEY_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_good)
}

fn read_hex(text: &str) -> Option<Hash> {
    let digits = text.as_bytes();
    if digits.len() != 2 * SHA256_OUTPUT_LEN || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut hash = Hash::default();
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(hash)
}

fn hash(secret: &[u8]) -> Hash {
    digest(&SHA256, secret).as_ref().try_into().expect("SHA-256 has as many bytes as it says")
}

/// A new key: the secret, for whoever asks, and the line for the server's file. None if a key cannot be called so, or if
/// there is no chance to be had.
pub fn draw_api_key(name: &str, role: Role) -> Option<(String, String)> {
    let mut bytes = [0; SECRET_BYTES];
    SystemRandom::new().fill(&mut bytes).ok().filter(|()| is_name(name))?;
    let secret = format!("{MARK}{}", URL_SAFE_NO_PAD.encode(bytes));
    let hex: String = hash(secret.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    Some((secret, format!("{name} {} sha256:{hex}", role.text())))
}

/// Whether and how who asks is looked at. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Access {
    keys: Option<Arc<watch::Sender<ApiKeys>>>,
}

impl Access {
    /// Lets in these keys and nobody else. Without it, everybody is let in.
    pub fn by(keys: ApiKeys) -> Self {
        Self { keys: Some(Arc::new(watch::Sender::new(keys))) }
    }

    /// From now on lets in these keys instead. Streams of keys that are gone, or that may do less, end.
    pub fn replace(&self, keys: ApiKeys) {
        if let Some(known) = &self.keys {
            known.send_replace(keys);
        }
    }

    /// Resolves with the reason when what is shown no longer allows what was asked. None: it needs no key.
    pub(crate) fn revoked(
        &self,
        shown: Option<&[u8]>,
        need: Need,
    ) -> Option<impl Future<Output = Failure> + Send + 'static> {
        let mut changed = self.keys.as_ref().filter(|_| need != Need::Nothing)?.subscribe();
        let (access, shown) = (self.clone(), shown.map(<[u8]>::to_vec));
        Some(async move {
            loop {
                if let Some(failure) = access.refusal(shown.as_deref(), need) {
                    return failure;
                }
                // This access keeps the other end, so there is always another change to wait for.
                if changed.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        })
    }

    /// Whether who asks is looked at at all.
    pub(crate) const fn is_asked_for(&self) -> bool {
        self.keys.is_some()
    }

    /// The name of the key with this secret.
    pub(crate) fn name_of(&self, secret: &[u8]) -> Option<String> {
        let known = self.keys.as_ref()?.borrow();
        known.find(secret).map(|key| key.name.clone())
    }

    /// Why whoever shows this may not do that.
    pub(crate) fn refusal(&self, shown: Option<&[u8]>, need: Need) -> Option<Failure> {
        let known = self.keys.as_ref().filter(|_| need != Need::Nothing)?;
        let refuse = |code: Code, why: &str| {
            let message = format!("{why}; nothing was changed");
            Some(Failure { code: code.text().into(), message, ..Failure::default() })
        };
        let Some(secret) = shown else {
            return refuse(Code::Unauthenticated, "an API key is needed, and none was shown");
        };
        let known = known.borrow();
        match known.find(secret) {
            None => refuse(Code::Unauthenticated, "the API key is not known here"),
            Some(ApiKey { name, role: Role::Read, .. }) if need == Need::Full => {
                refuse(Code::Denied, &format!("the API key {name} may only read"))
            }
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> (ApiKeys, String, String) {
        let (ann, ann_line) = draw_api_key("ann", Role::Full).unwrap();
        let (bob, bob_line) = draw_api_key("bob", Role::Read).unwrap();
        let text = format!("# who may come in\n\n{ann_line} # since May\n{bob_line}\n");
        (ApiKeys::parse(&text).unwrap(), ann, bob)
    }

    #[test]
    fn each_key_is_known_by_its_secret_alone() {
        let (keys, ann, bob) = two();
        assert_eq!(keys.find(ann.as_bytes()).unwrap().name, "ann");
        assert_eq!(keys.find(bob.as_bytes()).unwrap().name, "bob");
        for stranger in ["", "tnr_", &ann[..46], &format!("{ann}="), &ann.to_uppercase()] {
            assert!(keys.find(stranger.as_bytes()).is_none(), "{stranger}");
        }
        assert!(ApiKeys::default().find(b"").is_none());
    }

    #[test]
    fn a_secret_has_256_bits_and_is_not_in_its_line() {
        let (secret, line) = draw_api_key("ann", Role::Read).unwrap();
        assert_eq!((secret.len(), URL_SAFE_NO_PAD.decode(&secret[4..]).unwrap().len()), (47, 32));
        assert!(secret.starts_with("tnr_") && line.starts_with("ann read sha256:") && !line.contains(&secret[4..]));
        assert_ne!(draw_api_key("ann", Role::Read).unwrap().0, secret);
        assert!(draw_api_key("ann smith", Role::Read).is_none());
    }

    #[test]
    fn a_line_that_is_no_key_is_refused_without_being_repeated() {
        let hex = "0".repeat(64);
        let good = format!("ann full sha256:{hex}");
        assert_eq!(ApiKeys::parse(&good).unwrap().count(), 1);
        let other = format!("{}1", &hex[1..]);
        for bad in [
            "tnr_secret".into(),
            format!("ann sha256:{hex}"),
            format!("ann write sha256:{hex}"),
            format!("ann full {hex}"),
            format!("ann full sha256:{}", &hex[1..]),
            format!("ann full sha256:{}x", &hex[1..]),
            format!("ann full sha256:{hex} more"),
            format!("ä full sha256:{hex}"),
            format!("{good}\nann full sha256:{other}"),
            format!("{good}\nbob full sha256:{hex}"),
        ] {
            let refused = ApiKeys::parse(&bad).unwrap_err().to_string();
            assert!(refused.starts_with("line ") && !refused.contains("secret"), "{bad}: {refused}");
        }
    }

    #[test]
    fn who_may_do_what() {
        let (keys, ann, bob) = two();
        let access = Access::by(keys);
        let code = |shown: Option<&str>, need| {
            access.refusal(shown.map(str::as_bytes), need).map_or(String::new(), |failure| failure.code)
        };
        for (shown, need, answer) in [
            (None, Need::Nothing, ""),
            (None, Need::Read, "unauthenticated"),
            (Some("tnr_stranger"), Need::Read, "unauthenticated"),
            (Some("tnr_stranger"), Need::Nothing, ""),
            (Some(ann.as_str()), Need::Full, ""),
            (Some(ann.as_str()), Need::Read, ""),
            (Some(bob.as_str()), Need::Read, ""),
            (Some(bob.as_str()), Need::Full, "denied"),
        ] {
            assert_eq!(code(shown, need), answer, "{need:?}");
        }
        access.replace(ApiKeys::default());
        assert_eq!(code(Some(&ann), Need::Read), "unauthenticated", "what was taken out is not let in");
        assert!(Access::default().refusal(None, Need::Full).is_none(), "without keys nobody is asked");
    }
}

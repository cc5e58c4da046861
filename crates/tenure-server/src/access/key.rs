//! API keys as the key file has them: each by its hash, its role, its prefixes and its limits. No secret is kept.

use super::usage::Usage;
use crate::limits::{API_KEY_PREFIX_BYTES_MAX, API_KEY_PREFIXES_MAX, API_KEYS_MAX, KEY_LIMIT_MAX};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use ring::rand::{SecureRandom, SystemRandom};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use subtle::{ConditionallySelectable, ConstantTimeEq};
use tenure_core::{Actor, ApiKeyName, Reach};

/// What every secret begins with, so that people and scanners know one when they see it.
const MARK: &str = "tnr_";

/// Bytes of chance in a secret: too many to guess, so a plain hash protects it.
const SECRET_BYTES: usize = 32;

type Hash = [u8; SHA256_OUTPUT_LEN];

/// What an API key may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Look, and nothing else.
    Read,
    /// Look, and change what is its own: leases that were begun with it, and what hangs on them.
    Hold,
    /// Everything.
    #[default]
    Full,
}

impl Role {
    const fn text(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Hold => "hold",
            Self::Full => "full",
        }
    }
}

/// What the line of an API key says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRights {
    /// What it may do.
    pub role: Role,
    /// With which its names have to begin; without any, all names.
    pub prefixes: Vec<String>,
    /// How many leases may live at once that were begun with it.
    pub leases: Option<u32>,
    /// How many requests it may make in a second, but for those that keep or give back.
    pub requests: Option<u32>,
    /// How many watches it may have open at once on one node.
    pub watchers: Option<u32>,
}

impl From<Role> for KeyRights {
    fn from(role: Role) -> Self {
        Self { role, ..Self::default() }
    }
}

impl KeyRights {
    /// Reads one word of a line.
    fn read(&mut self, word: &str) -> Result<(), &'static str> {
        let (what, value) = word.split_once('=').ok_or("it is not NAME ROLE sha256:HEX [OPTION=VALUE]...")?;
        match what {
            "prefix" if self.prefixes.len() >= API_KEY_PREFIXES_MAX => Err("it has more than 16 prefixes"),
            "prefix" if !is_prefix(value) => Err("a prefix is empty, longer than 256 bytes, or not printable"),
            "prefix" => {
                self.prefixes.push(value.into());
                Ok(())
            }
            "leases" => once(&mut self.leases, value),
            "requests" => once(&mut self.requests, value.strip_suffix("/s").ok_or("requests= is a number and /s")?),
            "watchers" => once(&mut self.watchers, value),
            _ => Err("its options are prefix=, leases=, requests= and watchers="),
        }
    }

    /// Whether these could stand in a line.
    pub fn check(&self) -> Result<(), &'static str> {
        let words = self.to_string();
        let mut read = Self::from(self.role);
        words.split_whitespace().try_for_each(|word| read.read(word))?;
        if read == *self { Ok(()) } else { Err("a prefix has a space or a #") }
    }
}

fn once(limit: &mut Option<u32>, value: &str) -> Result<(), &'static str> {
    let number = value.parse().ok().filter(|number| (1..=KEY_LIMIT_MAX).contains(number));
    let number = number.ok_or("a limit is no number from 1 to 1,000,000,000")?;
    match limit.replace(number) {
        None => Ok(()),
        Some(_) => Err("a limit is there twice"),
    }
}

fn is_prefix(text: &str) -> bool {
    (1..=API_KEY_PREFIX_BYTES_MAX).contains(&text.len())
        && text.chars().all(|c| !c.is_control() && !c.is_whitespace() && c != '#')
}

/// The options as they stand in a line, each after a space.
impl fmt::Display for KeyRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.prefixes.iter().try_for_each(|prefix| write!(f, " prefix={prefix}"))?;
        self.leases.iter().try_for_each(|leases| write!(f, " leases={leases}"))?;
        self.requests.iter().try_for_each(|requests| write!(f, " requests={requests}/s"))?;
        self.watchers.iter().try_for_each(|watchers| write!(f, " watchers={watchers}"))
    }
}

/// A key as the server knows it.
#[derive(Debug)]
pub(crate) struct ApiKey {
    pub(crate) name: ApiKeyName,
    pub(crate) rights: KeyRights,
    pub(super) usage: Arc<Usage>,
    hash: Hash,
    /// It is gone from the file, or its rights have changed: what was let in with it changes nothing any more.
    retired: AtomicBool,
}

/// The keys that are let in.
#[derive(Clone, Debug, Default)]
pub struct ApiKeys {
    keys: Vec<Arc<ApiKey>>,
}

/// A line of a file of keys that cannot be one. It does not repeat the line, which may have a secret in it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct BadLine {
    line: usize,
    why: &'static str,
}

impl ApiKeys {
    /// Reads lines of the form `NAME read|hold|full sha256:HEX [prefix=TEXT]... [leases=N] [requests=N/s] [watchers=N]`. Empty
    /// lines and what follows a # are left out.
    pub fn parse(text: &str) -> Result<Self, BadLine> {
        let mut keys: Vec<Arc<ApiKey>> = Vec::new();
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
            keys.push(Arc::new(key));
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
    pub(super) fn find(&self, secret: &[u8]) -> Option<&Arc<ApiKey>> {
        let hash = hash(secret);
        let none = u32::MAX;
        let mut found = none;
        for (at, key) in (0..).zip(&self.keys) {
            found.conditional_assign(&at, key.hash.ct_eq(&hash));
        }
        self.keys.get(found as usize)
    }

    /// The same keys, of which those that were there before go on with what they use of their limits. Those before that are
    /// gone, or have other rights now, are retired.
    pub(super) fn going_on(mut self, before: &Self) -> Self {
        for key in &mut self.keys {
            match before.again(key) {
                Some(same) if same.rights == key.rights => *key = same.clone(),
                Some(changed) => {
                    let (name, rights) = (key.name.clone(), key.rights.clone());
                    let (usage, retired) = (changed.usage.clone(), AtomicBool::default());
                    *key = Arc::new(ApiKey { name, rights, usage, hash: key.hash, retired });
                }
                None => {}
            }
        }
        let goes_on = |old: &Arc<ApiKey>| self.again(old).is_some_and(|now| Arc::ptr_eq(now, old));
        before.keys.iter().filter(|old| !goes_on(old)).for_each(|old| old.retired.store(true, Ordering::Release));
        self
    }

    /// What has become of a key: the line with its name and hash.
    pub(super) fn again(&self, key: &ApiKey) -> Option<&Arc<ApiKey>> {
        self.keys.iter().find(|other| other.hash == key.hash && other.name == key.name)
    }
}

impl ApiKey {
    fn parse(line: &str) -> Result<Self, &'static str> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, role, hash, options @ ..] = &words[..] else { return Err("it is not NAME ROLE sha256:HEX") };
        let name = ApiKeyName::parse(name)
            .map_err(|_| "its name has more than 64 bytes, or others than letters, digits and -._")?;
        let role = match *role {
            "read" => Role::Read,
            "hold" => Role::Hold,
            "full" => Role::Full,
            _ => return Err("its role is neither read, nor hold, nor full"),
        };
        let hash =
            hash.strip_prefix("sha256:").and_then(read_hex).ok_or("its hash is not sha256: and 64 hex digits")?;
        let mut rights = KeyRights::from(role);
        options.iter().try_for_each(|option| rights.read(option))?;
        Ok(Self { name, rights, usage: Arc::default(), hash, retired: AtomicBool::default() })
    }

    /// Whether it was taken out of the file, or has other rights now.
    pub(super) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// With what its commands are logged. A key that may only read sends none, and would end nothing of others.
    pub(crate) fn actor(&self) -> Actor {
        let reach = match self.rights.role {
            Role::Read | Role::Hold => Reach::Own,
            Role::Full if self.rights.prefixes.is_empty() => Reach::All,
            Role::Full => Reach::Named,
        };
        Actor { key: self.name.clone(), reach, leases_max: self.rights.leases }
    }
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

/// A new key: the secret, for its client, and the line for the server's file. None if a key cannot be called so or have such
/// rights, or if there is no chance to be had.
pub fn draw_api_key(name: &str, rights: impl Into<KeyRights>) -> Option<(String, String)> {
    let (mut bytes, rights) = ([0; SECRET_BYTES], rights.into());
    let is_good = ApiKeyName::parse(name).is_ok() && rights.check().is_ok();
    SystemRandom::new().fill(&mut bytes).ok().filter(|()| is_good)?;
    let secret = format!("{MARK}{}", URL_SAFE_NO_PAD.encode(bytes));
    let hex: String = hash(secret.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    Some((secret, format!("{name} {} sha256:{hex}{rights}", rights.role.text())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_known_by_its_secret_alone() {
        let (ann, ann_line) = draw_api_key("ann", Role::Full).unwrap();
        let (bob, bob_line) = draw_api_key("bob", Role::Read).unwrap();
        let keys = ApiKeys::parse(&format!("# who may come in\n\n{ann_line} # since May\n{bob_line}\n")).unwrap();
        assert_eq!(keys.find(ann.as_bytes()).unwrap().name.as_str(), "ann");
        assert_eq!(keys.find(bob.as_bytes()).unwrap().name.as_str(), "bob");
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
    fn a_line_says_what_was_drawn() {
        let rights = KeyRights {
            role: Role::Hold,
            prefixes: vec!["jobs/".into(), "gpu/a=b".into()],
            leases: Some(100),
            requests: Some(50),
            watchers: Some(3),
        };
        let (secret, line) = draw_api_key("batch", rights.clone()).unwrap();
        assert!(line.ends_with(" prefix=jobs/ prefix=gpu/a=b leases=100 requests=50/s watchers=3"), "{line}");
        assert_eq!(ApiKeys::parse(&line).unwrap().find(secret.as_bytes()).unwrap().rights, rights);
        for bad in ["", "a b", "a#b", "a\tb", &"x".repeat(API_KEY_PREFIX_BYTES_MAX + 1)] {
            let rights = KeyRights { prefixes: vec![bad.into()], ..rights.clone() };
            assert!(draw_api_key("batch", rights).is_none(), "{bad:?}");
        }
        let many = vec!["a".to_owned(); API_KEY_PREFIXES_MAX + 1];
        assert!(draw_api_key("batch", KeyRights { prefixes: many, ..rights }).is_none());
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
            format!("{good} more"),
            format!("{good} prefix="),
            format!("{good} prefixes=a"),
            format!("{good} leases=0"),
            format!("{good} leases=-1"),
            format!("{good} leases=1 leases=2"),
            format!("{good} requests=5"),
            format!("{good} watchers=many"),
            format!("ä full sha256:{hex}"),
            format!("{good}\nann full sha256:{other}"),
            format!("{good}\nbob full sha256:{hex}"),
        ] {
            let refused = ApiKeys::parse(&bad).unwrap_err().to_string();
            assert!(refused.starts_with("line ") && !refused.contains("secret"), "{bad}: {refused}");
        }
    }
}

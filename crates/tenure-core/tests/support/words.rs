//! The commands of scripts: reads one sentence and makes the command that it means. See `tests/scripts/README.md`.

pub(crate) mod keyed;
pub(crate) mod registry;

use super::cast::{Cast, read_span};
use super::{holder, ttl};
use std::str::FromStr;
use tenure_core::{
    Acquire, Actor, ApiKeyName, Break, Cancel, Class, Command, Compact, Counts, Define, Delete, Epoch, Force, Free,
    Grant, Handle, Hang, Holder, Key, Keys, Kind, Label, Labels, LeaseId, Lifetime, Mode, Name, Note, On, Policy,
    Priority, Proof, Put, Reach, Release, ReleaseLease, Renew, RenewHandle, Renewal, RequestNumber, Revoke, Secret,
    Span, Transfer, Ttl, Units, Wait, Want, Which, limits,
};

/// The command that a sentence means.
pub(crate) fn command(cast: &mut Cast, text: &str) -> Result<Command, String> {
    match text.strip_prefix('[').map(|rest| rest.split_once("] ").ok_or("a `[` is not closed")) {
        Some(parts) => {
            let (actor, text) = parts?;
            Ok(plain(cast, text)?.sent_with(read_actor(actor)?))
        }
        None => plain(cast, text),
    }
}

/// `KEY [own|named] [at most N]`: the API key that a command is sent with.
fn read_actor(text: &str) -> Result<Actor, String> {
    let (text, leases_max) = match text.split_once(" at most ") {
        Some((text, number)) => (text, Some(number.parse().map_err(|_| format!("`{number}` is no number"))?)),
        None => (text, None),
    };
    let (key, reach) = match text.split_once(' ') {
        None => (text, Reach::All),
        Some((key, "own")) => (key, Reach::Own),
        Some((key, "named")) => (key, Reach::Named),
        Some((_, other)) => return Err(format!("`{other}` is no reach of a key")),
    };
    Ok(Actor { key: ApiKeyName::parse(key).map_err(|bad| bad.to_string())?, reach, leases_max })
}

fn plain(cast: &mut Cast, text: &str) -> Result<Command, String> {
    let (verb, rest) = text.split_once(' ').ok_or_else(|| format!("`{text}` says too little"))?;
    // Whatever is forced ends with its reason, which is no sentence of this language.
    let (rest, reason) = match verb {
        "revoke" | "break" | "transfer" | "drain" | "undrain" | "deregister" => cut_reason(rest),
        _ => (rest, None),
    };
    let mut words = Words { cast, words: split(rest)?, next: 0, reason };
    let command = words.command(verb)?;
    match words.words.get(words.next) {
        Some(left) => Err(format!("`{left}` is not understood")),
        None if words.reason.is_some() => Err(format!("a `{verb}` by the holder has no reason")),
        None => Ok(command),
    }
}

/// Splits `ORDER: REASON`; the reason may be empty.
fn cut_reason(text: &str) -> (&str, Option<&str>) {
    match text.strip_suffix(':').map(|text| (text, "")).or_else(|| text.split_once(": ")) {
        Some((order, reason)) => (order, Some(reason)),
        None => (text, None),
    }
}

/// Splits a sentence at its spaces; commas are words, and `"what is quoted"` is one word, marked by its first quote.
fn split(text: &str) -> Result<Vec<&str>, String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = match rest.strip_prefix('"') {
            Some(quoted) => quoted.find('"').ok_or("a quote is not closed")? + 1,
            None if rest.starts_with(',') => 1,
            None => rest.find([' ', ',']).unwrap_or(rest.len()),
        };
        words.push(&rest[..end]);
        rest = rest[end..].strip_prefix('"').unwrap_or(&rest[end..]).trim_start();
    }
    Ok(words)
}

/// The words of one command, and how far they are read.
struct Words<'a> {
    cast: &'a mut Cast,
    words: Vec<&'a str>,
    next: usize,
    reason: Option<&'a str>,
}

impl<'a> Words<'a> {
    fn command(&mut self, verb: &str) -> Result<Command, String> {
        let by_handle = self.words.first().is_some_and(|word| word.contains('@'));
        Ok(match verb {
            "grant" => Command::Grant(self.grant()?),
            "acquire" => Command::Acquire(self.acquire()?),
            "renew" if by_handle => Command::RenewHandle(self.renew_handle(Kind::Auto)?),
            "renew" => Command::Renew(self.renew(Kind::Auto)?),
            "touch" if by_handle => Command::RenewHandle(self.renew_handle(Kind::Touch)?),
            "touch" => Command::Renew(self.renew(Kind::Touch)?),
            "release" if self.skip("lease") => {
                let lease = self.lease()?;
                Command::ReleaseLease(ReleaseLease { lease, proof: self.proof()? })
            }
            "release" => {
                let handle = self.handle()?;
                Command::Release(Release { handle, proof: self.proof()? })
            }
            "cancel" => Command::Cancel(self.cancel()?),
            "revoke" => Command::Revoke(self.revoke()?),
            "break" => Command::Break(self.broken()?),
            "transfer" => Command::Transfer(self.transfer()?),
            "define" => Command::Define(self.define()?),
            "undefine" => Command::Define(Define { resource: self.name()?, capacity: None }),
            "class" => Command::SetClass(self.class()?),
            "put" => Command::Put(self.put()?),
            "attach" => {
                let key = self.key()?;
                self.expect("to")?;
                Command::Put(Put { key, value: None, lease: Hang::On(self.lease()?) })
            }
            "detach" => Command::Put(Put { key: self.key()?, value: None, lease: Hang::Free }),
            "delete" => Command::Delete(Delete { keys: self.keys()? }),
            "txn" => Command::Txn(self.txn()?),
            "compact" => {
                self.expect("kv")?;
                Command::Compact(Compact { revision: self.number()? })
            }
            "register" => Command::Register(self.register()?),
            "update" => Command::UpdateInstance(self.update()?),
            "drain" => Command::Drain(self.drain(true)?),
            "undrain" => Command::Drain(self.drain(false)?),
            "deregister" => Command::Deregister(self.deregister()?),
            "health" => Command::SetHealth(self.health()?),
            verb => return Err(format!("nothing is called `{verb}`")),
        })
    }

    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.next).copied()
    }

    fn word(&mut self) -> Result<&'a str, String> {
        let word = self.peek().ok_or("a word is missing at the end")?;
        self.next += 1;
        Ok(word)
    }

    /// Whether these words come next; they are read then.
    fn skip(&mut self, phrase: &str) -> bool {
        let words: Vec<_> = phrase.split(' ').collect();
        let is_next = self.words[self.next..].starts_with(&words);
        self.next += if is_next { words.len() } else { 0 };
        is_next
    }

    fn expect(&mut self, phrase: &str) -> Result<(), String> {
        if self.skip(phrase) {
            return Ok(());
        }
        Err(format!("`{phrase}` is missing before `{}`", self.peek().unwrap_or("the end")))
    }

    /// The word after a phrase, if that comes next.
    fn option(&mut self, phrase: &str) -> Result<Option<&'a str>, String> {
        if self.skip(phrase) { self.word().map(Some) } else { Ok(None) }
    }

    fn number<T: FromStr>(&mut self) -> Result<T, String> {
        let word = self.word()?;
        word.parse().map_err(|_| format!("`{word}` is not such a number"))
    }

    fn lease(&mut self) -> Result<LeaseId, String> {
        let label = self.word()?;
        self.cast.lease(label).ok_or_else(|| format!("`{label}` is not a lease: a label or #NUMBER"))
    }

    fn name(&mut self) -> Result<Name, String> {
        Name::parse(self.word()?).map_err(|bad| bad.to_string())
    }

    /// `A[ and B]…`
    fn names(&mut self) -> Result<Vec<Name>, String> {
        let mut names = vec![self.name()?];
        while self.skip("and") {
            names.push(self.name()?);
        }
        Ok(names)
    }

    fn handle(&mut self) -> Result<Handle, String> {
        Handle::parse(self.word()?).map_err(|bad| bad.to_string())
    }

    fn text(&mut self) -> Result<&'a str, String> {
        self.word().map(|word| word.strip_prefix('"').unwrap_or(word))
    }

    fn key(&mut self) -> Result<Key, String> {
        Key::parse(self.text()?.as_bytes()).map_err(|bad| bad.to_string())
    }

    fn span(&mut self, max_ms: u64) -> Result<Span, String> {
        Span::at_most(read_span(self.word()?)?, max_ms).map_err(|bad| bad.to_string())
    }

    fn some_span(&mut self, phrase: &str, max_ms: u64) -> Result<Option<Span>, String> {
        if self.skip(phrase) { self.span(max_ms).map(Some) } else { Ok(None) }
    }

    fn new_ttl(&mut self) -> Result<Option<Ttl>, String> {
        Ok(self.option("for")?.map(read_span).transpose()?.map(ttl))
    }

    fn units(&mut self) -> Result<Units, String> {
        Units::from_number(self.number()?).ok_or_else(|| "no resource can have so many units".into())
    }

    /// `living at most D [while others wait]`
    fn lifetime(&mut self) -> Result<Option<Lifetime>, String> {
        let Some(span) = self.some_span("living at most", limits::TTL_MS_MAX)? else { return Ok(None) };
        let counts = if self.skip("while others wait") { Counts::WhileOthersWait } else { Counts::Always };
        Ok(Some(Lifetime { span, counts }))
    }

    /// `LEASE [by HOLDER] [TERMS]`
    fn grant(&mut self) -> Result<Grant, String> {
        let label = self.peek().unwrap_or_default();
        let lease = self.lease()?;
        let by = self.option("by")?.unwrap_or(label);
        self.terms(lease, holder(by))
    }

    /// What a grant says of its lease, in any order.
    fn terms(&mut self, lease: LeaseId, holder: Holder) -> Result<Grant, String> {
        let mut grant = Grant { ttl: None, ..Grant::plain(lease, holder, ttl(limits::TTL_MS_MIN), 1) };
        loop {
            if let Some(ttl) = self.new_ttl()? {
                grant.ttl = Some(ttl);
            } else if self.skip("request") {
                grant.request = self.number()?;
            } else if self.skip("class") {
                grant.class = Some(self.name()?);
            } else if let Some(grace) = self.some_span("grace", limits::GRACE_MS_MAX)? {
                grant.grace = Some(grace);
            } else if let Some(lifetime) = self.lifetime()? {
                grant.lifetime = Some(lifetime);
            } else if self.skip("under") {
                grant.parent = Some(self.lease()?);
            } else if self.skip("labelled") {
                grant.labels = self.labels()?;
            } else if self.skip("because") {
                grant.reason = Note::parse(self.text()?).map_err(|bad| bad.to_string())?;
            } else {
                return Ok(grant);
            }
        }
    }

    /// `k=v [k=v]…`
    fn labels(&mut self) -> Result<Labels, String> {
        let mut pairs = Vec::new();
        while let Some(pair) = self.peek().and_then(|word| word.split_once('=')) {
            self.next += 1;
            pairs.push(pair);
        }
        Labels::parse(pairs).map_err(|bad| bad.to_string())
    }

    /// `WANT[ and WANT]… by HOLDER [as LEASE] [TERMS]{, HOW}` or `WANT[ and WANT]… on lease LEASE{, HOW}`
    fn acquire(&mut self) -> Result<Acquire, String> {
        let mut asked = vec![self.want()?];
        while self.skip("and") {
            asked.push(self.want()?);
        }
        let on = if self.skip("on lease") {
            On::Given(self.lease()?)
        } else {
            self.expect("by")?;
            let by = self.word()?;
            let label = self.option("as")?.unwrap_or(by);
            let lease = self.cast.lease(label).ok_or("a lease is a label or #NUMBER")?;
            On::New(self.terms(lease, holder(by))?)
        };
        let mut acquire = Acquire { wants: Vec::new(), ..Acquire::exclusive(on, asked[0].0.clone(), Wait::Never) };
        let (mut mode_of_all, mut capacity_of_all) = (Mode::Exclusive, None);
        while self.skip(",") {
            if self.skip("waiting") {
                let limit = match self.peek() {
                    Some(word) if word != "," => Some(self.span(limits::TTL_MS_MAX)?),
                    _ => None,
                };
                acquire.wait = Wait::InLine { limit };
            } else if self.skip("priority") {
                acquire.priority = Priority::from_number(self.number()?).ok_or("there is no such priority")?;
            } else if let Some(delay) = self.some_span("lock-delay", limits::LOCK_DELAY_MS_MAX)? {
                acquire.lock_delay = delay;
            } else if let Some(request) = self.request()? {
                acquire.request = Some(request);
            } else if let Some(secret) = self.secret()? {
                acquire.secret = Some(secret);
            } else if self.skip("epoch") {
                acquire.epoch = Some(Epoch::from_number(self.number()?).ok_or("epochs count from 1")?);
            } else {
                let (mode, capacity) = self.mode()?;
                mode_of_all = mode.ok_or_else(|| format!("`{}` is not understood", self.peek().unwrap_or(",")))?;
                capacity_of_all = capacity;
            }
        }
        let wants = asked.into_iter().map(|(resource, mode, capacity)| Want {
            resource,
            mode: mode.unwrap_or(mode_of_all),
            capacity: capacity.or(capacity_of_all),
        });
        acquire.wants = wants.collect();
        Ok(acquire)
    }

    /// `RESOURCE [MODE] [of CAPACITY]`
    fn want(&mut self) -> Result<(Name, Option<Mode>, Option<Units>), String> {
        let resource = self.name()?;
        let (mode, capacity) = self.mode()?;
        Ok((resource, mode, capacity))
    }

    /// `[shared | exclusive | N units] [of CAPACITY]`
    fn mode(&mut self) -> Result<(Option<Mode>, Option<Units>), String> {
        let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
        let mode = if self.skip("shared") {
            Some(Mode::Shared)
        } else if self.skip("exclusive") {
            Some(Mode::Exclusive)
        } else if self.peek().is_some_and(is_number) {
            let units = self.units()?;
            if !self.skip("unit") {
                self.expect("units")?;
            }
            Some(Mode::Units(units))
        } else {
            None
        };
        let capacity = if self.skip("of") { Some(self.units()?) } else { None };
        Ok((mode, capacity))
    }

    /// `LEASE [for TTL]{, LEASE [for TTL]} [explicitly]`
    fn renew(&mut self, kind: Kind) -> Result<Renew, String> {
        let mut leases = Vec::new();
        loop {
            leases.push(Renewal { lease: self.lease()?, ttl: self.new_ttl()? });
            if !self.skip(",") {
                break;
            }
        }
        let kind = if self.skip("explicitly") { Kind::Explicit } else { kind };
        Ok(Renew { leases, kind })
    }

    /// `HANDLE [for TTL] [explicitly]`
    fn renew_handle(&mut self, kind: Kind) -> Result<RenewHandle, String> {
        let (handle, ttl) = (self.handle()?, self.new_ttl()?);
        let kind = if self.skip("explicitly") { Kind::Explicit } else { kind };
        Ok(RenewHandle { handle, ttl, kind })
    }

    /// `RESOURCE[ and RESOURCE]… of LEASE`
    fn cancel(&mut self) -> Result<Cancel, String> {
        let resources = self.names()?;
        self.expect("of")?;
        let (lease, request) = (self.lease()?, self.request()?);
        Ok(Cancel { lease, resources, request, proof: self.proof()? })
    }

    /// `[, number N [answered below N]]`
    pub(super) fn request(&mut self) -> Result<Option<RequestNumber>, String> {
        if !self.skip("number") {
            return Ok(None);
        }
        let number = self.number()?;
        let below = if self.skip("answered below") { self.number()? } else { 0 };
        RequestNumber::new(number, below).map(Some).ok_or_else(|| "numbers count from 1".into())
    }

    /// `[with secret N | showing nothing]`
    fn proof(&mut self) -> Result<Proof, String> {
        if self.skip("showing nothing") {
            return Ok(Proof::Nothing);
        }
        Ok(Proof::of(self.secret()?))
    }

    fn secret(&mut self) -> Result<Option<Secret>, String> {
        if !self.skip("with secret") {
            return Ok(None);
        }
        Secret::new(self.number()?).map(Some).ok_or_else(|| "0 is no secret".into())
    }

    /// `by HOLDER [in D] [now]: REASON`, and how long the delay is.
    fn force(&mut self) -> Result<(Force, Span), String> {
        self.expect("by")?;
        let by = holder(self.word()?);
        let delay = self.some_span("in", limits::BREAK_DELAY_MS_MAX)?.unwrap_or_default();
        let free = if self.skip("now") { Free::Now } else { Free::WhenVacated };
        let reason = self.reason.take().ok_or("an order by somebody else ends with `: REASON`")?;
        let reason = Note::parse(reason).map_err(|bad| bad.to_string())?;
        Ok((Force { by, reason, free }, delay))
    }

    fn force_at_once(&mut self) -> Result<Force, String> {
        match self.force()? {
            (force, Span::ZERO) => Ok(force),
            _ => Err("only a break can wait".into()),
        }
    }

    /// `LEASE FORCE`, or `prefix P FORCE`, `holder H FORCE`, `label K=V FORCE`, each `[from WHERE]`.
    fn revoke(&mut self) -> Result<Revoke, String> {
        let which = if let Some(prefix) = self.option("prefix")? {
            Which::Prefix { prefix: prefix.into(), from: self.option("from")?.unwrap_or_default().into() }
        } else if let Some(whose) = self.option("holder")? {
            Which::Holder { holder: holder(whose), from: self.lease_to_go_on_from()? }
        } else if let Some(label) = self.option("label")? {
            let (key, value) = label.split_once('=').ok_or("a label is KEY=VALUE")?;
            let label = Label::parse(key, value).map_err(|bad| bad.to_string())?;
            Which::Label { label, from: self.lease_to_go_on_from()? }
        } else {
            Which::Lease(self.lease()?)
        };
        Ok(Revoke { which, force: self.force_at_once()? })
    }

    fn lease_to_go_on_from(&mut self) -> Result<Option<LeaseId>, String> {
        if self.skip("from") { self.lease().map(Some) } else { Ok(None) }
    }

    /// `RESOURCE[@FENCE] FORCE`
    fn broken(&mut self) -> Result<Break, String> {
        let (resource, fence) = match self.peek().is_some_and(|word| word.contains('@')) {
            true => self.handle().map(|handle| (handle.resource, Some(handle.fence)))?,
            false => (self.name()?, None),
        };
        let (force, delay) = self.force()?;
        Ok(Break { resource, fence, force, delay })
    }

    /// `HANDLE to LEASE [FORCE]`
    fn transfer(&mut self) -> Result<Transfer, String> {
        let handle = self.handle()?;
        self.expect("to")?;
        let to = self.lease()?;
        let force = if self.peek() == Some("by") { Some(self.force_at_once()?) } else { None };
        Ok(Transfer { handle, to, force })
    }

    /// `RESOURCE as N units`
    fn define(&mut self) -> Result<Define, String> {
        let resource = self.name()?;
        self.expect("as")?;
        let capacity = self.units()?;
        if !self.skip("unit") {
            self.expect("units")?;
        }
        Ok(Define { resource, capacity: Some(capacity) })
    }

    /// `NAME ttl T [(MIN to MAX)] renewal POLICY [grace D] [living at most D [while others wait]]`
    fn class(&mut self) -> Result<Class, String> {
        let name = self.name()?;
        self.expect("ttl")?;
        let of = |word: &str| read_span(word).map(ttl);
        let usual = of(self.word()?)?;
        let (mut ttl_min, mut ttl_max) = (ttl(limits::TTL_MS_MIN), ttl(limits::TTL_MS_MAX));
        if let Some(min) = self.peek().and_then(|word| word.strip_prefix('(')) {
            self.next += 1;
            ttl_min = of(min)?;
            self.expect("to")?;
            ttl_max = of(self.word()?.strip_suffix(')').ok_or("a range is `(MIN to MAX)`")?)?;
        }
        self.expect("renewal")?;
        let renew = match self.word()? {
            "auto" => Policy::Auto,
            "activity" => Policy::Activity,
            "explicit" => Policy::Explicit,
            "never" => Policy::Never,
            other => return Err(format!("`{other}` is no policy: auto, activity, explicit or never")),
        };
        let grace = self.some_span("grace", limits::GRACE_MS_MAX)?.unwrap_or_default();
        Ok(Class { name, ttl: usual, ttl_min, ttl_max, renew, grace, lifetime: self.lifetime()? })
    }

    /// `KEY = VALUE [on LEASE | where it hangs]`, or `KEY again`
    fn put(&mut self) -> Result<Put, String> {
        let key = self.key()?;
        if self.skip("again") {
            return Ok(Put { key, value: None, lease: Hang::Keep });
        }
        self.expect("=")?;
        let value = Some(self.text()?.as_bytes().into());
        let lease = if self.skip("on") {
            Hang::On(self.lease()?)
        } else if self.skip("where it hangs") {
            Hang::Keep
        } else {
            Hang::Free
        };
        Ok(Put { key, value, lease })
    }

    /// `KEY`, `keys PREFIX*`, or `keys FIRST to END`
    fn keys(&mut self) -> Result<Keys, String> {
        if !self.skip("keys") {
            return self.key().map(Keys::One);
        }
        let first = self.text()?;
        if self.skip("to") {
            return Ok(Keys::From { first: first.as_bytes().into(), end: Some(self.text()?.as_bytes().into()) });
        }
        let prefix = first.strip_suffix('*').ok_or("several keys are `PREFIX*` or `FIRST to END`")?;
        Ok(Keys::Prefix(prefix.as_bytes().into()))
    }
}

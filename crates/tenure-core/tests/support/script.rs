//! The script language: reads a script, applies it, and writes the script that would have been right. The lines that
//! begin with `->` are what is compared; see `tests/scripts/README.md` for the words.

use super::print::{Cast, Story, span};
use super::witness::Witness;
use super::{entry, holder, ttl};
use tenure_core::{
    Acquire, Cancel, Command, Event, Grant, Handle, Ledger, Name, Note, On, Release, Renew, RenewHandle, Renewal,
    Revoke, Stake, Ttl, Wait,
};

/// A line of a script that cannot be read.
#[derive(Debug)]
pub(crate) struct Unreadable {
    pub(crate) line: usize,
    pub(crate) why: String,
}

/// Runs a script and returns it with the `->` lines that the ledger gives.
pub(crate) fn run(text: &str) -> Result<String, Unreadable> {
    let mut stage = Stage::default();
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("->")).peekable();
    while let Some((index, line)) = lines.next() {
        let unreadable = |why: String| Unreadable { line: index + 1, why };
        stage.written.push(line.to_string());
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(what) = line.strip_prefix("show ") {
            stage.show(what).map_err(unreadable)?;
            continue;
        }
        let (at_ms, asked) = read_at(line).map_err(unreadable)?;
        if asked != "together:" {
            let commands = if asked == "tick" { Vec::new() } else { vec![stage.command(asked).map_err(unreadable)?] };
            stage.alone(at_ms, commands);
            continue;
        }
        let mut commands = Vec::new();
        while let Some((index, line)) = lines.next_if(|(_, line)| line.starts_with("  ")) {
            let command = stage.command(line.trim()).map_err(|why| Unreadable { line: index + 1, why })?;
            commands.push((line.to_string(), command));
        }
        stage.together(at_ms, commands);
    }
    Ok(stage.written.join("\n") + "\n")
}

#[derive(Default)]
struct Stage {
    cast: Cast,
    witness: Witness,
    written: Vec<String>,
}

impl Stage {
    fn alone(&mut self, at_ms: u64, commands: Vec<Command>) {
        for reply in self.apply(at_ms, commands).concat() {
            self.written.push(format!("  -> {reply}"));
        }
    }

    /// Several commands in one entry: each reply stands below its command, the events of the entry below them all.
    fn together(&mut self, at_ms: u64, commands: Vec<(String, Command)>) {
        let (lines, commands): (Vec<_>, Vec<_>) = commands.into_iter().unzip();
        let mut answers = self.apply(at_ms, commands);
        let events = answers.pop().expect("the events come last");
        for (line, replies) in lines.into_iter().zip(answers) {
            self.written.push(line);
            self.written.extend(replies.into_iter().map(|reply| format!("    -> {reply}")));
        }
        self.written.extend(events.into_iter().map(|event| format!("  -> {event}")));
    }

    /// The lines for each command, and last those for what else happened.
    fn apply(&mut self, at_ms: u64, commands: Vec<Command>) -> Vec<Vec<String>> {
        let before = self.witness.ledger().clone();
        let entry = entry(at_ms, commands);
        let applied = self.witness.apply(&entry);
        let changes = applied.events.chunk_by(|a, b| a.revision == b.revision).map(<[Event]>::to_vec);
        let untold = changes.collect();
        let mut story = Story { cast: &self.cast, before: &before, after: self.witness.ledger(), untold };
        let each = entry.commands.iter().zip(&applied.outcomes);
        let mut answers: Vec<_> = each.map(|(command, outcome)| story.answer(command, outcome)).collect();
        answers.push(story.rest());
        answers
    }

    fn show(&mut self, what: &str) -> Result<(), String> {
        let ledger = self.witness.ledger();
        let shown = match what.strip_prefix("lease ") {
            Some(label) => {
                let lease = self.cast.lease(label).ok_or("a lease is a label or #NUMBER")?;
                shown_lease(ledger, lease)
            }
            None => shown_resource(ledger, &self.cast, &Name::parse(what).map_err(|bad| bad.to_string())?),
        };
        self.written.push(format!("  -> {shown}"));
        Ok(())
    }

    fn command(&mut self, text: &str) -> Result<Command, String> {
        let (verb, rest) = text.split_once(' ').ok_or_else(|| format!("`{text}` says too little"))?;
        let mut words = Words { cast: &mut self.cast, rest };
        let command = match verb {
            "grant" => Command::Grant(words.grant()?),
            "acquire" => Command::Acquire(words.acquire()?),
            "renew" if rest.contains('@') => Command::RenewHandle(words.renew_handle()?),
            "renew" => Command::Renew(words.renew()?),
            "release" => Command::Release(Release { handle: words.handle()? }),
            "cancel" => Command::Cancel(words.cancel()?),
            "revoke" => Command::Revoke(words.revoke()?),
            verb => return Err(format!("nothing is called `{verb}`")),
        };
        if words.rest.is_empty() { Ok(command) } else { Err(format!("`{}` is not understood", words.rest)) }
    }
}

fn shown_lease(ledger: &Ledger, id: tenure_core::LeaseId) -> String {
    let Some(lease) = ledger.lease(id) else { return "no such lease".into() };
    let life = format!("lives until {}, renewed by {}", span(lease.deadline().millis()), span(lease.ttl().millis()));
    let stakes = lease.stakes().map(|(name, stake)| match stake {
        Stake::Holding { fence } => format!(", holds {name}@{fence}"),
        Stake::Waiting { .. } => format!(", waits for {name}"),
    });
    life + &stakes.collect::<String>()
}

fn shown_resource(ledger: &Ledger, cast: &Cast, name: &Name) -> String {
    let Some(resource) = ledger.resource(name) else { return "free".into() };
    let held = resource.holding().map_or("held by nobody yet".into(), |holding| {
        let since = span(holding.since.millis());
        format!("held by {} fence {} since {since}", cast.label(holding.lease), holding.fence)
    });
    held + &resource.waiters().map(|waiter| format!(", then {}", cast.label(waiter))).collect::<String>()
}

/// The words of one command that are left to read.
struct Words<'a> {
    cast: &'a mut Cast,
    rest: &'a str,
}

impl<'a> Words<'a> {
    fn word(&mut self) -> Result<&'a str, String> {
        let (word, rest) = self.rest.split_once(' ').unwrap_or((self.rest, ""));
        self.rest = rest;
        if word.is_empty() { Err("a word is missing at the end".into()) } else { Ok(word) }
    }

    /// The word after `key`, if that is what comes next.
    fn option(&mut self, key: &str) -> Result<Option<&'a str>, String> {
        match self.rest.strip_prefix(key).and_then(|rest| rest.strip_prefix(' ')) {
            Some(rest) => {
                self.rest = rest;
                self.word().map(Some)
            }
            None => Ok(None),
        }
    }

    fn expect(&mut self, key: &str) -> Result<&'a str, String> {
        self.option(key)?.ok_or_else(|| format!("`{key}` is missing before `{}`", self.rest))
    }

    fn lease(&mut self, label: &str) -> Result<tenure_core::LeaseId, String> {
        self.cast.lease(label).ok_or_else(|| format!("`{label}` is not a lease: a label or #NUMBER"))
    }

    fn name(&mut self) -> Result<Name, String> {
        Name::parse(self.word()?).map_err(|bad| bad.to_string())
    }

    fn handle(&mut self) -> Result<Handle, String> {
        Handle::parse(self.word()?).map_err(|bad| bad.to_string())
    }

    fn new_ttl(&mut self) -> Result<Option<Ttl>, String> {
        Ok(self.option("for")?.map(read_span).transpose()?.map(ttl))
    }

    /// `LEASE [by HOLDER] for TTL [request N]`
    fn grant(&mut self) -> Result<Grant, String> {
        let label = self.word()?;
        let by = self.option("by")?.unwrap_or(label);
        self.grant_of(label, by)
    }

    fn grant_of(&mut self, label: &str, by: &str) -> Result<Grant, String> {
        let lease = self.lease(label)?;
        let ttl = ttl(read_span(self.expect("for")?)?);
        let request = self.option("request")?.map_or(Ok(1), str::parse).map_err(|_| "a request is a number")?;
        Ok(Grant { lease, holder: holder(by), ttl, request })
    }

    /// `RESOURCE by HOLDER [as LEASE] for TTL [request N][, waiting]` or `RESOURCE on lease LEASE[, waiting]`
    fn acquire(&mut self) -> Result<Acquire, String> {
        let (rest, wait) = match self.rest.strip_suffix(", waiting") {
            Some(rest) => (rest, Wait::InLine),
            None => (self.rest, Wait::Never),
        };
        self.rest = rest;
        let resource = self.name()?;
        let on = match self.option("on lease")? {
            Some(label) => On::Given(self.lease(label)?),
            None => {
                let by = self.expect("by")?;
                let label = self.option("as")?.unwrap_or(by);
                On::New(self.grant_of(label, by)?)
            }
        };
        Ok(Acquire { on, resource, wait })
    }

    /// `LEASE [for TTL]{, LEASE [for TTL]}`
    fn renew(&mut self) -> Result<Renew, String> {
        let mut leases = Vec::new();
        for part in std::mem::take(&mut self.rest).split(", ") {
            self.rest = part;
            let label = self.word()?;
            leases.push(Renewal { lease: self.lease(label)?, ttl: self.new_ttl()? });
        }
        Ok(Renew { leases })
    }

    /// `HANDLE [for TTL]`
    fn renew_handle(&mut self) -> Result<RenewHandle, String> {
        Ok(RenewHandle { handle: self.handle()?, ttl: self.new_ttl()? })
    }

    /// `RESOURCE of LEASE`
    fn cancel(&mut self) -> Result<Cancel, String> {
        let resource = self.name()?;
        let label = self.expect("of")?;
        Ok(Cancel { lease: self.lease(label)?, resource })
    }

    /// `LEASE by HOLDER: REASON`
    fn revoke(&mut self) -> Result<Revoke, String> {
        let label = self.word()?;
        let by = self.expect("by")?;
        let by = by.strip_suffix(':').ok_or("a revoke ends with `by HOLDER: REASON`")?;
        let reason = Note::parse(std::mem::take(&mut self.rest)).map_err(|bad| bad.to_string())?;
        Ok(Revoke { lease: self.lease(label)?, by: holder(by), reason })
    }
}

/// Splits `at TIME COMMAND`.
fn read_at(line: &str) -> Result<(u64, &str), String> {
    let rest = line.strip_prefix("at ").ok_or("a line starts with `at`, `show`, `->` or `#`")?;
    let (time, asked) = rest.split_once(' ').ok_or("nothing is asked")?;
    Ok((read_span(time)?, asked))
}

fn read_span(text: &str) -> Result<u64, String> {
    let (number, unit_ms) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s').ok_or_else(|| format!("`{text}` is not a time: 10s or 1500ms"))?, 1000),
    };
    let number: u64 = number.parse().map_err(|_| format!("`{text}` is not a time: 10s or 1500ms"))?;
    Ok(number * unit_ms)
}

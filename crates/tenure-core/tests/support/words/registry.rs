//! The words of the registry.

use super::{Words, holder, read_span};
use std::collections::BTreeSet;
use tenure_core::{
    Ask, Check, Deregister, Details, Draft, Drain, Edit, Endpoint, Epoch, Health, InstanceKey, Note, On, OnCritical,
    Probe, Register, SetHealth, Source, Span, UpdateInstance, Word,
};

/// `SERVICE/ID`
pub(crate) fn instance_key(text: &str) -> Result<InstanceKey, String> {
    InstanceKey::parse(text).map_err(|bad| bad.to_string())
}

fn a_word(text: &str) -> Result<Word, String> {
    Word::parse(text).map_err(|bad| bad.to_string())
}

fn a_span(text: &str) -> Result<Span, String> {
    Span::at_most(read_span(text)?, u64::MAX).map_err(|bad| bad.to_string())
}

/// What is said of an instance; the last of each counts.
#[derive(Default)]
struct Said {
    edit: Edit,
    epoch: Option<Epoch>,
}

impl<'a> Words<'a> {
    fn instance(&mut self) -> Result<InstanceKey, String> {
        instance_key(self.word()?)
    }

    /// `SERVICE/ID by HOLDER [as LEASE] [TERMS]{, SAYS}` or `SERVICE/ID on lease LEASE{, SAYS}`
    pub(super) fn register(&mut self) -> Result<Register, String> {
        let instance = self.instance()?;
        let on = if self.skip("on lease") {
            On::Given(self.lease()?)
        } else {
            self.expect("by")?;
            let by = self.word()?;
            let label = self.option("as")?.unwrap_or(by);
            let lease = self.cast.lease(label).ok_or("a lease is a label or #NUMBER")?;
            On::New(self.terms(lease, holder(by))?)
        };
        let request = if self.skip(",") {
            self.request()?.or_else(|| {
                self.next -= 1;
                None
            })
        } else {
            None
        };
        let said = self.said()?;
        let usual = Endpoint::parse("http://10.0.0.7:8080").map_err(|bad| bad.to_string())?;
        let draft = Details::new(Draft::at(vec![usual])).and_then(|usual| usual.edited(&said.edit));
        let details = draft.map_err(|bad| bad.to_string())?;
        Ok(Register { instance, epoch: said.epoch, on, details, request })
    }

    /// `SERVICE/ID [on lease LEASE]{, SAYS}`
    pub(super) fn update(&mut self) -> Result<UpdateInstance, String> {
        let instance = self.instance()?;
        let lease = if self.skip("on lease") { Some(self.lease()?) } else { None };
        Ok(UpdateInstance { instance, lease, edit: self.said()?.edit })
    }

    fn said(&mut self) -> Result<Said, String> {
        let mut said = Said::default();
        let edit = &mut said.edit;
        while self.skip(",") {
            match self.word()? {
                "at" => {
                    let endpoint = Endpoint::parse(self.word()?).map_err(|bad| bad.to_string())?;
                    edit.endpoints.get_or_insert_default().push(endpoint);
                }
                "can" => drop(edit.capabilities.get_or_insert_with(BTreeSet::new).insert(a_word(self.word()?)?)),
                "labelled" => edit.labels = Some(self.labels()?),
                "zone" if self.skip("none") => edit.zone = Some(None),
                "zone" => edit.zone = Some(Some(a_word(self.word()?)?)),
                "weight" => edit.weight = Some(self.number()?),
                "version" => edit.version = Some(Some(a_word(self.word()?)?)),
                "epoch" => said.epoch = Some(Epoch::from_number(self.number()?).ok_or("epochs count from 1")?),
                "unchecked" => edit.checks = Some(Vec::new()),
                "check" => {
                    let check = self.check()?;
                    edit.checks.get_or_insert_default().push(check);
                }
                "marked" => edit.on_critical = Some(OnCritical::Mark),
                "observed" => edit.on_critical = Some(OnCritical::Observe),
                "revoked" => {
                    self.expect("after")?;
                    edit.on_critical = Some(OnCritical::RevokeAfter(a_span(self.word()?)?));
                }
                other => return Err(format!("`{other}` is nothing that is said of an instance")),
            }
        }
        Ok(said)
    }

    /// `NAME pushed [every SPAN]` or `NAME tcp|http every SPAN`
    fn check(&mut self) -> Result<Check, String> {
        let name = a_word(self.word()?)?;
        let how = self.word()?;
        let every = if self.skip("every") { Some(a_span(self.word()?)?) } else { None };
        let ask = match how {
            "pushed" => return Ok(Check { name, source: Source::Pushed { ttl: every } }),
            "tcp" => Ask::Tcp,
            "http" => Ask::Http { path: "/healthz".into(), statuses: 200..=299 },
            other => return Err(format!("`{other}` is no check: pushed, tcp or http")),
        };
        let interval = every.ok_or("a probe is made `every` so often")?;
        let timeout = a_span("100ms")?;
        let probe = Probe { endpoint: 0, ask, interval, timeout, degraded_after: 1, failures: 3, successes: 2 };
        Ok(Check { name, source: Source::Probed(probe) })
    }

    /// `SERVICE/ID [on lease LEASE] by HOLDER: REASON`
    pub(super) fn drain(&mut self, on: bool) -> Result<Drain, String> {
        let instance = self.instance()?;
        let lease = if self.skip("on lease") { Some(self.lease()?) } else { None };
        self.expect("by")?;
        let by = holder(self.word()?);
        let reason = Note::parse(self.reason.take().unwrap_or_default()).map_err(|bad| bad.to_string())?;
        Ok(Drain { instance, lease, on, by, reason })
    }

    /// `SERVICE/ID [on lease LEASE] [by HOLDER [now]: REASON]`
    pub(super) fn deregister(&mut self) -> Result<Deregister, String> {
        let instance = self.instance()?;
        let lease = if self.skip("on lease") { Some(self.lease()?) } else { None };
        let request = self.request()?;
        let force = if self.peek() == Some("by") { Some(self.force_at_once()?) } else { None };
        Ok(Deregister { instance, lease, force, request })
    }

    /// `SERVICE/ID of LEASE: CHECK HEALTH ["NOTE"]`
    pub(super) fn health(&mut self) -> Result<SetHealth, String> {
        let instance = self.instance()?;
        self.expect("of")?;
        let lease = self.lease()?;
        let check = a_word(self.word()?)?;
        let health = match self.word()? {
            "passing" => Health::Passing,
            "degraded" => Health::Degraded,
            "unknown" => Health::Unknown,
            "critical" => Health::Critical,
            other => return Err(format!("`{other}` is no health: passing, degraded, unknown or critical")),
        };
        let note = if self.peek().is_some() { self.text()? } else { "" };
        let note = Note::parse(note).map_err(|bad| bad.to_string())?;
        Ok(SetHealth { instance, lease, check, health, note })
    }
}

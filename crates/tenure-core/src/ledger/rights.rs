//! Whether the API key of a command may do what the command asks. The rights of the key are logged with the command, so every
//! node decides alike; a key that may change everything is not looked at.

use super::resource::{Claim, Outgoing};
use super::{KeyValue, Ledger};
use crate::actor::{Actor, ApiKeyName, Reach};
use crate::command::{Acquire, Break, Command, Free, Grant, Hang, On, Put, Transfer, Which};
use crate::event::Event;
use crate::fence::Handle;
use crate::limits::LEASES_MAX;
use crate::names::LeaseId;
use crate::registry::InstanceKey;
use crate::reply::{Outcome, Refusal};
use crate::time::Span;
use alloc::vec::Vec;

/// What a key may not do, as a refusal says it.
const LEASE_OF_OTHERS: &str = "renew, use or end a lease that was not begun with it";
const CLAIM_OF_OTHERS: &str = "end a claim of a lease that was not begun with it";
const KEY_OF_OTHERS: &str = "write or remove a key that hangs on no lease that was begun with it";
const INSTANCE_OF_OTHERS: &str = "change an instance on a lease that was not begun with it";
const MANY_LEASES: &str = "revoke leases by prefix, holder or label";
const DEFINITIONS: &str = "define resources or classes, or compact keys";

impl Ledger {
    /// How many living leases were begun with an API key.
    pub fn lease_count_of(&self, key: &ApiKeyName) -> usize {
        self.owners.get(key).copied().unwrap_or_default()
    }

    /// Does a command that is no renewal in the name of its key.
    pub(super) fn command_of_key(&mut self, command: &Command, events: &mut Vec<Event>) -> Outcome {
        self.actor = command.actor().cloned();
        let outcome = match self.may_order(command.plain()) {
            Ok(()) => self.command(command.plain(), events),
            Err(denied) => Err(denied),
        };
        self.actor = None;
        outcome
    }

    /// The rights of the key whose command is applied, unless it may change everything.
    fn bound(&self) -> Option<&Actor> {
        self.actor.as_ref().filter(|actor| actor.reach != Reach::All)
    }

    /// The same of a key that may change nothing but what hangs on its own leases.
    fn bound_to_own(&self) -> Option<&Actor> {
        self.actor.as_ref().filter(|actor| actor.reach == Reach::Own)
    }

    fn denied(actor: &Actor, what: &'static str) -> Result<(), Refusal> {
        Err(Refusal::Denied { key: actor.key.clone(), what: what.into() })
    }

    fn is_of(&self, actor: &Actor, lease: LeaseId) -> bool {
        self.leases.get(&lease).is_some_and(|lease| lease.owner.as_ref() == Some(&actor.key))
    }

    /// A lease that is named by its id. One that does not live is refused, or not, by what is asked.
    fn may_use(&self, lease: LeaseId) -> Result<(), Refusal> {
        match self.bound() {
            Some(actor) if self.leases.contains_key(&lease) && !self.is_of(actor, lease) => {
                Self::denied(actor, LEASE_OF_OTHERS)
            }
            _ => Ok(()),
        }
    }

    /// Whether a lease may be renewed with this key.
    pub(super) fn may_renew_as(&self, actor: Option<&Actor>, lease: LeaseId) -> Result<(), Refusal> {
        match actor.filter(|actor| actor.reach != Reach::All) {
            Some(actor) if self.leases.contains_key(&lease) && !self.is_of(actor, lease) => {
                Self::denied(actor, LEASE_OF_OTHERS)
            }
            _ => Ok(()),
        }
    }

    fn may_order(&self, command: &Command) -> Result<(), Refusal> {
        let Some(actor) = self.bound() else { return Ok(()) };
        match command {
            Command::Grant(grant) => self.may_grant(grant),
            Command::Acquire(Acquire { on, .. }) => self.may_be_on(on),
            Command::Release(release) => self.may_end_behind(&release.handle),
            Command::ReleaseLease(release) => self.may_use(release.lease),
            Command::Cancel(cancel) => self.may_use(cancel.lease),
            Command::Revoke(revoke) => match &revoke.which {
                Which::Lease(lease) => self.may_use(*lease),
                Which::Prefix { .. } | Which::Holder { .. } | Which::Label { .. } => Self::denied(actor, MANY_LEASES),
            },
            Command::Break(order) => self.may_break_as_asked(order),
            Command::Transfer(Transfer { handle, to, .. }) => {
                self.may_end_behind(handle)?;
                self.may_use(*to)
            }
            Command::Define(_) if actor.reach == Reach::Own => Self::denied(actor, DEFINITIONS),
            Command::SetClass(_) | Command::Compact(_) => Self::denied(actor, DEFINITIONS),
            Command::Register(register) => {
                self.may_be_on(&register.on)?;
                self.may_change_instance(&register.instance, None)
            }
            Command::UpdateInstance(update) => self.may_change_instance(&update.instance, update.lease),
            Command::Drain(drain) => self.may_change_instance(&drain.instance, drain.lease),
            Command::Deregister(order) => self.may_change_instance(&order.instance, order.lease),
            Command::SetHealth(set) => self.may_change_instance(&set.instance, Some(set.lease)),
            // Which keys are meant is found out where they are written and removed.
            Command::Put(_) | Command::Delete(_) | Command::Txn(_) | Command::Define(_) => Ok(()),
            Command::Renew(_) | Command::RenewHandle(_) | Command::Attributed(_) => Ok(()),
        }
    }

    fn may_grant(&self, grant: &Grant) -> Result<(), Refusal> {
        self.may_use(grant.lease)?;
        grant.parent.map_or(Ok(()), |parent| self.may_use(parent))
    }

    fn may_be_on(&self, on: &On) -> Result<(), Refusal> {
        match on {
            On::New(grant) => self.may_grant(grant),
            On::Given(lease) => self.may_use(*lease),
        }
    }

    fn may_end_behind(&self, handle: &Handle) -> Result<(), Refusal> {
        let holder = self.holder_of(&handle.resource, handle.fence);
        match (self.bound_to_own(), holder) {
            (Some(actor), Some(lease)) if !self.is_of(actor, lease) => Self::denied(actor, CLAIM_OF_OTHERS),
            _ => Ok(()),
        }
    }

    fn may_break_as_asked(&self, order: &Break) -> Result<(), Refusal> {
        let (Some(actor), Some(resource)) = (self.bound_to_own(), self.resources.get(&order.resource)) else {
            return Ok(());
        };
        let is_meant = |fence| order.fence.is_none_or(|only| only == fence);
        let frees = order.force.free == Free::Now && order.delay == Span::ZERO;
        let mut holders = resource.holders.iter().filter(|(fence, _)| is_meant(**fence));
        let mut vacating = resource.vacating.iter().filter(|fence| frees && is_meant(**fence));
        let is_own = holders.all(|(_, lease)| self.is_of(actor, *lease))
            && vacating.all(|fence| self.vacating[fence].owner.as_ref() == Some(&actor.key));
        if is_own { Ok(()) } else { Self::denied(actor, CLAIM_OF_OTHERS) }
    }

    /// Whether a command may change an instance that it names, beside the lease that it says the instance hangs on.
    fn may_change_instance(&self, key: &InstanceKey, named: Option<LeaseId>) -> Result<(), Refusal> {
        let living = self.instance(key).map(|instance| instance.lease);
        if let (Some(actor), Some(lease)) = (self.bound_to_own(), living)
            && !self.is_of(actor, lease)
        {
            return Self::denied(actor, INSTANCE_OF_OTHERS);
        }
        match named.filter(|named| living != Some(*named)) {
            Some(named) => self.may_use(named),
            None => Ok(()),
        }
    }

    /// Whether an acquire may end what a higher epoch of its holder supersedes. A holder's name is what the request says.
    pub(super) fn may_supersede(&self, superseded: &Outgoing) -> Result<(), Refusal> {
        let Some(actor) = self.bound_to_own() else { return Ok(()) };
        let is_own = superseded.claims.iter().all(|(name, claim)| match claim {
            Claim::Holding(fence) => self.is_of(actor, self.resources[name].holders[fence]),
            Claim::Waiting(arrival) => self.is_of(actor, self.waiters[arrival].lease),
            Claim::Vacating(fence) => self.vacating[fence].owner.as_ref() == Some(&actor.key),
        });
        if is_own { Ok(()) } else { Self::denied(actor, CLAIM_OF_OTHERS) }
    }

    /// Whether a key may be written: as it was before, and as it will hang.
    pub(super) fn may_write_key(&self, put: &Put, before: Option<&KeyValue>) -> Result<(), Refusal> {
        if let Hang::On(lease) = put.lease {
            self.may_use(lease)?;
        }
        let Some(actor) = self.bound_to_own() else { return Ok(()) };
        if put.lease == Hang::Free {
            return Self::denied(actor, KEY_OF_OTHERS);
        }
        before.map_or(Ok(()), |before| self.may_remove_key(before))
    }

    /// Whether a key may be removed that has this.
    pub(super) fn may_remove_key(&self, has: &KeyValue) -> Result<(), Refusal> {
        match self.bound_to_own() {
            Some(actor) if !has.lease.is_some_and(|lease| self.is_of(actor, lease)) => {
                Self::denied(actor, KEY_OF_OTHERS)
            }
            _ => Ok(()),
        }
    }

    /// Whether one more lease may begin.
    pub(super) fn may_begin_another(&self) -> Result<(), Refusal> {
        let limit = self.actor.as_ref().and_then(|actor| Some((&actor.key, actor.leases_max?)));
        if let Some((key, max)) = limit
            && self.lease_count_of(key) >= usize::try_from(max).unwrap_or(usize::MAX)
        {
            return Err(Refusal::TooManyLeases { key: key.clone(), max });
        }
        if self.leases.len() >= LEASES_MAX {
            return Err(Refusal::Full { what: "leases".into(), max: LEASES_MAX });
        }
        Ok(())
    }

    /// Counts a lease that begins, and says whose it is: leases of one key share its name.
    pub(super) fn own(&mut self) -> Option<ApiKeyName> {
        let key = self.actor.as_ref().map(|actor| actor.key.clone())?;
        self.count_owned(&key);
        let shared = self.owners.get_key_value(&key).map(|(shared, _)| shared.clone());
        Some(shared.unwrap_or(key))
    }

    /// Counts a lease of a key.
    pub(super) fn count_owned(&mut self, key: &ApiKeyName) {
        match self.owners.get_mut(key) {
            Some(count) => *count += 1,
            None => drop(self.owners.insert(key.clone(), 1)),
        }
    }

    /// A lease of a key has ended.
    pub(super) fn disown(&mut self, key: Option<&ApiKeyName>) {
        let Some(key) = key else { return };
        let count = self.owners.get_mut(key).expect("every lease of a key is counted");
        *count -= 1;
        if *count == 0 {
            self.owners.remove(key);
        }
    }
}

//! What the API key of a command may do, written down once more: which leases the command names, and whose are the things
//! that it ends or writes.

use super::{Group, Held, Model};
use tenure_core::{
    Actor, ApiKeyName, Command, Free, Grant, Hang, InstanceKey, LeaseId, On, Put, Reach, Refusal, Span, Vacating, Which,
};

const LEASE: &str = "renew, use or end a lease that was not begun with it";
const CLAIM: &str = "end a claim of a lease that was not begun with it";
const KEY: &str = "write or remove a key that hangs on no lease that was begun with it";
const INSTANCE: &str = "change an instance on a lease that was not begun with it";
const MANY: &str = "revoke leases by prefix, holder or label";
const DEFINITIONS: &str = "define resources or classes, or compact keys";

impl Model {
    fn owner(&self, lease: LeaseId) -> Option<&ApiKeyName> {
        self.leases.get(&lease)?.owner.as_ref()
    }

    /// Refuses what belongs to another than the actor, if the actor is one of those whose reach is as it is here.
    fn refuse_unless(
        &self,
        reaches: &[Reach],
        is_own: impl Fn(&ApiKeyName) -> bool,
        what: &'static str,
    ) -> Result<(), Refusal> {
        match &self.actor {
            Some(actor) if reaches.contains(&actor.reach) && !is_own(&actor.key) => {
                Err(Refusal::Denied { key: actor.key.clone(), what: what.into() })
            }
            _ => Ok(()),
        }
    }

    fn only_own(&self, is_own: impl Fn(&ApiKeyName) -> bool, what: &'static str) -> Result<(), Refusal> {
        self.refuse_unless(&[Reach::Own], is_own, what)
    }

    pub(super) fn may_name(&self, leases: &[LeaseId]) -> Result<(), Refusal> {
        let is_own = |key: &ApiKeyName| {
            leases.iter().all(|lease| !self.leases.contains_key(lease) || self.owner(*lease) == Some(key))
        };
        self.refuse_unless(&[Reach::Own, Reach::Named], is_own, LEASE)
    }

    /// The same of a renewal, which is looked at before its command has its turn.
    pub(super) fn may_renew(&mut self, actor: Option<&Actor>, lease: LeaseId) -> Result<(), Refusal> {
        self.actor = actor.cloned();
        let may = self.may_name(&[lease]);
        self.actor = None;
        may
    }

    fn may_begin_or_use(&self, on: &On) -> Result<(), Refusal> {
        match on {
            On::New(Grant { lease, parent, .. }) => self.may_name(&[&[*lease][..], parent.as_slice()].concat()),
            On::Given(lease) => self.may_name(&[*lease]),
        }
    }

    pub(super) fn may(&self, command: &Command) -> Result<(), Refusal> {
        let never = |_: &ApiKeyName| false;
        let holds = |handle: &tenure_core::Handle| {
            let claim = self.current(handle).ok().map(|claim| claim.lease);
            self.only_own(|key| claim.is_none_or(|lease| self.owner(lease) == Some(key)), CLAIM)
        };
        match command {
            Command::Grant(grant) => self.may_begin_or_use(&On::New(grant.clone())),
            Command::Acquire(acquire) => self.may_begin_or_use(&acquire.on),
            Command::Release(release) => holds(&release.handle),
            Command::ReleaseLease(release) => self.may_name(&[release.lease]),
            Command::Cancel(cancel) => self.may_name(&[cancel.lease]),
            Command::Revoke(revoke) => match &revoke.which {
                Which::Lease(lease) => self.may_name(&[*lease]),
                _ => self.refuse_unless(&[Reach::Own, Reach::Named], never, MANY),
            },
            Command::Break(order) => {
                let is_meant = |fence| order.fence.is_none_or(|only| only == fence);
                let held = self.holders_of(&order.resource).into_iter().filter(|claim| is_meant(claim.fence));
                let mut owners: Vec<_> = held.map(|claim| self.owner(claim.lease).cloned()).collect();
                if order.force.free == Free::Now && order.delay == Span::ZERO {
                    let vacating = self.vacating_on(&order.resource).into_iter();
                    owners.extend(vacating.filter(|(fence, _)| is_meant(*fence)).map(|(_, stake)| stake.owner.clone()));
                }
                self.only_own(|key| owners.iter().all(|owner| owner.as_ref() == Some(key)), CLAIM)
            }
            Command::Transfer(transfer) => holds(&transfer.handle).and_then(|()| self.may_name(&[transfer.to])),
            Command::Define(_) => self.only_own(never, DEFINITIONS),
            Command::SetClass(_) | Command::Compact(_) => {
                self.refuse_unless(&[Reach::Own, Reach::Named], never, DEFINITIONS)
            }
            Command::Register(register) => {
                self.may_begin_or_use(&register.on)?;
                self.may_change(&register.instance, None)
            }
            Command::UpdateInstance(update) => self.may_change(&update.instance, update.lease),
            Command::Drain(drain) => self.may_change(&drain.instance, drain.lease),
            Command::Deregister(order) => self.may_change(&order.instance, order.lease),
            Command::SetHealth(set) => self.may_change(&set.instance, Some(set.lease)),
            _ => Ok(()),
        }
    }

    fn may_change(&self, instance: &InstanceKey, named: Option<LeaseId>) -> Result<(), Refusal> {
        let lease = self.instances.get(instance).map(|listed| listed.lease);
        self.only_own(|key| lease.is_none_or(|lease| self.owner(lease) == Some(key)), INSTANCE)?;
        let named = named.filter(|named| Some(*named) != lease);
        self.may_name(named.as_slice())
    }

    pub(super) fn may_end_those(
        &self,
        held: &[&Held],
        waiting: &[&Group],
        vacating: &[&Vacating],
    ) -> Result<(), Refusal> {
        let leases = held.iter().map(|claim| claim.lease).chain(waiting.iter().map(|group| group.lease));
        let owners: Vec<_> =
            leases.map(|lease| self.owner(lease)).chain(vacating.iter().map(|it| it.owner.as_ref())).collect();
        self.only_own(|key| owners.iter().all(|owner| *owner == Some(key)), CLAIM)
    }

    pub(super) fn may_write(&self, put: &Put) -> Result<(), Refusal> {
        if let Hang::On(lease) = put.lease {
            self.may_name(&[lease])?;
        }
        self.only_own(|_| put.lease != Hang::Free, KEY)?;
        self.may_remove(|key| *key == put.key)
    }

    pub(super) fn may_remove(&self, is_meant: impl Fn(&tenure_core::Key) -> bool) -> Result<(), Refusal> {
        let had: Vec<_> = self.keys.iter().filter(|(key, _)| is_meant(key)).map(|(_, value)| value.lease).collect();
        let is_own =
            |key: &ApiKeyName| had.iter().all(|lease| lease.is_some_and(|lease| self.owner(lease) == Some(key)));
        self.only_own(is_own, KEY)
    }

    pub(super) fn has_room_for_a_lease(&self) -> Result<(), Refusal> {
        let Some(Actor { key, leases_max: Some(max), .. }) = &self.actor else { return Ok(()) };
        let own = self.leases.values().filter(|lease| lease.owner.as_ref() == Some(key)).count();
        if own as u64 >= u64::from(*max) {
            return Err(Refusal::TooManyLeases { key: key.clone(), max: *max });
        }
        Ok(())
    }
}

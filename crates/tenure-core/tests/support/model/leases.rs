//! How leases begin, are extended and are touched, and the classes that rule it.

use super::{Lease, Model, Origin, lapsed};
use crate::support::name;
use std::collections::{BTreeMap, BTreeSet};
use tenure_core::{
    Class, Command, Counts, Grant, Happening, Kind, LeaseId, Moment, Name, Outcome, Policy, Refusal, Renewal, Renewed,
    Reply, Span, Ttl, limits,
};

/// One lease to renew, and which item of which command asked for it.
struct Asked {
    command: usize,
    item: usize,
    renewal: Result<Renewal, Refusal>,
    kind: Kind,
}

impl Model {
    /// Answers the renewals of an entry, parents before their children: an extension is cut at the parent's deadline.
    pub(super) fn renewals(&mut self, commands: &[Command]) -> Vec<Option<Outcome>> {
        let mut asked: Vec<Asked> = commands.iter().enumerate().flat_map(|(at, it)| self.asked(at, it)).collect();
        asked.sort_by_key(|one| one.renewal.as_ref().map_or(0, |renewal| self.lineage(renewal.lease).len()));
        let answer = |one: Asked| (one.command, one.item, self.renew(one.renewal, one.kind));
        let mut answers: Vec<_> = asked.into_iter().map(answer).collect();
        answers.sort_by_key(|(command, item, _)| (*command, *item));
        let of = |at: usize| answers.iter().filter(move |(command, ..)| *command == at).map(|(.., it)| it.clone());
        let replies = commands.iter().enumerate().map(|(at, command)| match command.plain() {
            Command::Renew(_) => Some(Ok(Reply::Renewed(of(at).collect()))),
            Command::RenewHandle(_) => of(at).next().map(|answer| answer.map(Reply::HandleRenewed)),
            _ => None,
        });
        replies.collect()
    }

    fn asked(&mut self, command: usize, what: &Command) -> Vec<Asked> {
        let actor = what.actor();
        match what.plain() {
            Command::Renew(renew) => {
                let each = renew.leases.iter().enumerate();
                let asked = |(item, one): (usize, &Renewal)| {
                    let renewal = self.may_renew(actor, one.lease).map(|()| *one);
                    Asked { command, item, renewal, kind: renew.kind }
                };
                each.map(asked).collect()
            }
            Command::RenewHandle(renew) => {
                let behind = self.current(&renew.handle).map(|claim| claim.lease);
                let behind = behind.and_then(|lease| self.may_renew(actor, lease).map(|()| lease));
                let renewal = behind.map(|lease| Renewal { lease, ttl: renew.ttl });
                vec![Asked { command, item: 0, renewal, kind: renew.kind }]
            }
            _ => Vec::new(),
        }
    }

    fn renew(&mut self, renewal: Result<Renewal, Refusal>, kind: Kind) -> Result<Renewed, Refusal> {
        let Renewal { lease: id, ttl } = renewal?;
        let lease = self.living(id)?;
        if let Some(class) = lease.grant.class.as_ref().map(|class| &self.classes[class]) {
            let is_excused = lease.unconfirmed || !self.groups_of(id).is_empty();
            if !class.renew.allows(kind) && !is_excused {
                return Err(Refusal::NotRenewable { lease: id, class: class.name.clone(), policy: class.renew });
            }
            ttl.map_or(Ok(()), |ttl| in_range(class, ttl))?;
        }
        let lease = self.leases.get_mut(&id).expect("it was just found");
        lease.ttl = ttl.unwrap_or(lease.ttl);
        self.heard_of(id);
        Ok(self.renewed(id))
    }

    /// What a renewal does to a lease.
    fn heard_of(&mut self, id: LeaseId) {
        self.extend(id);
        let stamp = self.stamp();
        let lease = self.leases.get_mut(&id).expect("only the living are heard of");
        lease.unconfirmed = false;
        lease.renewed = stamp;
    }

    fn renewed(&self, id: LeaseId) -> Renewed {
        let held = self.held_by(id);
        let waiting: usize = held.iter().map(|claim| self.line(&claim.resource).len()).sum();
        let longest = self.first_waiter_of(id).map_or(0, |since| self.now.millis_since(since));
        let breaks = held.iter().filter_map(|claim| claim.breaks.as_ref()).map(|(at, _)| at.millis_since(self.now));
        Renewed {
            lease: id,
            ttl_ms: self.ttl_ms(id),
            is_final: self.leases[&id].capped,
            waiting: waiting as u64,
            longest_wait_ms: longest,
            breaks_in_ms: breaks.min(),
            lost: self.leases[&id].lost,
        }
    }

    /// What a command that names a lease does to it, if its class lives on activity.
    pub(super) fn touch(&mut self, id: LeaseId) {
        let class = self.leases.get(&id).and_then(|lease| lease.grant.class.as_ref());
        if class.is_some_and(|class| self.classes[class].renew == Policy::Activity) {
            self.heard_of(id);
        }
    }

    /// The effective TTL of a living lease.
    pub(super) fn ttl_ms(&self, id: LeaseId) -> u64 {
        let lease = &self.leases[&id];
        lease.ttl.millis().min(self.remaining_ms(id))
    }

    pub(super) fn remaining_ms(&self, id: LeaseId) -> u64 {
        self.leases[&id].deadline.millis_since(self.now)
    }

    pub(super) fn extend(&mut self, id: LeaseId) {
        let (deadline, capped) = self.reach(id);
        let lease = self.leases.get_mut(&id).expect("only the living are extended");
        lease.deadline = lease.deadline.max(deadline);
        lease.capped = capped;
    }

    /// How far an extension of a lease would reach now, and whether its lifetime cuts it.
    fn reach(&self, id: LeaseId) -> (Moment, bool) {
        let lease = &self.leases[&id];
        let asked = self.now.after(lease.ttl);
        let parents = lease.grant.parent.map(|parent| self.leases[&parent].deadline);
        let lifetimes = self.lifetime_cap(id);
        let reach = [Some(asked), parents, lifetimes].into_iter().flatten().min().expect("one is given");
        (reach, lifetimes.is_some_and(|cap| cap < asked))
    }

    fn lifetime_cap(&self, id: LeaseId) -> Option<Moment> {
        let lease = &self.leases[&id];
        let (lifetime, from) = (lease.grant.lifetime?, lease.lifetime_from?);
        match lifetime.counts {
            Counts::Always => Some(from.plus(lifetime.span)),
            Counts::WhileOthersWait => Some(from.max(self.first_waiter_of(id)?).plus(lifetime.span)),
        }
    }

    /// Since when the longest waiter of what a lease holds has waited.
    fn first_waiter_of(&self, id: LeaseId) -> Option<Moment> {
        let lines = self.held_by(id).into_iter().flat_map(|claim| self.line(&claim.resource));
        lines.map(|group| group.since.at).min()
    }

    pub(super) fn grant(&mut self, grant: &Grant) -> Outcome {
        if !self.is_retry(grant)? {
            self.may_begin(grant)?;
            let begun = self.begin(grant, Origin::Grant);
            self.change(vec![begun]);
        }
        Ok(Reply::Granted { lease: grant.lease, ttl_ms: self.ttl_ms(grant.lease), revision: self.revision })
    }

    /// Whether this is a repeated grant of a lease that lives.
    pub(super) fn is_retry(&self, grant: &Grant) -> Result<bool, Refusal> {
        if let Some(lease) = self.leases.get(&grant.lease) {
            let is_same = lease.grant.holder == grant.holder && lease.grant.request == grant.request;
            let exists = || Refusal::Exists { lease: grant.lease, holder: lease.grant.holder.clone() };
            return if is_same { Ok(true) } else { Err(exists()) };
        }
        match self.ended_leases.get(&grant.lease) {
            Some(ended) if ended.holder == grant.holder && ended.request == grant.request => Err(lapsed(ended)),
            _ => Ok(false),
        }
    }

    pub(super) fn may_begin(&self, grant: &Grant) -> Result<(), Refusal> {
        self.may_begin_so(grant)?;
        self.has_room_for_a_lease()
    }

    pub(super) fn may_begin_so(&self, grant: &Grant) -> Result<(), Refusal> {
        if grant.parent == Some(grant.lease) {
            return Err(Refusal::OwnParent { lease: grant.lease });
        }
        if let Some(parent) = grant.parent {
            self.living(parent)?;
        }
        if let Some(name) = &grant.class {
            let class = self.classes.get(name).ok_or_else(|| Refusal::NoClass { class: name.clone() })?;
            grant.ttl.map_or(Ok(()), |ttl| in_range(class, ttl))?;
        }
        Ok(())
    }

    /// Begins a lease. What its class presets is written into it, since a class may change later.
    pub(super) fn begin(&mut self, grant: &Grant, origin: Origin) -> Happening {
        if let Some(parent) = grant.parent {
            self.touch(parent);
        }
        let id = grant.lease;
        let class = grant.class.as_ref().map(|name| &self.classes[name]);
        let default_ttl = Ttl::from_millis(limits::TTL_MS_DEFAULT).expect("the default is in range");
        let lifetime = grant.lifetime.or(class.and_then(|class| class.lifetime));
        let lease = Lease {
            ttl: grant.ttl.or(class.map(|class| class.ttl)).unwrap_or(default_ttl),
            grace: grant.grace.or(class.map(|class| class.grace)).unwrap_or(Span::ZERO),
            grant: Grant { lifetime, ..grant.clone() },
            deadline: self.now,
            granted: self.stamp(),
            renewed: self.stamp(),
            origin,
            capped: false,
            unconfirmed: false,
            lost: 0,
            answered: BTreeSet::new(),
            answered_below: 0,
            lifetime_from: (origin != Origin::Acquire).then_some(self.now),
            owner: self.actor.as_ref().map(|actor| actor.key.clone()),
        };
        self.leases.insert(id, lease);
        let (deadline, capped) = self.reach(id);
        let lease = self.leases.get_mut(&id).expect("it just began");
        (lease.deadline, lease.capped) = (deadline, capped);
        Happening::Granted {
            lease: id,
            holder: grant.holder.clone(),
            ttl_ms: self.ttl_ms(id),
            parent: grant.parent,
            class: grant.class.clone(),
        }
    }
}

pub(super) fn in_range(class: &Class, ttl: Ttl) -> Result<(), Refusal> {
    if class.ttl_min <= ttl && ttl <= class.ttl_max {
        return Ok(());
    }
    Err(Refusal::TtlOfClass {
        class: class.name.clone(),
        ttl_ms: ttl.millis(),
        min_ms: class.ttl_min.millis(),
        max_ms: class.ttl_max.millis(),
    })
}

/// The classes that every ledger starts with.
pub(super) fn built_in() -> BTreeMap<Name, Class> {
    let ttl = |ms: u64| Ttl::from_millis(ms).expect("the classes that are built in have good TTLs");
    let classes = [
        ("lock", 15_000, Policy::Auto),
        ("election", 10_000, Policy::Auto),
        ("session", 600_000, Policy::Activity),
        ("reservation", 3_600_000, Policy::Explicit),
        ("cache", 300_000, Policy::Never),
        ("registration", 15_000, Policy::Auto),
    ];
    let class = |(text, ttl_ms, renew): (&str, u64, Policy)| Class {
        name: name(text),
        ttl: ttl(ttl_ms),
        ttl_min: ttl(limits::TTL_MS_MIN),
        ttl_max: ttl(limits::TTL_MS_MAX),
        renew,
        grace: Span::ZERO,
        lifetime: None,
    };
    classes.map(class).into_iter().map(|class| (class.name.clone(), class)).collect()
}

//! Instances as they are shown: those that work can go to, one in full, and how many each service has.

use super::Page;
use tenure_api::{
    BadRequest, ended, read_label, read_service, read_wanted, read_word, v1, write_details, write_health,
    write_judgement,
};
use tenure_core::limits::{PENALTY_FREE, PENALTY_HELD};
use tenure_core::{
    EndedInstance, Epoch, Health, Instance, InstanceId, InstanceKey, Keys, Label, Labels, LeaseId, Ledger, Moment,
    Name, Refusal, Service, Wanted as Expression, Word,
};

/// Which instances are asked for.
#[derive(Clone, Debug)]
pub(in crate::doors) struct Wanted {
    services: Services,
    capabilities: Option<Expression>,
    labels: Vec<Label>,
    zone: Option<Word>,
    all: bool,
}

#[derive(Clone, Debug)]
enum Services {
    One(Name),
    Under(String),
}

impl Wanted {
    pub(in crate::doors) fn read(request: &v1::DiscoverRequest) -> Result<Self, BadRequest> {
        let services = match (request.service.as_str(), request.service_prefix.as_str()) {
            ("", prefix) => Services::Under(tenure_api::read_prefix(prefix)?),
            (service, "") => Services::One(read_service(service)?),
            _ => return Err(BadRequest::Both("`service` and `service_prefix`")),
        };
        let labels = request.labels.iter();
        Labels::parse(labels.clone().map(|(key, value)| (key.as_str(), value.as_str()))).map_err(BadRequest::Label)?;
        let label = |(key, value): (&String, &String)| v1::Label { key: key.clone(), value: value.clone() };
        Ok(Self {
            services,
            capabilities: read_wanted(&request.capabilities)?,
            labels: labels.map(|pair| read_label(&label(pair))).collect::<Result<_, _>>()?,
            zone: read_word("the zone", &request.zone)?,
            all: request.all,
        })
    }

    /// What wakes whoever watches them.
    pub(in crate::doors) fn keys(&self) -> Keys {
        match &self.services {
            Services::One(name) => {
                let key = tenure_core::Key::parse(name.as_str().as_bytes());
                Keys::One(key.expect("what is short enough for a name is short enough for a key"))
            }
            Services::Under(prefix) => Keys::Prefix(prefix.as_bytes().into()),
        }
    }

    /// Whether instances of this service are asked for at all.
    pub(in crate::doors) fn is_of(&self, service: &Name) -> bool {
        match &self.services {
            Services::One(name) => name == service,
            Services::Under(prefix) => service.as_str().starts_with(prefix.as_str()),
        }
    }

    /// Whether this instance of such a service is asked for.
    pub(in crate::doors) fn wants(&self, instance: &Instance) -> bool {
        let details = instance.details();
        (self.all || instance.is_routed())
            && (self.zone.is_none() || self.zone == details.zone)
            && self.capabilities.as_ref().is_none_or(|wanted| wanted.is_met_by(&details.capabilities))
            && self.labels.iter().all(|label| details.labels.has(label))
    }

    /// The services that are asked for, from one on.
    pub(in crate::doors) fn services<'a>(
        &'a self,
        ledger: &'a Ledger,
        from: &'a str,
    ) -> impl Iterator<Item = (&'a Name, &'a Service)> {
        let first = match &self.services {
            Services::One(name) => name.as_str(),
            Services::Under(prefix) => prefix.as_str(),
        };
        ledger.services_from(first.max(from)).take_while(|(name, _)| self.is_of(name))
    }

    /// All instances of those services, wanted or not, from one on.
    fn instances<'a>(
        &'a self,
        ledger: &'a Ledger,
        from: Option<&'a InstanceKey>,
    ) -> impl Iterator<Item = (&'a Name, &'a InstanceId, &'a Instance)> {
        let services = self.services(ledger, from.map_or("", |from| from.service.as_str()));
        services.flat_map(move |(service, _)| {
            let first = from.filter(|from| from.service == *service).map_or("", |from| from.id.as_str());
            ledger.instances(service, first).map(move |(id, instance)| (service, id, instance))
        })
    }

    /// Whether there is any instance that is asked for.
    pub(in crate::doors) fn is_met_in(&self, ledger: &Ledger) -> bool {
        self.instances(ledger, None).any(|(_, _, instance)| self.wants(instance))
    }

    /// As many instances as fit on a page, and where the next one starts.
    pub(in crate::doors) fn page(
        &self,
        ledger: &Ledger,
        from: Option<&InstanceKey>,
        limit: u32,
        now: Moment,
    ) -> (Vec<v1::Instance>, Option<InstanceKey>) {
        let mut page = Page::new(limit);
        let mut items = Vec::new();
        for (service, id, instance) in self.instances(ledger, from) {
            let here = || Some(InstanceKey { service: service.clone(), id: id.clone() });
            if !page.looks() {
                return (items, here());
            }
            if !self.wants(instance) {
                continue;
            }
            let item = item(ledger, service, id, instance, now);
            if !page.takes(&item) {
                return (items, here());
            }
            items.push(item);
        }
        (items, None)
    }
}

/// Where a list goes on, if it says so.
pub(in crate::doors) fn read_from(text: &str) -> Result<Option<InstanceKey>, BadRequest> {
    (!text.is_empty()).then(|| InstanceKey::parse(text)).transpose().map_err(|_| BadRequest::From)
}

pub(in crate::doors) fn discover(
    ledger: &Ledger,
    wanted: &Wanted,
    (from, limit): (Option<&InstanceKey>, u32),
    now: Moment,
) -> v1::DiscoverReply {
    let (items, next) = wanted.page(ledger, from, limit, now);
    v1::DiscoverReply {
        valid_for_ms: items.iter().map(|item| item.valid_for_ms).min().unwrap_or_default(),
        items,
        next: next.map_or_else(String::new, |key| key.to_string()),
        revision: ledger.revision().0,
        now_ms: now.millis(),
    }
}

pub(in crate::doors) fn item(
    ledger: &Ledger,
    service: &Name,
    id: &InstanceId,
    instance: &Instance,
    now: Moment,
) -> v1::Instance {
    let lease = ledger.lease(instance.lease()).expect("an instance hangs on a living lease");
    let findings = instance.findings().map(|(check, finding)| v1::Finding {
        check: check.name.to_string(),
        health: write_health(finding.health).into(),
        note: finding.note.to_string(),
        since_wall_ms: finding.since_wall_ms,
        for_ms: now.millis_since(finding.since),
    });
    v1::Instance {
        service: service.to_string(),
        id: id.to_string(),
        details: Some(write_details(instance.details())),
        health: write_health(instance.overall()).into(),
        routed: instance.is_routed(),
        valid_for_ms: ledger.valid_for(instance, now).millis(),
        findings: findings.collect(),
        draining: instance.draining().map(|draining| v1::Drained {
            by: draining.by.to_string(),
            reason: draining.reason.to_string(),
            since_wall_ms: draining.since_wall_ms,
        }),
        held_down_ms: instance.held_until().map(|until| until.millis_since(now)),
        suspect: lease.suspect().map(|suspect| v1::Suspect {
            kept_ms: suspect.until.millis_since(now),
            judgement: Some(write_judgement(&suspect.judgement)),
        }),
        lease: instance.lease().number(),
        holder: lease.holder().to_string(),
        epoch: instance.epoch().map_or(0, Epoch::number),
        ttl_ms: lease.ttl().millis(),
        since_wall_ms: instance.since_wall_ms(),
    }
}

pub(in crate::doors) fn show(
    ledger: &Ledger,
    key: &InstanceKey,
    now: Moment,
) -> Result<v1::ShowInstanceReply, Refusal> {
    let mut past: Vec<v1::PastInstance> = ledger.ended_instances(key).map(past).collect();
    past.reverse();
    let mut reply = v1::ShowInstanceReply {
        past,
        penalty: ledger.ended_instances(key).last().map_or(0, |ended| ended.penalty.at(now)),
        penalty_held: PENALTY_HELD,
        penalty_free: PENALTY_FREE,
        revision: ledger.revision().0,
        now_ms: now.millis(),
        ..v1::ShowInstanceReply::default()
    };
    let Some(instance) = ledger.instance(key) else {
        let unknown = || Refusal::NoInstance { instance: key.clone(), ended: None };
        return if reply.past.is_empty() { Err(unknown()) } else { Ok(reply) };
    };
    let lease = ledger.lease(instance.lease()).expect("an instance hangs on a living lease");
    reply.living = Some(item(ledger, &key.service, &key.id, instance, now));
    reply.penalty = instance.penalty().at(now);
    reply.cohort = ledger.cohort(key, now).map(|judgement| write_judgement(&judgement));
    reply.silent_ms = now.millis_since(lease.renewed());
    reply.gap_ms = lease.gap_ms();
    reply.late = lease.is_late(now);
    reply.revoked_in_ms = instance.revoked_at().map(|at| at.millis_since(now));
    Ok(reply)
}

/// The lease that an instance hangs on, if it lives in the epoch and on the lease that are named; 0 names none.
pub(in crate::doors) fn lease_of(
    ledger: &Ledger,
    key: &InstanceKey,
    (epoch, lease): (u64, u64),
) -> Result<LeaseId, Refusal> {
    let last = ledger.ended_instances(key).last();
    let ended = last.map(|ended| (ended.how.clone(), ended.when, ended.wall_ms));
    let Some(instance) = ledger.instance(key) else {
        return Err(Refusal::NoInstance { instance: key.clone(), ended });
    };
    match instance.epoch().map_or(0, Epoch::number) {
        current if epoch == 0 || epoch == current => {}
        current if epoch < current => {
            return Err(Refusal::OlderInstance { instance: key.clone(), asked: epoch, current });
        }
        // One of a lower epoch lives, and the asked one does not yet.
        _ => return Err(Refusal::NoInstance { instance: key.clone(), ended: None }),
    }
    match LeaseId::from_number(lease).filter(|lease| *lease != instance.lease()) {
        Some(lease) => {
            let holder = ledger.lease(instance.lease()).expect("an instance hangs on a living lease").holder().clone();
            Err(Refusal::OtherLease { instance: key.clone(), lease, holder })
        }
        None => Ok(instance.lease()),
    }
}

fn past(ended_one: &EndedInstance) -> v1::PastInstance {
    v1::PastInstance {
        lease: ended_one.lease.number(),
        holder: ended_one.holder.to_string(),
        epoch: ended_one.epoch.map_or(0, Epoch::number),
        since_wall_ms: ended_one.since_wall_ms,
        lived_ms: ended_one.when.millis_since(ended_one.since),
        end: Some(ended(&ended_one.how, ended_one.when, ended_one.wall_ms)),
    }
}

pub(in crate::doors) fn services(
    ledger: &Ledger,
    request: &v1::ListServicesRequest,
    now: Moment,
) -> v1::ListServicesReply {
    let mut page = Page::new(request.limit);
    let mut reply = v1::ListServicesReply {
        revision: ledger.revision().0,
        now_ms: now.millis(),
        ..v1::ListServicesReply::default()
    };
    let from = request.from.as_str().max(&request.prefix);
    let named = ledger.services_from(from).take_while(|(name, _)| name.as_str().starts_with(&request.prefix));
    for (name, service) in named {
        let is_looked_at = page.looks();
        if !is_looked_at || !page.takes_bytes(name.as_str().len() + size_of::<v1::ServiceCount>()) {
            reply.next = name.to_string();
            break;
        }
        reply.items.push(count(ledger, name, service));
        page.has_looked_at(service.instance_count());
    }
    reply
}

fn count(ledger: &Ledger, name: &Name, service: &Service) -> v1::ServiceCount {
    let mut count = v1::ServiceCount { service: name.to_string(), ..v1::ServiceCount::default() };
    for (_, instance) in service.instances() {
        count.instances += 1;
        count.routed += u64::from(instance.is_routed());
        count.draining += u64::from(instance.draining().is_some());
        count.suspect += u64::from(ledger.lease(instance.lease()).is_some_and(|lease| lease.suspect().is_some()));
        match instance.overall() {
            Health::Passing => count.passing += 1,
            Health::Degraded => count.degraded += 1,
            Health::Unknown => count.unknown += 1,
            Health::Critical => count.critical += 1,
        }
    }
    count
}

//! Who gets the next piece of work: those that are well before those that are degraded, those in the own zone before those
//! elsewhere, and among equals by weight.

use super::set::Found;
use crate::v1::Health;

/// The best of those that work can go to: all alike in health and zone.
pub(super) fn best<'a>(found: &'a [Found], zone: &str) -> Vec<&'a Found> {
    let rank = |one: &Found| {
        let is_far = zone.is_empty() || one.zone() != zone;
        (one.instance.health() != Health::Passing, is_far)
    };
    let can = |one: &&Found| one.instance.routed && one.weight() > 0;
    let Some(first) = found.iter().filter(can).map(rank).min() else { return Vec::new() };
    found.iter().filter(can).filter(|one| rank(one) == first).collect()
}

/// One of them by weight; `chance` is from 0 to below 1.
pub(super) fn by_weight<'a>(best: &[&'a Found], chance: f64) -> Option<&'a Found> {
    let all: u64 = best.iter().map(|one| u64::from(one.weight())).sum();
    let mut left = (chance * all as f64) as u64;
    for one in best {
        match left.checked_sub(one.weight().into()) {
            Some(rest) => left = rest,
            None => return Some(one),
        }
    }
    best.last().copied()
}

/// The one for a key: the same for everybody who sees the same instances, and when one of them goes, only its keys move.
/// Each draws a number by the key, scaled by its weight, and the highest has it (rendezvous hashing).
pub(super) fn by_key<'a>(best: &[&'a Found], key: &[u8]) -> Option<&'a Found> {
    let score = |one: &Found| {
        let drawn = hash(&[key, one.instance.service.as_bytes(), one.instance.id.as_bytes()]);
        // From above 0 to below 1, so that the logarithm is a number below 0.
        let chance = ((drawn >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
        -f64::from(one.weight()) / chance.ln()
    };
    best.iter().copied().max_by(|one, other| score(one).total_cmp(&score(other)))
}

/// FNV-1a, and the end of splitmix64 to spread it. It is part of what clients agree on: it never changes.
fn hash(parts: &[&[u8]]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in parts.iter().flat_map(|part| part.iter().copied().chain([0])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::BootTime;
    use crate::v1;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn found(id: &str, zone: &str, weight: u32, health: Health) -> Found {
        let details = v1::Details { zone: zone.into(), weight: Some(weight), ..v1::Details::default() };
        let routed = health != Health::Critical;
        let (id, details, health) = (id.into(), Some(details), health.into());
        let instance = v1::Instance { id, details, health, routed, ..v1::Instance::default() };
        Found { instance: Arc::new(instance), until: BootTime::default(), ends_ms: 0 }
    }

    fn ids(best: &[&Found]) -> Vec<String> {
        best.iter().map(|one| one.instance.id.clone()).collect()
    }

    #[test]
    fn health_comes_before_zone_and_zone_before_the_rest() {
        let mut all = vec![
            found("down", "a", 1, Health::Critical),
            found("none", "a", 0, Health::Passing),
            found("poor-near", "a", 1, Health::Degraded),
            found("poor-far", "b", 1, Health::Degraded),
            found("good-far", "b", 1, Health::Passing),
            found("good-near", "a", 1, Health::Passing),
        ];
        let mut order = Vec::new();
        while let [one, ..] = best(&all, "a").as_slice() {
            let id = one.instance.id.clone();
            order.push(id.clone());
            all.retain(|other| other.instance.id != id);
        }
        assert_eq!(order, ["good-near", "good-far", "poor-near", "poor-far"]);
        let all = [found("a", "a", 1, Health::Passing), found("b", "b", 1, Health::Passing)];
        assert_eq!(ids(&best(&all, "")), ["a", "b"], "without a zone of one's own all are alike");
        assert_eq!(ids(&best(&all, "c")), ["a", "b"], "and with one where nobody is");
    }

    #[test]
    fn every_share_of_chance_is_as_large_as_its_weight() {
        let all = [found("a", "", 1, Health::Passing), found("b", "", 3, Health::Passing)];
        let best = best(&all, "");
        let picked = |chance| by_weight(&best, chance).map(|one| one.instance.id.clone());
        let quarters = [0.0, 0.249, 0.25, 0.5, 0.999_999].map(|chance| picked(chance).unwrap());
        assert_eq!(quarters, ["a", "a", "b", "b", "b"]);
        assert!(by_weight(&[], 0.5).is_none());
    }

    #[test]
    fn a_key_stays_where_it_is_unless_its_own_instance_goes() {
        let all: Vec<Found> = (0..10).map(|n| found(&format!("i{n}"), "", 1 + n % 2, Health::Passing)).collect();
        let place = |all: &[Found], key: u32| by_key(&best(all, ""), &key.to_be_bytes()).unwrap().instance.id.clone();
        let before: BTreeMap<u32, String> = (0..3_000).map(|key| (key, place(&all, key))).collect();
        let fewer: Vec<Found> = all.iter().filter(|one| one.instance.id != "i3").cloned().collect();
        for (key, id) in &before {
            assert!(id == "i3" || place(&fewer, *key) == *id, "{key} moved from {id}");
        }
        let count = |id: &str| before.values().filter(|other| *other == id).count();
        assert!(count("i0") * 4 / 3 < count("i1"), "{} and {} by weight", count("i0"), count("i1"));
        assert!(count("i3") > 250, "a weight of 2 in 15 has some 400 of 3,000: {}", count("i3"));
    }
}

//! What an instance may say of itself: one at its limit is read, one beyond it is refused.

#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use crate::support::span;
use std::collections::BTreeSet;
use tenure_core::{
    Ask, BadCheck, BadDetails, BadEndpoint, BadInstanceKey, BadText, Check, Details, Draft, Edit, Endpoint, Happening,
    Health, InstanceKey, Labels, LeaseId, OnCritical, Probe, Source, Word, limits,
};

#[test]
fn words() {
    let max = limits::WORD_BYTES_MAX;
    assert!(Word::parse(&"w".repeat(max)).is_ok());
    assert_eq!(Word::parse(&"w".repeat(max + 1)), Err(BadText::TooLong { bytes: max + 1, max }));
    assert_eq!(Word::parse(""), Err(BadText::Empty));
    for good in ["gpu", "eu-west-1a", "1.2.3+build~1", "host:8080", "A_b"] {
        assert_eq!(Word::parse(good).unwrap().to_string(), good);
    }
    for (bad, at) in [("-x", 0), (".x", 0), ("a b", 1), ("a/b", 1), ("a@b", 1), ("a,b", 1), ("a=b", 1), ("a\n", 1)] {
        assert_eq!(Word::parse(bad), Err(BadText::NotOfWord { at }), "{bad:?}");
    }
    assert_eq!(Word::parse("aé"), Err(BadText::NotOfWord { at: 1 }));
}

/// What happened to an instance is asked for as `SERVICE/ID`, and as a prefix of that.
#[test]
fn what_happened_to_an_instance_goes_by_its_whole_name() {
    let instance = InstanceKey::parse("agents/planner/a7").unwrap();
    let what = Happening::Cleared { instance, lease: LeaseId::from_number(7).unwrap() };
    for prefix in
        ["", "agents", "agents/pl", "agents/planner", "agents/planner/", "agents/planner/a", "agents/planner/a7"]
    {
        assert!(what.is_under(prefix), "{prefix}");
        assert_eq!(what.is_of(prefix), prefix == "agents/planner/a7", "{prefix}");
    }
    for other in
        ["b", "agents/plannerx", "agents/planner/b", "agents/planner/a77", "agents/planner//a7", "agents/planna"]
    {
        assert!(!what.is_under(other) && !what.is_of(other), "{other}");
    }
    assert!(!what.is_of("agents/planner_a7"), "as long, and not the same");
}

#[test]
fn instance_keys() {
    let key = InstanceKey::parse("agents/planner/a7").unwrap();
    assert_eq!(
        (key.service.as_str(), key.id.as_str(), key.to_string().as_str()),
        ("agents/planner", "a7", "agents/planner/a7")
    );
    assert_eq!(InstanceKey::parse("a7"), Err(BadInstanceKey::NoId));
    assert_eq!(InstanceKey::parse("/a7"), Err(BadInstanceKey::Service(BadText::Empty)));
    assert_eq!(InstanceKey::parse("api/"), Err(BadInstanceKey::Id(BadText::Empty)));
}

#[test]
fn endpoints() {
    for (good, scheme, host, port) in [
        ("http://10.0.0.7:8080", "http", "10.0.0.7", 8080),
        ("HTTPS://Example.COM:443", "https", "example.com", 443),
        ("grpc://[::1]:1", "grpc", "::1", 1),
        ("tcp://[2001:DB8:0:0::1]:65535", "tcp", "2001:db8::1", 65535),
        ("http://my_host-1.local:80", "http", "my_host-1.local", 80),
    ] {
        let endpoint = Endpoint::parse(good).unwrap();
        assert_eq!((endpoint.scheme(), endpoint.host(), endpoint.port()), (scheme, host, port), "{good}");
        assert_eq!(Endpoint::parse(&endpoint.to_string()).unwrap(), endpoint, "what is shown can be read");
    }
    let long = format!("http://{}:1", "a.".repeat(126) + "a");
    assert!(Endpoint::parse(&long).is_ok(), "253 bytes of host");
    let too_long = format!("http://{}:1", "a.".repeat(126) + "aa");
    for (bad, why) in [
        ("10.0.0.7:8080", BadEndpoint::NoScheme),
        ("", BadEndpoint::NoScheme),
        ("1http://a:1", BadEndpoint::Scheme),
        ("://a:1", BadEndpoint::Scheme),
        ("http://a", BadEndpoint::NoPort),
        ("http://a:", BadEndpoint::NoPort),
        ("http://[::1]", BadEndpoint::NoPort),
        ("http://a:0", BadEndpoint::Port),
        ("http://a:65536", BadEndpoint::Port),
        ("http://a:+1", BadEndpoint::Port),
        ("http://:1", BadEndpoint::Host),
        ("http://a..b:1", BadEndpoint::Host),
        ("http://-a:1", BadEndpoint::Host),
        ("http://::1:1", BadEndpoint::Host),
        ("http://[fe80::1%eth0]:1", BadEndpoint::Host),
        ("http://a b:1", BadEndpoint::Host),
        ("http://2130706433:1", BadEndpoint::Host),
        ("http://0177.0.0.1:1", BadEndpoint::Host),
        ("http://127.1:1", BadEndpoint::Host),
        ("http://0x7f.0.0.0x1:1", BadEndpoint::Host),
        (&too_long, BadEndpoint::Host),
        ("http://u:p@a:1", BadEndpoint::TooMuch { at: 10 }),
        ("http://a:1/", BadEndpoint::TooMuch { at: 10 }),
        ("http://a:1?q", BadEndpoint::TooMuch { at: 10 }),
        ("http://a:1#f", BadEndpoint::TooMuch { at: 10 }),
    ] {
        assert_eq!(Endpoint::parse(bad), Err(why), "{bad:?}");
    }
}

fn endpoint(n: usize) -> Endpoint {
    Endpoint::parse(&format!("http://10.0.0.7:{}", 1 + n)).unwrap()
}

fn draft() -> Draft {
    Draft::at(vec![endpoint(0)])
}

fn pushed(n: usize) -> Check {
    Check { name: Word::parse(&format!("c{n}")).unwrap(), source: Source::Pushed { ttl: None } }
}

#[test]
fn details_are_bounded() {
    let many = |what: &'static str, max: usize| Err(BadDetails::TooMany { what: what.into(), count: max + 1, max });
    let words = |count: usize| (0..count).map(|n| Word::parse(&format!("w{n}")).unwrap()).collect::<BTreeSet<_>>();
    let with_endpoints =
        |count: usize| Details::new(Draft { endpoints: (0..count).map(endpoint).collect(), ..draft() });
    assert_eq!(with_endpoints(0), Err(BadDetails::NoEndpoint));
    assert!(with_endpoints(limits::ENDPOINTS_MAX).is_ok());
    assert_eq!(with_endpoints(limits::ENDPOINTS_MAX + 1), many("endpoints", limits::ENDPOINTS_MAX));
    let with_words = |count| Details::new(Draft { capabilities: words(count), ..draft() });
    assert!(with_words(limits::CAPABILITIES_MAX).is_ok());
    assert_eq!(with_words(limits::CAPABILITIES_MAX + 1), many("capabilities", limits::CAPABILITIES_MAX));
    let with_checks = |count: usize| Details::new(Draft { checks: (0..count).map(pushed).collect(), ..draft() });
    assert!(with_checks(limits::CHECKS_MAX).is_ok());
    assert_eq!(with_checks(limits::CHECKS_MAX + 1), many("checks", limits::CHECKS_MAX));
    let twice = Details::new(Draft { endpoints: vec![endpoint(0), endpoint(0)], ..draft() });
    assert_eq!(twice, Err(BadDetails::Twice { what: "endpoint".into() }));
    let twice = Details::new(Draft { checks: vec![pushed(0), pushed(0)], ..draft() });
    assert_eq!(twice, Err(BadDetails::Twice { what: "check".into() }));
    let weight = limits::WEIGHT_MAX;
    assert!(Details::new(Draft { weight, ..draft() }).is_ok());
    let heavy = Details::new(Draft { weight: weight + 1, ..draft() });
    assert_eq!(heavy, Err(BadDetails::Weight { weight: weight + 1 }));
    let after = |ms| Details::new(Draft { on_critical: OnCritical::RevokeAfter(span(ms)), ..draft() });
    assert!(after(limits::UNHEALTHY_MS_MAX).is_ok() && after(0).is_ok());
    let ms = limits::UNHEALTHY_MS_MAX + 1;
    assert_eq!(after(ms), Err(BadDetails::RevokeAfter { ms }));
}

/// Every part is within its limit, and all together are too much.
#[test]
fn an_instance_is_bounded_as_a_whole() {
    let long = |n: usize| Word::parse(&format!("{n:0>128}")).unwrap();
    let values = "v".repeat(limits::LABEL_VALUE_BYTES_MAX);
    let keys: Vec<_> = (0..16).map(|n| format!("k{n}")).collect();
    let labels = Labels::parse(keys.iter().map(|key| (key.as_str(), values.as_str()))).unwrap();
    let probe = |path: String| Check {
        source: Source::Probed(Probe {
            endpoint: 0,
            ask: Ask::Http { path: path.into(), statuses: 200..=299 },
            interval: span(5000),
            timeout: span(100),
            degraded_after: 1,
            failures: 1,
            successes: 1,
        }),
        ..pushed(0)
    };
    let checks = (0..6).map(|n| Check { name: pushed(n).name, ..probe(format!("/{}", "p".repeat(1023))) }).collect();
    let full = Draft { capabilities: (0..60).map(long).collect(), labels, checks, ..draft() };
    let bytes = match Details::new(full) {
        Err(BadDetails::TooLong { bytes }) => bytes,
        other => panic!("{other:?}"),
    };
    assert!(bytes > limits::INSTANCE_BYTES_MAX && bytes < 2 * limits::INSTANCE_BYTES_MAX);
}

#[test]
fn checks() {
    let good = Probe {
        endpoint: 0,
        ask: Ask::Tcp,
        interval: span(limits::CHECK_MS_MIN),
        timeout: span(limits::PROBE_MS_MIN),
        degraded_after: 1,
        failures: limits::RESULTS_MAX,
        successes: 1,
    };
    let of = |probe: Probe| {
        let checks = vec![Check { source: Source::Probed(probe), ..pushed(0) }];
        Details::new(Draft { checks, ..draft() }).map(drop).map_err(|bad| match bad {
            BadDetails::Check { bad, .. } => bad,
            other => panic!("{other:?}"),
        })
    };
    let min = limits::CHECK_MS_MIN;
    assert_eq!(of(good.clone()), Ok(()));
    assert_eq!(of(Probe { endpoint: 1, ..good.clone() }), Err(BadCheck::NoEndpoint { endpoint: 1, endpoints: 1 }));
    for ms in [0, min - 1, limits::CHECK_MS_MAX + 1, 31_536_000_000] {
        assert_eq!(of(Probe { interval: span(ms), ..good.clone() }), Err(BadCheck::Interval { ms }));
    }
    for ms in [0, limits::PROBE_MS_MIN - 1, min + 1] {
        assert_eq!(of(Probe { timeout: span(ms), ..good.clone() }), Err(BadCheck::Timeout { ms, max_ms: min }));
    }
    let (max_ms, long) = (limits::PROBE_MS_MAX, Probe { interval: span(limits::CHECK_MS_MAX), ..good.clone() });
    assert_eq!(of(Probe { timeout: span(max_ms), ..long.clone() }), Ok(()));
    let ms = max_ms + 1;
    assert_eq!(of(Probe { timeout: span(ms), ..long }), Err(BadCheck::Timeout { ms, max_ms }));
    for (degraded_after, failures, successes) in [(0, 1, 1), (2, 1, 1), (1, 101, 1), (1, 1, 0), (1, 1, 101)] {
        let bad = Probe { degraded_after, failures, successes, ..good.clone() };
        assert_eq!(of(bad), Err(BadCheck::Thresholds));
    }
    let http = |path: &str, statuses| of(Probe { ask: Ask::Http { path: path.into(), statuses }, ..good.clone() });
    assert_eq!(http("/healthz?deep=1", 200..=204), Ok(()));
    for path in ["", "healthz", "/a b", "/a#b", "/é", &format!("/{}", "p".repeat(limits::PROBE_BYTES_MAX))] {
        assert_eq!(http(path, 200..=204), Err(BadCheck::Path), "{path}");
    }
    #[expect(clippy::reversed_empty_ranges, reason = "it is refused")]
    for statuses in [99..=200, 200..=600, 204..=200] {
        assert_eq!(http("/", statuses), Err(BadCheck::Statuses));
    }
    let grpc = |service: &str| of(Probe { ask: Ask::Grpc { service: service.into() }, ..good.clone() });
    assert_eq!((grpc(""), grpc("a.B"), grpc("a b")), (Ok(()), Ok(()), Err(BadCheck::Service)));
    let pushed = |ms| {
        let checks = vec![Check { source: Source::Pushed { ttl: Some(span(ms)) }, ..pushed(0) }];
        Details::new(Draft { checks, ..draft() }).is_ok()
    };
    assert!(pushed(min) && pushed(limits::PUSHED_MS_MAX) && !pushed(min - 1) && !pushed(limits::PUSHED_MS_MAX + 1));
}

#[test]
fn an_edit_changes_what_it_says_and_no_more() {
    let zone = Word::parse("z").ok();
    let details = Details::new(Draft { zone, weight: 7, ..draft() }).unwrap();
    assert_eq!(details.edited(&Edit::default()).unwrap(), details);
    let moved = details.edited(&Edit { zone: Some(None), ..Edit::default() }).unwrap();
    assert_eq!((moved.zone.clone(), moved.weight), (None, 7));
    assert_eq!(details.edited(&Edit { endpoints: Some(Vec::new()), ..Edit::default() }), Err(BadDetails::NoEndpoint));
}

#[test]
fn the_worse_health_is_the_greater() {
    let order = [Health::Passing, Health::Degraded, Health::Unknown, Health::Critical];
    assert!(order.is_sorted());
    assert_eq!(order.map(|it| it.to_string()), ["passing", "degraded", "unknown", "critical"]);
}

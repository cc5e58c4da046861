//! Instances as other programs read them: variables of a shell, /etc/hosts, nginx, HAProxy. Only the first endpoint of each is
//! told, and nobody who takes nothing.

use super::instances::Instance;
use crate::args::Form;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use tenure_core::Endpoint;

/// The largest weight that HAProxy takes.
const HAPROXY_WEIGHT_MAX: u32 = 256;

/// One that work can be sent to.
struct Target<'a> {
    instance: &'a Instance,
    endpoint: Endpoint,
    /// Others are to be preferred, and there are some.
    is_spare: bool,
}

impl Target<'_> {
    /// Host and port, an IPv6 address in brackets.
    fn address(&self) -> String {
        let (host, port) = (self.endpoint.host(), self.endpoint.port());
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

/// The service that was asked for by its name; none, if it was a prefix.
pub(super) fn named(service: &str) -> BTreeSet<String> {
    (!service.ends_with('/')).then(|| service.to_owned()).into_iter().collect()
}

/// Those that work can be sent to, by service. These services are told even if nobody is there: who refers to them by name
/// would not start without them.
fn targets<'a>(services: &BTreeSet<String>, instances: &'a [Instance]) -> BTreeMap<String, Vec<Target<'a>>> {
    let mut all: BTreeMap<String, Vec<Target<'a>>> = services.iter().map(|name| (name.clone(), Vec::new())).collect();
    for instance in instances.iter().filter(|one| one.routed && one.weight > 0) {
        let endpoint = instance.endpoints.first().and_then(|text| Endpoint::parse(text).ok());
        let Some(endpoint) = endpoint else { continue };
        let target = Target { instance, endpoint, is_spare: instance.health != "passing" };
        all.entry(instance.service.clone()).or_default().push(target);
    }
    for of_service in all.values_mut() {
        if of_service.iter().all(|target| target.is_spare) {
            of_service.iter_mut().for_each(|target| target.is_spare = false);
        }
    }
    all
}

/// All of it as text, with its own ends of lines.
pub(super) fn text(form: Form, services: &BTreeSet<String>, instances: &[Instance]) -> String {
    let targets = targets(services, instances);
    let write = match form {
        Form::Env => env,
        Form::Hosts => hosts,
        Form::Nginx => nginx,
        Form::Haproxy => haproxy,
        Form::Table | Form::Json | Form::Jsonl | Form::Name => return String::new(),
    };
    targets.iter().map(|(service, targets)| write(service, targets)).collect()
}

/// A name with whatever a program does not take replaced.
fn plain(service: &str, other: char) -> String {
    service.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { other }).collect()
}

/// What stands in them are words and endpoints, which a shell takes as they are.
fn env(service: &str, targets: &[Target<'_>]) -> String {
    let name = plain(service, '_').to_ascii_uppercase();
    let name = if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name };
    let joined = |each: fn(&Target<'_>) -> String| targets.iter().map(each).collect::<Vec<_>>().join(" ");
    let (ids, urls) = (joined(|it| it.instance.id.clone()), joined(|it| it.endpoint.to_string()));
    let addresses = joined(|it| it.address());
    let count = targets.len();
    format!("{name}_COUNT={count}\n{name}_IDS='{ids}'\n{name}_ENDPOINTS='{urls}'\n{name}_ADDRESSES='{addresses}'\n")
}

/// Each by its own name and by that of the service. What is reached by a name already needs none.
fn hosts(service: &str, targets: &[Target<'_>]) -> String {
    let service = plain(service, '-').to_ascii_lowercase();
    let line = |target: &Target<'_>| {
        let (id, host) = (plain(&target.instance.id, '-').to_ascii_lowercase(), target.endpoint.host());
        match host.parse::<IpAddr>() {
            Ok(address) => format!("{address}\t{id}.{service} {service}\n"),
            Err(_) => format!("# {id}.{service} is at the name {host}\n"),
        }
    };
    targets.iter().map(line).collect()
}

fn nginx(service: &str, targets: &[Target<'_>]) -> String {
    let server = |target: &Target<'_>| {
        let spare = if target.is_spare { " backup" } else { "" };
        let (address, weight) = (target.address(), target.instance.weight);
        format!("    server {address} weight={weight}{spare}; # {}\n", target.instance.id)
    };
    let servers: String = targets.iter().map(server).collect();
    // nginx does not start with an upstream that has no server.
    let servers = if servers.is_empty() { "    server 127.0.0.1:1 down; # nobody is there\n".into() } else { servers };
    format!("upstream {} {{\n{servers}}}\n", plain(service, '_'))
}

fn haproxy(service: &str, targets: &[Target<'_>]) -> String {
    let most = targets.iter().map(|target| target.instance.weight).max().unwrap_or(1);
    let scaled = |weight: u32| match most {
        0..=HAPROXY_WEIGHT_MAX => weight,
        _ => (u64::from(weight) * u64::from(HAPROXY_WEIGHT_MAX) / u64::from(most)).max(1) as u32,
    };
    let server = |target: &Target<'_>| {
        let spare = if target.is_spare { " backup" } else { "" };
        let (id, address, weight) = (&target.instance.id, target.address(), scaled(target.instance.weight));
        format!("    server {id} {address} weight {weight}{spare}\n")
    };
    format!("backend {}\n{}", plain(service, '_'), targets.iter().map(server).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::v1;

    fn instance(id: &str, endpoint: &str, weight: u32, health: v1::Health) -> Instance {
        let endpoints = vec![endpoint.to_owned()];
        let details = v1::Details { endpoints, weight: Some(weight), ..v1::Details::default() };
        let routed = matches!(health, v1::Health::Passing | v1::Health::Degraded);
        let (service, id, health) = ("agents/planner".into(), id.into(), health.into());
        let item = v1::Instance { service, id, details: Some(details), health, routed, ..v1::Instance::default() };
        Instance::new(&item, 15_000)
    }

    fn fleet() -> Vec<Instance> {
        vec![
            instance("a1", "http://10.0.0.7:8080", 1, v1::Health::Passing),
            instance("a2", "http://[fd00::7]:8080", 3, v1::Health::Passing),
            instance("a3", "http://box.lan:8080", 1, v1::Health::Degraded),
            instance("a4", "http://10.0.0.8:8080", 0, v1::Health::Passing),
            instance("a5", "http://10.0.0.9:8080", 1, v1::Health::Critical),
        ]
    }

    /// What is told to whoever asks for a service, or for those below a prefix.
    fn fed(form: Form, service: &str, instances: &[Instance]) -> String {
        text(form, &named(service), instances)
    }

    #[test]
    fn a_shell_can_read_it() {
        let told = "AGENTS_PLANNER_COUNT=3\nAGENTS_PLANNER_IDS='a1 a2 a3'\n\
            AGENTS_PLANNER_ENDPOINTS='http://10.0.0.7:8080 http://[fd00::7]:8080 http://box.lan:8080'\n\
            AGENTS_PLANNER_ADDRESSES='10.0.0.7:8080 [fd00::7]:8080 box.lan:8080'\n";
        assert_eq!(fed(Form::Env, "agents/planner", &fleet()), told);
        assert!(fed(Form::Env, "7/a", &[]).starts_with("_7_A_COUNT=0\n_7_A_IDS=''\n"));
    }

    #[test]
    fn hosts_have_addresses_alone() {
        let told = "10.0.0.7\ta1.agents-planner agents-planner\nfd00::7\ta2.agents-planner agents-planner\n\
            # a3.agents-planner is at the name box.lan\n";
        assert_eq!(fed(Form::Hosts, "agents/planner", &fleet()), told);
    }

    #[test]
    fn nginx_prefers_those_that_are_well_and_takes_nobody_too() {
        let told = "upstream agents_planner {\n    server 10.0.0.7:8080 weight=1; # a1\n    \
            server [fd00::7]:8080 weight=3; # a2\n    server box.lan:8080 weight=1 backup; # a3\n}\n";
        assert_eq!(fed(Form::Nginx, "agents/planner", &fleet()), told);
        let degraded = [instance("a", "http://10.0.0.7:1", 1, v1::Health::Degraded)];
        assert!(!fed(Form::Nginx, "agents/planner", &degraded).contains("backup"), "there is nobody to prefer");
        assert!(fed(Form::Nginx, "agents/planner", &[]).contains(" down;"));
    }

    #[test]
    fn haproxy_has_weights_that_it_takes() {
        let told = "backend agents_planner\n    server a1 10.0.0.7:8080 weight 1\n    \
            server a2 [fd00::7]:8080 weight 3\n    server a3 box.lan:8080 weight 1 backup\n";
        assert_eq!(fed(Form::Haproxy, "agents/planner", &fleet()), told);
        let passing = v1::Health::Passing;
        let heavy =
            [instance("a", "http://10.0.0.7:1", 65_535, passing), instance("b", "http://10.0.0.8:1", 1, passing)];
        let told = fed(Form::Haproxy, "agents/planner", &heavy);
        assert!(told.contains("a 10.0.0.7:1 weight 256\n") && told.contains("b 10.0.0.8:1 weight 1\n"), "{told}");
    }

    #[test]
    fn several_services_are_told_one_by_one() {
        let mut other = fleet().remove(0);
        other.service = "agents/critic".into();
        let told = fed(Form::Haproxy, "agents/", &[fleet().remove(0), other]);
        assert_eq!(told.matches("backend ").count(), 2, "{told}");
        assert_eq!(fed(Form::Haproxy, "agents/", &[]), "");
        let seen = ["agents/critic", "agents/planner"].map(String::from).into();
        let told = text(Form::Nginx, &seen, &[fleet().remove(0)]);
        assert!(
            told.starts_with("upstream agents_critic {\n    server 127.0.0.1:1 down;"),
            "who was there stays: {told}"
        );
    }
}

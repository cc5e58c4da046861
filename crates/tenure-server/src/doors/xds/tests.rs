//! Streams as Envoy opens them, against a whole node behind its doors.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops where it is surprised")]

use super::dialect::ENDPOINTS;
use super::dialect::{Delta, Dialect, Whole};
use super::feed;
use super::pb::envoy::config::core::v3::HealthStatus;
use super::pb::envoy::config::core::v3::address::Address::SocketAddress;
use super::pb::envoy::config::core::v3::socket_address::PortSpecifier::PortValue;
use super::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use super::pb::envoy::config::endpoint::v3::{ClusterLoadAssignment, LbEndpoint};
use super::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use super::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use super::pb::envoy::service::endpoint::v3::endpoint_discovery_service_client::EndpointDiscoveryServiceClient;
use super::pb::google::rpc::Status as Complaint;
use crate::access::{Access, ApiKeys, KeyRights, Role, draw_api_key, of_grpc};
use crate::limits::{XDS_NAMES_MAX, XDS_SLACK};
use crate::node::Node;
use crate::probes::tests::alone;
use crate::serve::{Settings, serve};
use futures::StreamExt;
use prost::Message;
use prost_types::value::Kind;
use std::time::Duration;
use tenure_core::limits::NAME_BYTES_MAX;
use tenure_core::{
    Check, Command, Deregister, Details, Draft, Drain, Endpoint, Grant, Health, Holder, InstanceId, InstanceKey,
    Labels, LeaseId, Ledger, Name, Note, On, Register, SetHealth, Source, Ttl, Word,
};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

const PATIENCE: Duration = Duration::from_secs(30);

async fn node() -> (Node, Channel) {
    let node = alone().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let serving = node.clone();
    tokio::spawn(async move { serve(serving, vec![listener], &Settings::default(), std::future::pending()).await });
    let channel = Channel::from_shared(address).unwrap().connect().await.unwrap();
    (node, channel)
}

fn key(service: &str, id: &str) -> InstanceKey {
    InstanceKey { service: Name::parse(service).unwrap(), id: InstanceId::parse(id).unwrap() }
}

fn at(endpoint: &str) -> Draft {
    Draft::at(vec![Endpoint::parse(endpoint).unwrap()])
}

async fn register(node: &Node, service: &str, id: &str, ttl_ms: u64, draft: Draft) -> LeaseId {
    let lease = node.draw_lease();
    let grant = Grant::plain(lease, Holder::parse("ann").unwrap(), Ttl::from_millis(ttl_ms).unwrap(), 1);
    let details = Details::new(draft).unwrap();
    let register = Register { instance: key(service, id), epoch: None, on: On::New(grant), details, request: None };
    node.propose(Command::Register(register)).await.unwrap().unwrap();
    lease
}

async fn deregister(node: &Node, service: &str, id: &str, lease: LeaseId) {
    let gone = Deregister { instance: key(service, id), lease: Some(lease), force: None, request: None };
    node.propose(Command::Deregister(gone)).await.unwrap().unwrap();
}

/// One stream that is asked and heard.
struct Talk<A, T> {
    asks: mpsc::Sender<A>,
    tells: Streaming<T>,
}

impl<A, T> Talk<A, T> {
    async fn ask(&self, ask: A) {
        self.asks.send(ask).await.unwrap();
    }

    async fn hear(&mut self) -> Result<T, Status> {
        let told = tokio::time::timeout(PATIENCE, self.tells.message()).await.expect("nothing is told");
        told.map(|told| told.expect("the stream has ended"))
    }

    /// Whether nothing is told for a while.
    async fn is_silent(&mut self) -> bool {
        tokio::time::timeout(Duration::from_millis(300), self.tells.message()).await.is_err()
    }
}

type WholeTalk = Talk<DiscoveryRequest, DiscoveryResponse>;
type DeltaTalk = Talk<DeltaDiscoveryRequest, DeltaDiscoveryResponse>;

async fn whole(channel: &Channel) -> WholeTalk {
    let (asks, receiver) = mpsc::channel(4);
    let mut client = AggregatedDiscoveryServiceClient::new(channel.clone());
    let tells = client.stream_aggregated_resources(ReceiverStream::new(receiver)).await.unwrap().into_inner();
    Talk { asks, tells }
}

async fn delta(channel: &Channel) -> DeltaTalk {
    let (asks, receiver) = mpsc::channel(4);
    let mut client = EndpointDiscoveryServiceClient::new(channel.clone());
    let tells = client.delta_endpoints(ReceiverStream::new(receiver)).await.unwrap().into_inner();
    Talk { asks, tells }
}

fn wants(names: &[&str], nonce: &str) -> DiscoveryRequest {
    DiscoveryRequest {
        resource_names: names.iter().map(ToString::to_string).collect(),
        type_url: ENDPOINTS.into(),
        response_nonce: nonce.into(),
        ..DiscoveryRequest::default()
    }
}

fn subscribe(names: &[&str], and_not: &[&str], nonce: &str) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        resource_names_subscribe: names.iter().map(ToString::to_string).collect(),
        resource_names_unsubscribe: and_not.iter().map(ToString::to_string).collect(),
        type_url: ENDPOINTS.into(),
        response_nonce: nonce.into(),
        ..DeltaDiscoveryRequest::default()
    }
}

fn of_whole(told: &DiscoveryResponse) -> Vec<ClusterLoadAssignment> {
    told.resources.iter().map(|any| ClusterLoadAssignment::decode(&*any.value).unwrap()).collect()
}

fn of_delta(told: &DeltaDiscoveryResponse) -> Vec<ClusterLoadAssignment> {
    let values = told.resources.iter().map(|resource| resource.resource.as_ref().unwrap());
    values.map(|any| ClusterLoadAssignment::decode(&*any.value).unwrap()).collect()
}

fn place(endpoint: &LbEndpoint) -> String {
    let Some(HostIdentifier::Endpoint(endpoint)) = &endpoint.host_identifier else { panic!("no endpoint") };
    let Some(SocketAddress(socket)) = endpoint.address.clone().unwrap().address else { panic!("no address") };
    let Some(PortValue(port)) = socket.port_specifier else { panic!("no port") };
    format!("{}:{port}", socket.address)
}

/// A service, and where its instances are.
fn summary(assignment: &ClusterLoadAssignment) -> String {
    let places = assignment.endpoints.iter().flat_map(|zone| &zone.lb_endpoints).map(place);
    format!("{}: {}", assignment.cluster_name, places.collect::<Vec<_>>().join(" "))
}

#[tokio::test]
async fn what_is_wanted_is_told_and_told_when_it_changes_at_its_revision() {
    let (node, channel) = node().await;
    let a = register(&node, "agents/a", "a1", 600_000, at("http://10.0.0.1:80")).await;
    let mut talk = whole(&channel).await;
    talk.ask(wants(&["agents/a", "agents/b", "no//service"], "")).await;
    let told = talk.hear().await.unwrap();
    let all: Vec<String> = of_whole(&told).iter().map(summary).collect();
    assert_eq!(all, ["agents/a: 10.0.0.1:80", "agents/b: ", "no//service: "]);
    assert_eq!(told.version_info, node.read_stale(Ledger::revision).0.to_string());
    talk.ask(wants(&["agents/a", "agents/b", "no//service"], &told.nonce)).await;
    assert!(talk.is_silent().await, "an acknowledgement is answered by nothing");
    // What happens elsewhere is nobody's business here.
    register(&node, "agents/c", "c1", 600_000, at("http://10.0.0.3:80")).await;
    register(&node, "agents/b", "b1", 600_000, at("http://[fd00::1]:81")).await;
    let told = talk.hear().await.unwrap();
    assert_eq!(of_whole(&told).iter().map(summary).collect::<Vec<_>>(), ["agents/b: fd00::1:81"]);
    talk.ask(wants(&["agents/a", "agents/b"], &told.nonce)).await;
    deregister(&node, "agents/a", "a1", a).await;
    let told = talk.hear().await.unwrap();
    assert_eq!(of_whole(&told).iter().map(summary).collect::<Vec<_>>(), ["agents/a: "]);
    assert_eq!(told.version_info, node.read_stale(Ledger::revision).0.to_string());
}

#[tokio::test]
async fn an_instance_is_gone_from_the_feed_when_its_lease_ends_and_not_before() {
    let (node, channel) = node().await;
    register(&node, "agents", "a1", 1_500, at("http://10.0.0.1:80")).await;
    let mut talk = delta(&channel).await;
    talk.ask(subscribe(&["agents"], &[], "")).await;
    assert_eq!(summary(&of_delta(&talk.hear().await.unwrap())[0]), "agents: 10.0.0.1:80");
    let told = talk.hear().await.unwrap();
    assert_eq!(summary(&of_delta(&told)[0]), "agents: ");
    let (revision, lives) = node.read_stale(|ledger| (ledger.revision(), ledger.instance_count()));
    assert_eq!((told.system_version_info, lives), (revision.0.to_string(), 0));
}

#[tokio::test]
async fn deltas_follow_what_is_subscribed() {
    let (node, channel) = node().await;
    for service in ["a", "b"] {
        register(&node, service, "1", 600_000, at("http://10.0.0.1:80")).await;
    }
    let mut talk = delta(&channel).await;
    talk.ask(subscribe(&["a"], &[], "")).await;
    let told = talk.hear().await.unwrap();
    assert_eq!(told.resources[0].name, "a");
    talk.ask(subscribe(&["b"], &["a"], &told.nonce)).await;
    assert_eq!(summary(&of_delta(&talk.hear().await.unwrap())[0]), "b: 10.0.0.1:80");
    register(&node, "a", "2", 600_000, at("http://10.0.0.2:80")).await;
    assert!(talk.is_silent().await);
    // Whoever asks again is told again.
    talk.ask(subscribe(&["b"], &[], "")).await;
    assert_eq!(summary(&of_delta(&talk.hear().await.unwrap())[0]), "b: 10.0.0.1:80");
}

#[tokio::test]
async fn whoever_rejects_something_is_told_the_next_and_what_is_out_of_date_is_not_heard() {
    let (node, channel) = node().await;
    let mut talk = whole(&channel).await;
    talk.ask(wants(&["a"], "")).await;
    let first = talk.hear().await.unwrap();
    let complaint = Complaint { message: "I do not like it".into(), ..Complaint::default() };
    talk.ask(DiscoveryRequest { error_detail: Some(complaint), ..wants(&["a"], &first.nonce) }).await;
    assert!(talk.is_silent().await, "it is not told the same again");
    register(&node, "a", "1", 600_000, at("http://10.0.0.1:80")).await;
    let second = talk.hear().await.unwrap();
    assert_ne!(first.nonce, second.nonce);
    // An answer to the first comes late, and wants something else: what counts is the answer to the second.
    talk.ask(wants(&["b"], &first.nonce)).await;
    assert!(talk.is_silent().await);
    talk.ask(wants(&["a", "b"], &second.nonce)).await;
    assert_eq!(summary(&of_whole(&talk.hear().await.unwrap())[0]), "b: ");
}

#[tokio::test]
async fn what_is_not_told_here_is_refused_in_words() {
    let (_node, channel) = node().await;
    let many: Vec<String> = (0..=XDS_NAMES_MAX).map(|number| format!("s{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let clusters = DiscoveryRequest { type_url: "type.googleapis.com/x.Cluster".into(), ..wants(&["a"], "") };
    let cases = [
        (wants(&[], ""), Code::InvalidArgument, "name those that are wanted"),
        (wants(&["a", "*"], ""), Code::InvalidArgument, "name those that are wanted"),
        (clusters, Code::InvalidArgument, "only endpoints are sent here"),
        (wants(&many, ""), Code::ResourceExhausted, "more than 10000"),
    ];
    for (ask, code, words) in cases {
        let mut talk = whole(&channel).await;
        talk.ask(ask).await;
        let refused = talk.hear().await.unwrap_err();
        assert_eq!(refused.code(), code);
        assert!(refused.message().contains(words), "{refused}");
    }
    for (ask, code) in [
        (subscribe(&[], &[], ""), Code::InvalidArgument),
        (subscribe(&["*"], &[], ""), Code::InvalidArgument),
        (subscribe(&many, &[], ""), Code::ResourceExhausted),
    ] {
        let mut talk = delta(&channel).await;
        talk.ask(ask).await;
        assert_eq!(talk.hear().await.unwrap_err().code(), code);
    }
    // As many as there may be are told, in several messages.
    let mut talk = whole(&channel).await;
    talk.ask(wants(&many[1..], "")).await;
    let mut count = 0;
    while count < XDS_NAMES_MAX {
        count += talk.hear().await.unwrap().resources.len();
    }
    assert_eq!(count, XDS_NAMES_MAX);
}

#[tokio::test]
async fn zone_weight_health_and_words_are_told() {
    let (node, channel) = node().await;
    let zone = |name: &str| Some(Word::parse(name).unwrap());
    let labels = Labels::parse([("tier", "gold")]).unwrap();
    let capabilities = [Word::parse("gpu").unwrap()].into();
    let check = Check { name: Word::parse("self").unwrap(), source: Source::Pushed { ttl: None } };
    let draft = |port| at(&format!("http://10.0.0.1:{port}"));
    let well = Draft { weight: 7, zone: zone("z1"), labels, capabilities, version: zone("v2"), ..draft(1) };
    register(&node, "a", "1-well", 600_000, well).await;
    register(&node, "a", "2-drains", 600_000, Draft { zone: zone("z1"), weight: 3, ..draft(2) }).await;
    register(&node, "a", "3-unknown", 600_000, Draft { checks: vec![check.clone()], ..draft(3) }).await;
    let lease = register(&node, "a", "4-degraded", 300_000, Draft { checks: vec![check.clone()], ..draft(4) }).await;
    register(&node, "a", "5-weightless", 600_000, Draft { weight: 0, ..draft(5) }).await;
    register(&node, "a", "6-named", 600_000, at("http://agent.local:6")).await;
    let (by, reason) = (Holder::parse("ann").unwrap(), Note::default());
    let drain = Drain { instance: key("a", "2-drains"), lease: None, on: true, by, reason: reason.clone() };
    node.propose(Command::Drain(drain)).await.unwrap().unwrap();
    let set = SetHealth {
        instance: key("a", "4-degraded"),
        lease,
        check: check.name,
        health: Health::Degraded,
        note: reason,
    };
    node.propose(Command::SetHealth(set)).await.unwrap().unwrap();

    let mut talk = whole(&channel).await;
    talk.ask(wants(&["a"], "")).await;
    let told = of_whole(&talk.hear().await.unwrap()).remove(0);
    type Told = (String, i32, u32);
    let zones: Vec<(String, u32, Vec<Told>)> = told
        .endpoints
        .iter()
        .map(|zone| {
            let told = |it: &LbEndpoint| (place(it), it.health_status, it.load_balancing_weight.unwrap());
            let endpoints = zone.lb_endpoints.iter().map(told).collect();
            (zone.locality.clone().unwrap().zone, zone.load_balancing_weight.unwrap(), endpoints)
        })
        .collect();
    let endpoint = |port: u16, health: HealthStatus, weight| (format!("10.0.0.1:{port}"), health as i32, weight);
    let nowhere = vec![endpoint(3, HealthStatus::Unhealthy, 1), endpoint(4, HealthStatus::Degraded, 1)];
    let z1 = vec![endpoint(1, HealthStatus::Healthy, 7), endpoint(2, HealthStatus::Draining, 3)];
    assert_eq!(zones, [(String::new(), 2, nowhere), ("z1".into(), 10, z1)]);
    let words = told.endpoints[1].lb_endpoints[0].metadata.clone().unwrap().filter_metadata["envoy.lb"].fields.clone();
    let word = |name: &str| match words[name].kind.clone().unwrap() {
        Kind::StringValue(text) => text,
        other => panic!("{other:?}"),
    };
    let said = ["tier", "tenure.capability.gpu", "tenure.version", "tenure.instance"].map(word);
    assert_eq!(said, ["gold", "true", "v2", "1-well"]);
    // The least that is left of any of them, and a little.
    let stale_ms = told.policy.unwrap().endpoint_stale_after.unwrap().seconds * 1_000;
    let (least, slack) = (300_000, i64::try_from(XDS_SLACK.as_millis()).unwrap());
    assert!((least + slack - 30_000..=least + slack).contains(&stale_ms), "{stale_ms}");
}

#[tokio::test]
async fn what_may_not_be_relied_on_any_longer_is_told_anew_though_nothing_has_changed() {
    let (node, channel) = node().await;
    let lease = register(&node, "a", "1", 3_000, at("http://10.0.0.1:80")).await;
    let renewing = node.clone();
    tokio::spawn(async move {
        loop {
            let renew = tenure_core::Renew {
                leases: vec![tenure_core::Renewal { lease, ttl: None }],
                kind: tenure_core::Kind::Auto,
            };
            let _ = renewing.propose(Command::Renew(renew)).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });
    let mut talk = whole(&channel).await;
    talk.ask(wants(&["a"], "")).await;
    let (first, second) = (talk.hear().await.unwrap(), talk.hear().await.unwrap());
    assert_eq!(first.version_info, second.version_info, "nothing has happened");
    assert_eq!(summary(&of_whole(&second)[0]), "a: 10.0.0.1:80");
}

#[tokio::test]
async fn whoever_does_not_read_is_told_the_last_and_not_all() {
    let (node, channel) = node().await;
    let mut talk = whole(&channel).await;
    talk.ask(wants(&["a"], "")).await;
    talk.hear().await.unwrap();
    // More than fits into what is on its way: some hundred instances with many words.
    let word = |number: usize| Word::parse(&format!("{}{number}", "x".repeat(100))).unwrap();
    let draft = || Draft { capabilities: (0..64).map(word).collect(), ..at("http://10.0.0.1:80") };
    for number in 0..100 {
        register(&node, "a", &format!("i{number}"), 600_000, draft()).await;
    }
    let changes = 60;
    for number in 0..changes {
        let lease = register(&node, "a", "last", 600_000, at(&format!("http://10.0.1.1:{}", 1_000 + number))).await;
        tokio::time::sleep(Duration::from_millis(15)).await;
        if number + 1 < changes {
            deregister(&node, "a", "last", lease).await;
        }
    }
    let mut count = 0;
    loop {
        count += 1;
        let told = summary(&of_whole(&talk.hear().await.unwrap())[0]);
        if told.contains(&format!("10.0.1.1:{}", 1_000 + changes - 1)) {
            break;
        }
    }
    assert!(count < 20, "{count} messages were made for whoever did not read them");
}

#[tokio::test]
async fn names_are_bounded_in_bytes() {
    let (_node, channel) = node().await;
    let long = "x".repeat(NAME_BYTES_MAX + 1);
    let mut talk = whole(&channel).await;
    talk.ask(wants(&["a", &long], "")).await;
    assert_eq!(talk.hear().await.unwrap_err().code(), Code::InvalidArgument);
    let mut talk = delta(&channel).await;
    talk.ask(subscribe(&[&long], &[], "")).await;
    assert_eq!(talk.hear().await.unwrap_err().code(), Code::InvalidArgument);
    // Each name is short enough, and each request; on a stream they add up.
    let mut talk = delta(&channel).await;
    let names = |from: usize| (from..from + 600).map(|n| format!("{n:01000}")).collect::<Vec<_>>();
    let subscribe_all = |names: &[String]| subscribe(&names.iter().map(String::as_str).collect::<Vec<_>>(), &[], "");
    talk.ask(subscribe_all(&names(0))).await;
    talk.ask(subscribe_all(&names(600))).await;
    let refused = loop {
        match talk.hear().await {
            Ok(_) => {}
            Err(status) => break status,
        }
    };
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
}

/// The first that is told of these names to a key that may use those under jobs/.
async fn first_told<D: Dialect>(node: &Node, dialect: D, ask: D::Ask) -> Result<D::Tell, Status> {
    let rights = KeyRights { prefixes: vec!["jobs/".into()], ..Role::Read.into() };
    let (secret, line) = draw_api_key("envoy", rights).unwrap();
    let access = Access::by(ApiKeys::parse(&line).unwrap());
    let caller = access.admit(Some(secret.as_bytes()), of_grpc("/tenure.v1.Tenure/Watch"), None).unwrap();
    let asks = futures::stream::iter([Ok(ask)]).chain(futures::stream::pending());
    let mut told = feed::open((node.clone(), caller), asks, dialect);
    tokio::time::timeout(PATIENCE, told.next()).await.expect("nothing is told").expect("the stream has ended")
}

#[tokio::test]
async fn services_outside_the_prefixes_of_a_key_are_refused() {
    let (node, _channel) = node().await;
    for (names, is_allowed) in [(&["jobs/a", "jobs"][..], true), (&["jobs/a", "db"], false), (&["job"], false)] {
        let code = |status: Status| status.code();
        let expected = if is_allowed { Ok(()) } else { Err(Code::PermissionDenied) };
        let whole = first_told(&node, Whole::default(), wants(names, "")).await;
        assert_eq!(whole.map(drop).map_err(code), expected, "{names:?}");
        let delta = first_told(&node, Delta::default(), subscribe(names, &[], "")).await;
        assert_eq!(delta.map(drop).map_err(code), expected, "{names:?}");
    }
}

//! Agents that come and go, by the commands: registered, found, checked, drained, killed.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use crate::support;
use crate::support::agents::Agent;
use crate::support::cluster::Cluster;
use crate::support::{Server, soon, text};
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use tenure::registry::View;
use tenure::{Client, v1};

const SERVICE: &str = "agents/planner";

fn house() -> (TempDir, Server) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    (directory, server)
}

fn register<'a>(id: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let head = ["register", SERVICE, "--endpoint", "http://127.0.0.1:9", "--id", id];
    head.into_iter().chain(more.iter().copied()).collect()
}

/// An agent that is listed by now.
fn agent(server: &Server, id: &str, more: &[&str]) -> Agent {
    let agent = Agent::start(&server.addr, &register(id, more));
    let has_command = more.contains(&"--");
    match has_command {
        true => drop(agent.until("stderr", |said| said.contains(&format!("registered {SERVICE}/{id}")))),
        false => drop(agent.until("stdout", |said| said == format!("{SERVICE}/{id}\n"))),
    }
    agent
}

fn names(server: &Server, more: &[&str]) -> String {
    let args: Vec<&str> = ["discover", SERVICE, "-o", "name"].into_iter().chain(more.iter().copied()).collect();
    let output = server.tenure(&args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

async fn instance(client: &Client, id: &str) -> v1::ShowInstanceReply {
    let request = v1::ShowInstanceRequest { service: SERVICE.into(), id: id.into(), stale: false };
    client.show_instance(request).await.unwrap()
}

/// What happened to an instance, oldest first.
async fn story(client: &Client, id: &str) -> Vec<String> {
    let events = client.history(v1::HistoryRequest { limit: 1_000, ..Default::default() }).await.unwrap().events;
    let name = format!("{SERVICE}/{id}");
    let told = events.into_iter().rev().filter(|event| event.instance == name);
    told.map(|event| match event.end {
        Some(end) => format!("{} {}", event.kind, end.how),
        None => event.kind,
    })
    .collect()
}

async fn until(view: &mut View, what: &str, is_so: impl Fn(&View) -> bool) {
    soon(what, async {
        while !is_so(view) {
            view.changed().await;
        }
    })
    .await;
}

fn health(view: &View, id: &str) -> Option<v1::Health> {
    view.instances().iter().find(|found| found.instance.id == id).map(|found| found.instance.health())
}

#[tokio::test]
async fn an_agent_is_listed_while_it_runs_and_drains_before_it_goes() {
    let (_directory, server) = house();
    let more = ["--cap", "gpu", "--cap", "cuda12", "--label", "team=a", "--zone", "fra1", "--drain-for", "0s"];
    let mut a1 = agent(&server, "a1", &more);
    let _a2 = agent(&server, "a2", &["--weight", "0", "--version-tag", "1.2"]);
    assert_eq!(names(&server, &[]), "agents/planner/a1\nagents/planner/a2\n");
    assert_eq!(names(&server, &["--cap", "gpu & !preview"]), "agents/planner/a1\n");
    assert_eq!(names(&server, &["--cap", "cuda12,gpu", "--label", "team=a", "--zone", "fra1"]), "agents/planner/a1\n");
    assert_eq!(names(&server, &["--label", "team=b"]), "");
    let table = text(&server.tenure(&["discover", SERVICE]).stdout);
    assert!(table.starts_with("INSTANCE") && table.contains("http://127.0.0.1:9"), "{table}");
    let json = text(&server.tenure(&["discover", "agents/", "-o", "json"]).stdout);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["items"][0]["id"], &json["items"][1]["version"]), (&"a1".into(), &"1.2".into()));
    let listed = text(&server.tenure(&["service", "ls", "-o", "jsonl"]).stdout);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((&listed["service"], &listed["routed"]), (&SERVICE.into(), &2.into()));
    a1.signal("TERM");
    assert_eq!(a1.ends().code(), Some(0), "{}", a1.read("stderr"));
    assert_eq!(names(&server, &["--all"]), "agents/planner/a2\n");
    let client = server.client().await;
    assert_eq!(story(&client, "a1").await, ["registered", "drained", "deregistered released"]);
}

#[test]
fn who_finds_nobody_is_told_where_they_are() {
    let (_directory, server) = house();
    let _a1 = agent(&server, "a1", &[]);
    let said = |args: &[&str]| {
        let output = server.tenure(args);
        assert!(output.status.success());
        text(&output.stderr)
    };
    let there = "tenure: 1 instance is registered, but not for new work or not as asked for: tenure service";
    assert_eq!(said(&["discover", SERVICE, "--zone", "fra1", "-o", "name"]), format!("{there} show {SERVICE}\n"));
    assert_eq!(said(&["discover", "agents/", "--cap", "gpu", "-o", "name"]), format!("{there} ls agents/\n"));
    assert_eq!(said(&["discover", SERVICE]), "", "somebody was found");
    assert_eq!(said(&["discover", "agents/other", "-o", "name"]), "", "nobody is there");
    let below = format!("tenure history --prefix {SERVICE}");
    let hint = said(&["history", SERVICE]);
    assert!(hint.trim_end().ends_with(&below), "{hint}");
    assert_eq!(said(&["history", &format!("{SERVICE}/a1")]), "");
}

#[tokio::test]
async fn an_agent_that_is_killed_is_gone_after_its_ttl_and_not_before() {
    let (_directory, server) = house();
    let client = server.client().await;
    let ttl_ms = 4_000;
    let a1 = agent(&server, "a1", &["--ttl", "4s"]);
    let lease = instance(&client, "a1").await.living.unwrap().lease;
    let mut view = client.discover(SERVICE).view().await.unwrap();
    // Its heartbeats are seen: long after its TTL it is there, on the same lease.
    let start = instance(&client, "a1").await.now_ms;
    let seen = soon("three lives long", async {
        loop {
            let seen = instance(&client, "a1").await;
            if seen.now_ms > start + 3 * ttl_ms {
                return seen;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(seen.living.unwrap().lease, lease);
    assert!(seen.silent_ms < ttl_ms, "{} ms", seen.silent_ms);
    let seen = instance(&client, "a1").await;
    a1.signal("KILL");
    until(&mut view, "its end", |view| view.instances().is_empty()).await;
    let gone = soon("its end in the ledger", async {
        loop {
            let shown = instance(&client, "a1").await;
            if shown.living.is_none() {
                return shown.past[0].clone();
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    let end = gone.end.unwrap();
    assert_eq!((end.how.as_str(), gone.lease), ("expired", lease));
    let renewed_ms = seen.now_ms - seen.silent_ms;
    assert!(end.when_ms >= renewed_ms + ttl_ms, "renewed at {renewed_ms}, gone at {}", end.when_ms);
    assert_eq!(story(&client, "a1").await, ["registered", "deregistered expired"]);
}

#[tokio::test]
async fn a_command_is_drained_before_it_is_asked_to_stop_and_gone_when_it_ends() {
    let (_directory, server) = house();
    let client = server.client().await;
    let script = format!(
        "trap '{} discover {SERVICE} --all -o jsonl > $OUT/at-term; exit 7' TERM
         echo $TENURE_SERVICE/$TENURE_INSTANCE; touch $OUT/up; while :; do sleep 0.05; done",
        support::binary()
    );
    let mut a1 = agent(&server, "a1", &["--", "bash", "-c", &script]);
    a1.until("up", |_| a1.path("up").exists());
    assert_eq!(a1.read("stdout"), "agents/planner/a1\n", "stdout is the command's");
    assert_eq!(names(&server, &[]), "agents/planner/a1\n");
    a1.signal("TERM");
    assert_eq!(a1.ends().code(), Some(7), "{}", a1.read("stderr"));
    let at_term: serde_json::Value = serde_json::from_str(&a1.read("at-term")).unwrap();
    assert_eq!((&at_term["id"], &at_term["draining"]), (&"a1".into(), &true.into()));
    assert_eq!(story(&client, "a1").await, ["registered", "drained", "deregistered released"]);
    let mut brief = agent(&server, "a2", &["--", "true"]);
    assert_eq!(brief.ends().code(), Some(0));
    assert_eq!(story(&client, "a2").await, ["registered", "deregistered released"]);
    let missing = server.tenure(&register("a3", &["--", "no-such-program-anywhere"]));
    assert_eq!(missing.status.code(), Some(127));
    assert!(story(&client, "a3").await.is_empty(), "a typo registers nothing");
}

#[tokio::test]
async fn a_check_that_runs_here_turns_critical_and_back_while_heartbeats_go_on() {
    let (directory, server) = house();
    let client = server.client().await;
    let up = directory.path().join("up");
    fs::write(&up, "").unwrap();
    let check = format!("cmd:test -e {} || {{ echo no disk; exit 3; }}@3s", up.display());
    let _a1 = agent(&server, "a1", &["--check", &check, "--ttl", "6s"]);
    let mut view = client.discover(SERVICE).all().view().await.unwrap();
    let passing = |view: &View| health(view, "a1") == Some(v1::Health::Passing);
    until(&mut view, "the first run", passing).await;
    let lease = view.instances()[0].instance.lease;
    fs::remove_file(&up).unwrap();
    until(&mut view, "critical", |view| health(view, "a1") == Some(v1::Health::Critical)).await;
    assert_eq!(names(&server, &[]), "", "nobody is sent there");
    let why = text(&server.tenure(&["why", "agents/planner/a1"]).stdout);
    assert!(why.contains("is registered and critical: no new work is for it."), "{why}");
    assert!(why.contains("check cmd") && why.contains("exit status: 3: no disk"), "{why}");
    fs::write(&up, "").unwrap();
    until(&mut view, "passing again", passing).await;
    assert_eq!(view.instances()[0].instance.lease, lease, "it lived all the time");
    assert_eq!(names(&server, &[]), "agents/planner/a1\n");
    let why = text(&server.tenure(&["why", "agents/planner/a1", "-o", "json"]).stdout);
    let why: serde_json::Value = serde_json::from_str(&why).unwrap();
    assert_eq!(why["instance"]["registered"], true);
    assert!(why["instance"]["penalty"].as_u64().unwrap() > 0, "one fall is remembered: {why}");
}

#[test]
fn an_agent_is_told_that_the_server_makes_no_checks() {
    let (_directory, server) = house();
    let a1 = agent(&server, "a1", &["--check", "tcp@1s", "--check", "cmd:true@1s"]);
    let told = a1.until("stderr", |said| said.contains("check tcp"));
    assert!(told.contains("the check tcp says nothing yet: this server probes nothing"), "{told}");
    assert!(told.contains("--probe-allow") && !told.contains("check cmd says nothing"), "{told}");
    assert_eq!(names(&server, &[]), "", "nobody knows how it is");
    let why = text(&server.tenure(&["why", "agents/planner/a1"]).stdout);
    assert!(why.contains("--probe-allow"), "{why}");
}

#[tokio::test]
async fn orders_are_followed_and_an_agent_that_was_taken_out_does_not_come_back() {
    let (_directory, server) = house();
    let client = server.client().await;
    let mut a1 = agent(&server, "a1", &["--ttl", "6s"]);
    let tenure = |args: &[&str]| {
        let output = server.tenure(args);
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    tenure(&["service", "drain", "agents/planner/a1", "--reason", "upgrade"]);
    assert_eq!(names(&server, &[]), "");
    assert!(tenure(&["why", "agents/planner/a1"]).contains("upgrade"));
    assert!(tenure(&["service", "show", SERVICE]).contains("passing, draining"));
    tenure(&["service", "undrain", "agents/planner/a1"]);
    assert_eq!(names(&server, &[]), "agents/planner/a1\n");
    let taken = server.tenure(&register("a1", &[]));
    assert_eq!(taken.status.code(), Some(75), "{}", text(&taken.stderr));
    assert!(text(&taken.stderr).contains("nothing was changed") && text(&taken.stderr).contains("tenure why"));
    tenure(&["deregister", "agents/planner/a1", "--force", "--reason", "too old"]);
    assert_eq!(a1.ends().code(), Some(79), "{}", a1.read("stderr"));
    assert!(a1.read("stderr").contains("too old"), "{}", a1.read("stderr"));
    assert!(tenure(&["why", "agents/planner/a1"]).contains("revoked by"), "how it ended is told");
    assert_eq!(story(&client, "a1").await, ["registered", "drained", "undrained", "deregistered revoked"]);
    // A higher epoch takes the place of a lower one, which is told so.
    let mut old = agent(&server, "a2", &["--epoch", "1"]);
    let _new = agent(&server, "a2", &["--epoch", "2"]);
    assert_eq!(old.ends().code(), Some(79));
    assert!(old.read("stderr").contains("superseded"), "{}", old.read("stderr"));
    let late = server.tenure(&register("a2", &["--epoch", "1"]));
    assert_eq!(late.status.code(), Some(1), "{}", text(&late.stderr));
    assert!(text(&late.stderr).contains("--epoch 3"), "{}", text(&late.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_by_the_command_goes_on_at_another_node() {
    let mut cluster = Cluster::start(3).await;
    let node = cluster.followers().await[0];
    let client = cluster.client_of(cluster.leader().await).await;
    let _a1 = client.register(SERVICE).id("a1").endpoint("http://127.0.0.1:9").begin().await.unwrap();
    let watch = Agent::start(&cluster.addrs_from(node), &["discover", SERVICE, "--watch", "-o", "name"]);
    watch.until("stdout", |said| said.ends_with("agents/planner/a1\n"));
    cluster.kill9(node);
    let _a2 = client.register(SERVICE).id("a2").endpoint("http://127.0.0.1:9").begin().await.unwrap();
    watch.until("stdout", |said| said.ends_with("agents/planner/a1\nagents/planner/a2\n"));
    cluster.tell_faults();
}

#[tokio::test]
async fn a_file_follows_the_set_and_keeps_the_last_good_one() {
    let (directory, server) = house();
    let file = directory.path().join("backend.cfg");
    let runs = directory.path().join("runs");
    let broken = directory.path().join("broken");
    // A reload that fails is said, and made again at the next change.
    let reload = format!("test ! -e {} && wc -l < \"$TENURE_FILE\" >> {}", broken.display(), runs.display());
    let (path, runs_so_far) = (file.to_str().unwrap(), || fs::read_to_string(&runs).unwrap_or_default());
    let args = ["discover", SERVICE, "-o", "haproxy", "--watch", "-f", path, "--exec", &reload];
    let keeper = Agent::start(&server.addr, &args);
    keeper.until("stderr", |said| said.contains("is not written"));
    let mut a1 = agent(&server, "a1", &["--drain-for", "0s"]);
    let until_file = |is_so: &dyn Fn(&str) -> bool| keeper.until(path, is_so);
    let one = "backend agents_planner\n    server a1 127.0.0.1:9 weight 1\n";
    until_file(&|text| text == one);
    keeper.until(runs.to_str().unwrap(), |runs| runs == "2\n");
    fs::write(&broken, "").unwrap();
    let mut a2 = agent(&server, "a2", &["--drain-for", "0s"]);
    until_file(&|text| text.contains("server a2"));
    keeper.until("stderr", |said| said.contains("cannot run test"));
    assert_eq!(runs_so_far(), "2\n");
    fs::remove_file(&broken).unwrap();
    a2.signal("TERM");
    a2.ends();
    until_file(&|text| text == one);
    keeper.until(runs.to_str().unwrap(), |runs| runs == "2\n2\n");
    a1.signal("TERM");
    a1.ends();
    keeper.until("stderr", |said| said.contains("keeps those that were there last"));
    assert_eq!(fs::read_to_string(&file).unwrap(), one);
    let emptied = server.tenure(&["discover", SERVICE, "-o", "haproxy", "-f", path, "--empty-ok"]);
    assert!(emptied.status.success(), "{}", text(&emptied.stderr));
    assert_eq!(fs::read_to_string(&file).unwrap(), "backend agents_planner\n");
    assert_eq!(
        fs::read_dir(directory.path()).unwrap().filter(|entry| is_new(entry.as_ref().unwrap().path())).count(),
        0
    );
}

/// Who is heard of last would get everything otherwise, while all of them live.
#[tokio::test]
async fn a_file_keeps_everybody_while_no_server_is_heard() {
    let (directory, server) = house();
    let _agents = [agent(&server, "a1", &["--ttl", "10s"]), agent(&server, "a2", &["--ttl", "10m"])];
    let file = directory.path().join("backend.cfg");
    let keeper =
        Agent::start(&server.addr, &["discover", SERVICE, "-o", "name", "--watch", "-f", file.to_str().unwrap()]);
    let both = "agents/planner/a1\nagents/planner/a2\n";
    keeper.until(file.to_str().unwrap(), |text| text == both);
    server.signal("STOP");
    keeper.until("stderr", |said| said.contains("no server is heard: the file keeps the 2 instances"));
    assert_eq!(fs::read_to_string(&file).unwrap(), both);
    server.signal("CONT");
    keeper.until("stderr", |said| said.contains("a server is heard again"));
    assert_eq!(fs::read_to_string(&file).unwrap(), both);
}

#[tokio::test]
async fn an_agent_that_stood_still_for_longer_than_its_ttl_is_registered_again() {
    let (_directory, server) = house();
    let client = server.client().await;
    let a1 = agent(&server, "a1", &["--ttl", "5s", "--cap", "gpu"]);
    let mut view = client.discover(SERVICE).view().await.unwrap();
    until(&mut view, "the agent", |view| view.instances().len() == 1).await;
    a1.signal("STOP");
    until(&mut view, "its end", |view| view.told().is_empty()).await;
    a1.signal("CONT");
    until(&mut view, "its return", |view| !view.instances().is_empty()).await;
    let back = view.instances().remove(0).instance;
    assert_eq!((back.id.as_str(), back.epoch), ("a1", 2));
    assert_eq!(back.details.as_ref().unwrap().capabilities, ["gpu"]);
    a1.until("stderr", |said| said.contains("registered again, in epoch 2"));
    assert_eq!(story(&client, "a1").await, ["registered", "deregistered expired", "registered"]);
}

fn is_new(path: impl AsRef<Path>) -> bool {
    path.as_ref().to_string_lossy().ends_with("tenure-new")
}

#[tokio::test]
async fn what_cannot_be_is_refused_and_changes_nothing() {
    let (_directory, server) = house();
    let client = server.client().await;
    let before = client.status(v1::StatusRequest {}).await.unwrap().revision;
    let long = "x".repeat(2_000);
    let labels: Vec<String> = (0..100).flat_map(|n| ["--label".to_owned(), format!("k{n}=v")]).collect();
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    let typed: Vec<(Vec<&str>, &str)> = vec![
        (vec!["register", SERVICE], "--endpoint"),
        (vec!["register", "a//b", "--endpoint", "http://a:1"], "name"),
        (vec!["register", SERVICE, "--endpoint", "10.0.0.7"], "scheme"),
        (vec!["register", SERVICE, "--endpoint", "http://10.0.0.7"], "port"),
        (vec!["register", SERVICE, "--endpoint", "http://me@10.0.0.7:1"], "more than scheme"),
        (vec!["register", SERVICE, "--endpoint", "http://a:1/path"], "more than scheme"),
        (register("a/b", &[]), "id"),
        (register(&long, &[]), "id"),
        (register("a", &["--cap", "a b"]), "capability"),
        (register("a", &labels), "label"),
        (register("a", &["--label", "novalue"]), "KEY=VALUE"),
        (register("a", &["--weight", "65536"]), "weight"),
        (register("a", &["--ttl", "1ms"]), "TTL"),
        (register("a", &["--check", "tcp@0s"]), "1s to 1h"),
        (register("a", &["--check", "tcp@366d"]), "1s to 1h"),
        (register("a", &["--check", "icmp@5s"]), "not a check"),
        (register("a", &["--on-critical", "revoke-after=366d"]), "revoke"),
        (register("a", &["--on-critical", "panic"]), "mark, observe"),
        (register("a", &["--epoch", "0"]), "epoch"),
        (vec!["discover", SERVICE, "--cap", "gpu &"], "byte"),
        (vec!["discover", SERVICE, "--cap", &long], "bytes"),
        (vec!["discover", SERVICE, "--exec", "true"], "--file"),
        (vec!["discover", SERVICE, "-o", "yaml"], "yaml"),
        (vec!["ls", "-o", "nginx"], "tenure discover"),
        (vec!["deregister", "planner"], "SERVICE/ID"),
        (vec!["deregister", "a/b", "--reason", "x"], "--force"),
        (vec!["service", "drain", "a/"], "SERVICE/ID"),
    ];
    for (args, why) in &typed {
        let refused = server.tenure(args);
        let words = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{args:?}: {words}");
        assert!(words.contains(why) && words.contains("nothing was changed"), "{args:?} should say {why}: {words}");
    }
    for args in [vec!["deregister", "agents/planner/none"], vec!["service", "drain", "agents/planner/none"]] {
        let refused = server.tenure(&args);
        assert_eq!(refused.status.code(), Some(1), "{args:?}");
        let words = text(&refused.stderr);
        assert!(words.contains("nothing was changed") && words.contains("tenure service ls"), "{words}");
    }
    assert_eq!(client.status(v1::StatusRequest {}).await.unwrap().revision, before);
    println!("{} refused", typed.len());
}

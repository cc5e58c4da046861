//! Each rule of the ledger once, typed by hand against a real server: what is printed, and what it comes to.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it is surprised, and waits for things with a deadline"
)]

use crate::support::{PATIENCE, Server, binary, text};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::Instant;

/// A server, and hands to type with.
struct Desk {
    server: Server,
    _directory: tempfile::TempDir,
}

impl Desk {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { server: Server::start(directory.path()), _directory: directory }
    }

    fn types(&self, line: &str) -> Output {
        let words: Vec<&str> = line.split(' ').collect();
        self.server.tenure(&words)
    }

    /// What is printed on stdout by what works.
    fn gets(&self, line: &str) -> String {
        let output = self.types(line);
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        text(&output.stdout).trim_end().to_owned()
    }

    /// What is said on stderr by what works.
    fn hears(&self, line: &str) -> String {
        let output = self.types(line);
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        text(&output.stderr)
    }

    /// What is said on stderr by what does not work, which prints nothing.
    fn fails(&self, line: &str, code: i32) -> String {
        let output = self.types(line);
        let words = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {words}");
        assert_eq!(text(&output.stdout), "", "{line}");
        assert!(words.contains("tenure: cannot ") && words.contains("\n        "), "what, why, what next: {words}");
        words
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.gets(&format!("{line} -o json"))).unwrap()
    }

    /// Types something that takes its time.
    fn begins(&self, line: &str) -> Child {
        let mut command = Command::new(binary());
        command.args(line.split(' ')).env("TENURE_ADDR", &self.server.addr).env("USER", "ann");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Looks again and again, until it is so.
    fn until(&self, line: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let value = self.json(line);
            if is_so(&value) {
                return value;
            }
            assert!(start.elapsed() < PATIENCE, "{line} never came to it: {value}");
        }
    }

    fn until_waiting(&self, name: &str, count: usize) {
        self.until(&format!("show {name}"), |shown| shown["line"].as_array().unwrap().len() == count);
    }
}

/// What a command that was begun has printed, once it has ended.
fn ends(child: Child) -> (String, Output) {
    let (sender, receiver) = sync_channel(1);
    std::thread::spawn(move || sender.send(child.wait_with_output().unwrap()));
    let output = receiver.recv_timeout(PATIENCE).expect("it ends");
    (text(&output.stdout).trim_end().to_owned(), output)
}

fn names(list: &Value, field: &str) -> Vec<String> {
    let items = list.as_array().unwrap_or_else(|| panic!("not a list: {list}"));
    items.iter().map(|item| item[field].as_str().unwrap().to_owned()).collect()
}

#[test]
fn shared_claims_sit_together_and_an_exclusive_one_waits_for_them_all() {
    let desk = Desk::new();
    assert_eq!(desk.gets("acquire doc --shared --holder ann --ttl 1h"), "doc@1");
    assert_eq!(desk.gets("acquire doc --shared --holder bob --ttl 1h"), "doc@2");
    assert!(desk.fails("acquire doc --holder cat", 75).contains("doc is held by ann"));
    let cat = desk.begins("acquire doc --holder cat --wait 1m --ttl 1h");
    desk.until_waiting("doc", 1);
    let behind = desk.fails("acquire doc --shared --holder dan", 75);
    assert!(behind.contains("doc is waited for by cat"), "nobody goes past who waits: {behind}");
    let shown = desk.json("show doc");
    assert_eq!(names(&shown["holders"], "holder"), ["ann", "bob"]);
    assert_eq!(names(&shown["holders"], "mode"), ["shared", "shared"]);
    desk.gets("release doc@1 doc@2");
    assert_eq!(ends(cat).0, "doc@3");
}

#[test]
fn counted_claims_take_units_of_the_capacity() {
    let desk = Desk::new();
    assert_eq!(desk.gets("acquire pool --slots 2/3 --holder ann --ttl 1h"), "pool@1");
    assert!(desk.fails("acquire pool --slots 2 --holder bob", 75).contains("pool is held by ann"));
    assert_eq!(desk.gets("acquire pool --slots 1 --holder bob --ttl 1h"), "pool@2");
    assert!(desk.fails("acquire pool --slots 4", 1).contains("4 units are more than the 3 that pool has"));
    assert!(desk.fails("acquire pool --slots 1/5", 1).contains("pool has a capacity of 3, not 5"));
    assert!(desk.hears("resource define pool --capacity 5").contains("pool has 5 units"));
    let shown = desk.json("show pool");
    assert_eq!((&shown["capacity"], &shown["free_units"], &shown["defined"]), (&5.into(), &2.into(), &true.into()));
    assert_eq!(desk.gets("acquire pool --slots 2 --holder cat --ttl 1h"), "pool@3");
    let listed = desk.json("resource ls pool");
    assert_eq!((&listed["items"][0]["units_used"], &listed["items"][0]["holders"]), (&5.into(), &3.into()));
    desk.gets("release pool@1 pool@2 pool@3");
    assert_eq!(desk.gets("resource ls --defined -o name"), "pool", "what is defined stays when it is free");
    desk.gets("resource forget pool");
    assert_eq!(desk.gets("resource ls -o name"), "");
    assert!(desk.fails("resource define pool --capacity 0", 2).contains("from 1 to"));
}

#[test]
fn several_resources_are_had_together_or_not_at_all() {
    let desk = Desk::new();
    desk.gets("acquire b --holder bob --ttl 1h");
    assert!(desk.fails("acquire a b --holder ann", 75).contains("b is held by bob"));
    assert_eq!(desk.gets("ls a -o name"), "", "nothing of it was taken");
    assert!(desk.fails("acquire a b --holder ann --wait 200ms", 75).contains("did not become free in time"));
    assert_eq!(desk.json("ls")["items"].as_array().unwrap().len(), 1, "whoever gave up left nothing behind");
    assert!(desk.fails("acquire a b --wait 2h", 2).contains("several resources may be waited for"));
    assert!(desk.fails("acquire a a", 2).contains("a is named twice"));
    let both = desk.begins("acquire a b --holder ann --wait 1m --ttl 1h");
    desk.until_waiting("a", 1);
    assert!(desk.gets("why a").contains("ann"), "it waits in the line of each");
    desk.gets("release b@1");
    assert_eq!(ends(both).0, "a@2\nb@3", "one handle a line, in the order asked");
    desk.gets("release a@2 b@3");
    assert_eq!(desk.gets("lease ls -o name"), "", "the lease of an acquire ends with its last claim");
}

#[test]
fn a_higher_priority_goes_before_those_who_came_a_little_earlier() {
    let desk = Desk::new();
    desk.gets("acquire db --holder ann --ttl 1h");
    let bob = desk.begins("acquire db --holder bob --wait 1m --ttl 1h");
    desk.until_waiting("db", 1);
    let cat = desk.begins("acquire db --holder cat --wait 1m --ttl 1h --priority 5");
    desk.until_waiting("db", 2);
    let late = desk.begins("acquire db --holder dan --wait 1m --ttl 1h --priority -5");
    desk.until_waiting("db", 3);
    assert_eq!(names(&desk.json("show db")["line"], "holder"), ["cat", "bob", "dan"]);
    desk.gets("release db@1");
    assert_eq!(ends(cat).0, "db@2");
    desk.gets("release db@2");
    assert_eq!(ends(bob).0, "db@3");
    desk.gets("release db@3");
    assert_eq!(ends(late).0, "db@4");
    assert!(desk.fails("acquire db --priority 1001", 2).contains("from -1000 to 1000"));
}

#[test]
fn whoever_is_stopped_from_the_keyboard_leaves_the_line() {
    let desk = Desk::new();
    desk.gets("acquire db --holder ann --ttl 1h");
    let bob = desk.begins("acquire db --holder bob --wait 1h --ttl 1h");
    desk.until_waiting("db", 1);
    assert!(Command::new("kill").args(["-s", "INT", &bob.id().to_string()]).status().unwrap().success());
    let (_, output) = ends(bob);
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    desk.until_waiting("db", 0);
}

#[test]
fn a_wait_that_would_close_a_circle_is_refused() {
    let desk = Desk::new();
    let (ann, bob) = (desk.gets("lease grant --ttl 1h --holder ann"), desk.gets("lease grant --ttl 1h --holder bob"));
    desk.gets(&format!("acquire x --lease {ann}"));
    desk.gets(&format!("acquire y --lease {bob}"));
    let waits = desk.begins(&format!("acquire y --lease {ann} --wait 1m"));
    desk.until_waiting("y", 1);
    let refused = desk.fails(&format!("acquire x --lease {bob} --wait 1m"), 1);
    assert!(refused.contains("bob would wait for ann, ann waits for bob"), "{refused}");
    desk.gets("release y@2");
    assert_eq!(ends(waits).0, "y@3");
}

#[test]
fn a_lock_delay_keeps_everybody_off_after_an_expiry() {
    let desk = Desk::new();
    desk.gets("acquire db --holder ann --ttl 100ms --lock-delay 1h");
    let shown = desk.until("show db", |shown| shown["state"] == "vacating");
    assert_eq!(shown["vacating"][0]["end"], "expired");
    assert!(desk.fails("acquire db --holder bob", 75).contains("db is still vacating after ann"));
    assert!(desk.gets("why db").contains("The next exclusive claim can start in 59m"), "{}", desk.gets("why db"));
    desk.gets("break db --now --reason checked");
    assert_eq!(desk.gets("acquire db --holder bob"), "db@2");
    desk.gets("acquire log --holder ann --lock-delay 1h");
    desk.gets("release log@3");
    assert_eq!(desk.gets("acquire log --holder bob"), "log@4", "who gives back leaves nothing behind");
}

#[test]
fn a_break_leaves_the_holder_what_was_promised_and_says_so() {
    let desk = Desk::new();
    desk.gets("acquire db --holder bob --ttl 1h");
    let ordered = desk.hears("break db --delay 2h --reason maintenance");
    assert!(ordered.contains("1 claim on db will be broken in 2h00m"), "{ordered}");
    assert!(desk.hears("renew db@1").contains("somebody has ordered that it be broken in 1h59m"));
    assert!(desk.json("renew db@1")["breaks_in_ms"].as_u64().unwrap() > 7_000_000);
    assert!(desk.gets("why db").contains(": maintenance"), "{}", desk.gets("why db"));
    assert!(desk.gets("verify db@1").is_empty(), "it is held until then");
    let broken = desk.hears("break db@1 --reason stuck");
    assert!(broken.contains("1 claim on db broken; vacating for 59m"), "{broken}");
    assert_eq!(desk.types("verify db@1").status.code(), Some(1));
    assert!(desk.fails("acquire db --holder cat", 75).contains("still vacating after bob"));
    assert!(desk.fails("break db@1 --reason again", 1).contains("its claim was revoked by ann@"));
    assert!(desk.hears("break db --now --reason checked").contains("only the fence protects"));
    assert!(desk.fails("break db --reason again", 1).contains("nobody holds db"));
    desk.gets("acquire db --holder cat --ttl 1h");
    desk.hears("break db --delay 100ms --now --reason soon");
    desk.until("show db", |shown| shown["state"] == "free");
    assert_eq!(desk.types("break db").status.code(), Some(2), "a break needs a reason");
}

#[test]
fn a_claim_is_transferred_by_its_holder_or_by_force() {
    let desk = Desk::new();
    let to = desk.gets("lease grant --ttl 1h --holder bob");
    desk.gets("acquire db --holder ann --ttl 1h");
    assert_eq!(desk.gets(&format!("transfer db@1 --to {to}")), "db@2", "with a new fence");
    let stale = text(&desk.types("verify db@1").stderr);
    assert!(stale.contains("its claim was given to bob"), "{stale}");
    let other = desk.gets("lease grant --ttl 1h --holder cat");
    let forced = desk.hears(&format!("transfer db@2 --to {other} --force --reason takeover"));
    assert!(forced.contains("the next seat reserved"), "{forced}");
    let shown = desk.json("show db");
    assert_eq!((&shown["state"], &shown["line"][0]["reserved"]), (&"vacating".into(), &true.into()));
    desk.gets("break db --now --reason checked");
    let shown = desk.until("show db", |shown| shown["state"] == "held");
    assert_eq!(shown["holders"][0]["holder"], "cat");
    desk.hears(&format!("transfer db@3 --to {to} --force --reason back --now"));
    let shown = desk.until("show db", |shown| shown["state"] == "held");
    assert_eq!(shown["holders"][0]["handle"], "db@4");
    assert_eq!(desk.types(&format!("transfer db@4 --to {to} --force")).status.code(), Some(2), "force needs a reason");
}

#[test]
fn what_hangs_on_a_lease_ends_with_it() {
    let desk = Desk::new();
    let parent = desk.gets("lease grant --ttl 2h --holder ann --reason session --label app=web");
    let child = desk.gets(&format!("lease grant --ttl 1h --holder bob --parent {parent}"));
    desk.gets(&format!("acquire db --lease {child}"));
    desk.gets(&format!("key put cfg/a one --lease {child}"));
    let shown = desk.json(&format!("lease show {parent}"));
    assert_eq!((&shown["children"], &shown["child_leases"][0]), (&1.into(), &child.as_str().into()));
    assert_eq!((&shown["reason"], &shown["labels"]["app"]), (&"session".into(), &"web".into()));
    assert_eq!(desk.json(&format!("lease show {child}"))["key_names"][0], "cfg/a");
    let revoked = desk.hears(&format!("lease revoke {parent} --reason bye"));
    assert!(revoked.contains("1 lease revoked") && revoked.contains("db stays vacating for 59m"), "{revoked}");
    assert!(desk.gets(&format!("lease show {child}")).contains(&format!("ended with its parent {parent}")));
    assert!(desk.gets(&format!("lease show {parent}")).contains(": bye"));
    assert!(desk.fails("key get cfg/a", 1).contains("there is no such key"));
    // What its holder gives back is free at once; what hung on it, as it was promised.
    let parent = desk.gets("lease grant --ttl 1h --holder ann");
    desk.gets(&format!("acquire log --lease {parent}"));
    desk.gets(&format!("lease release {parent}"));
    assert_eq!(desk.json("show log")["state"], "free");
    assert!(desk.fails(&format!("lease grant --parent {parent}"), 1).contains("it was released"));
}

#[test]
fn classes_say_what_renews_a_lease_and_how_long_it_lives() {
    let desk = Desk::new();
    let built_in = "cache\nelection\nlock\nregistration\nreservation\nsession";
    assert_eq!(desk.gets("class ls -o name"), built_in);
    let lease = |class: &str| desk.gets(&format!("lease grant --class {class}"));
    let (session, reservation, cache) = (lease("session"), lease("reservation"), lease("cache"));
    assert!(desk.hears(&format!("touch {session}")).contains("for 10m00s"));
    let touched = desk.fails(&format!("touch {reservation}"), 1);
    assert!(touched.contains("renewed by: explicit") && touched.contains("tenure renew"), "{touched}");
    assert!(desk.hears(&format!("renew {reservation}")).contains("for 1h00m"));
    assert!(desk.fails(&format!("renew {cache}"), 1).contains("renewed by: never"));
    desk.gets("acquire db --holder ann --ttl 1h");
    let waits = desk.begins("acquire db --holder bob --class cache --ttl 1500ms --wait 1m");
    let outlived = |shown: &Value| shown["line"][0]["waited_ms"].as_u64() > Some(1_600);
    desk.until("show db", outlived);
    desk.gets("release db@1");
    assert_eq!(ends(waits).0, "db@2", "who waits is renewed whatever the class, and confirmed once");
    assert!(desk.fails("lease grant --class nowhere", 1).contains("there is no class nowhere"));
    assert!(desk.fails("class set batch", 2).contains("a new one needs a TTL"));
    desk.gets("class set batch --ttl 1m --ttl-max 2m --renew explicit --grace 5s");
    desk.gets("class set batch --ttl 90s");
    let batch = &desk.json("class ls")["items"][0];
    assert_eq!(
        (&batch["name"], &batch["ttl_ms"], &batch["ttl_max_ms"]),
        (&"batch".into(), &90_000.into(), &120_000.into())
    );
    assert_eq!((&batch["renew"], &batch["grace_ms"]), (&"explicit".into(), &5_000.into()), "the rest stays as it is");
    assert!(desk.fails("lease grant --class batch --ttl 3m", 2).contains("the range of class batch"));
    let granted = desk.json("lease grant --class batch");
    assert_eq!(granted["ttl_ms"], 90_000);
    assert_eq!(desk.gets("lease ls --class batch -o name"), granted["lease"].as_str().unwrap());
}

#[test]
fn a_lease_may_be_overdue_and_its_lifetime_may_end() {
    let desk = Desk::new();
    desk.gets("acquire db --holder ann --ttl 100ms --grace 1h");
    let overdue = desk.until("lease ls", |listed| listed["items"][0]["state"] == "overdue");
    assert_eq!(overdue["items"][0]["remaining_ms"], 0);
    assert!(desk.fails("acquire db --holder bob", 75).contains("held by ann"), "an overdue lease holds what it holds");
    assert!(desk.hears("renew db@1 --ttl 1h").contains("for 1h00m"));
    desk.gets("acquire log --holder ann --ttl 1h --max-lifetime 1h");
    let last = desk.until("renew log@2", |renewed| renewed["is_final"] == true);
    assert!(last["ttl_ms"].as_u64().unwrap() < 3_600_000);
    assert!(desk.hears("renew log@2").contains("no renewal moves its deadline further"));
    desk.gets("acquire job --holder ann --ttl 1h --max-lifetime 1h --while-others-wait");
    assert_eq!(desk.json("renew job@3")["is_final"], false, "nobody waits");
    desk.gets("acquire short --holder ann --ttl 200ms --max-lifetime 100ms");
    desk.until("show short", |shown| shown["past"][0]["end"] == "reached its maximum lifetime");
}

#[test]
fn a_holder_that_starts_again_supersedes_its_old_claim() {
    let desk = Desk::new();
    desk.gets("acquire svc --holder web --epoch 3 --ttl 1h");
    let older = desk.fails("acquire svc --holder web --epoch 2", 1);
    assert!(older.contains("web has claimed svc in epoch 3 already") && older.contains("--epoch 4"), "{older}");
    assert!(desk.fails("acquire svc --holder other --epoch 9", 75).contains("held by web"));
    assert_eq!(desk.gets("acquire svc --holder web --epoch 4 --ttl 1h"), "svc@2", "at once");
    assert_eq!(desk.json("show svc")["past"][0]["end"], "superseded by a higher epoch");
    assert!(desk.fails("acquire svc --epoch 5", 2).contains("--holder"), "an epoch belongs to a named holder");
}

#[test]
fn leases_are_revoked_by_prefix_holder_and_label() {
    let desk = Desk::new();
    desk.gets("acquire jobs/a jobs/b --holder ann --ttl 1h");
    desk.gets("acquire jobs/c --holder bob --ttl 1h");
    desk.gets("acquire web/a --holder bob --ttl 1h --label app=web --label zone=a");
    desk.gets("acquire web/b --holder cat --ttl 1h --label app=web");
    desk.gets("acquire web/c --holder cat --ttl 1h --label app=db");
    assert_eq!(desk.gets("ls --holder bob -o json").matches("\"name\"").count(), 2);
    assert_eq!(desk.gets("lease ls --label app=web -o name").lines().count(), 2);
    let revoked = desk.hears("lease revoke --prefix jobs/ --reason moved");
    assert!(revoked.contains("2 leases revoked"), "{revoked}");
    for name in ["jobs/a", "jobs/b", "jobs/c"] {
        assert!(revoked.contains(&format!("{name} stays vacating for 59m")), "{revoked}");
        assert_eq!(desk.json(&format!("show {name}"))["state"], "vacating");
    }
    let revoked = desk.hears("lease revoke --label app=web --now --reason moved");
    assert!(revoked.contains("2 leases revoked") && revoked.contains("only the fence protects"), "{revoked}");
    assert_eq!(desk.gets("ls web/ -o name"), "web/c@6");
    assert_eq!(desk.json("lease revoke --holder cat --now")["leases"], 1);
    assert_eq!(desk.json("lease revoke --holder nobody")["leases"], 0, "none is not a refusal");
    assert_eq!(desk.types("lease revoke --holder cat --prefix a").status.code(), Some(2), "one or the other");
}

#[test]
fn keys_are_written_read_attached_and_deleted() {
    let desk = Desk::new();
    let lease = desk.gets("lease grant --ttl 1h --holder ann");
    desk.gets("key put cfg/a one");
    desk.gets(&format!("key put cfg/b two --lease {lease}"));
    assert_eq!(desk.gets("key get cfg/a"), "one");
    desk.gets("key put cfg/b three");
    let b = desk.json("key get cfg/b");
    assert_eq!((&b["value"], &b["version"]), (&"three".into(), &2.into()));
    assert_eq!(b["lease"], lease.as_str(), "it stays on its lease");
    assert_eq!(desk.gets("key ls cfg/ -o name"), "cfg/a\ncfg/b");
    desk.gets(&format!("key attach cfg/a {lease}"));
    desk.gets("key detach cfg/b");
    assert!(desk.fails(&format!("key attach cfg/z {lease}"), 1).contains("there is no such key"));
    desk.gets(&format!("lease release {lease}"));
    assert_eq!(desk.gets("key ls -o name"), "cfg/b", "what hung on the lease is gone");
    assert!(desk.hears("key rm cfg/z").contains("0 keys deleted"));
    assert!(desk.hears("key rm cfg/ --prefix").contains("1 key deleted"));
    assert!(desk.fails("key get cfg/b", 1).contains("there is no such key"));
}

#[test]
fn why_tells_who_what_for_how_long_and_what_to_do() {
    let desk = Desk::new();
    let ann = desk.gets("lease grant --ttl 1h --holder ann --reason migration");
    desk.gets(&format!("acquire db --lease {ann}"));
    desk.gets("acquire log --holder cat --ttl 1h");
    let ann_waits = desk.begins(&format!("acquire log --lease {ann} --wait 1m"));
    desk.until_waiting("log", 1);
    let bob = desk.begins("acquire db aux --holder bob --wait 1m --ttl 1h");
    desk.until_waiting("db", 1);
    let why = desk.gets("why db");
    for part in [
        "db is held by ann (exclusive, fence 1).",
        "what for      migration",
        "since         ",
        "last renewal  ",
        "left of 1h00m",
        "bob can start in 59m",
        "1. bob for ",
        "together with aux",
        "db is held by ann",
        "    log is held by cat",
        "tenure acquire db --wait 5m",
        "tenure break db@1 --delay 30s --reason TEXT",
    ] {
        assert!(why.contains(part), "{part:?} is not in:\n{why}");
    }
    let told = desk.json("why db");
    assert_eq!(names(&told["blockers"], "holder"), ["ann", "cat"]);
    assert!(told["next_in_ms"].as_u64().unwrap() > 3_000_000);
    desk.gets("release log@2 db@1");
    assert_eq!((ends(ann_waits).0, ends(bob).0), ("log@3".into(), "db@4\naux@5".into()));
    assert!(desk.gets("why db").contains("db@1 of ann: released"), "how the last holders lost it");
    assert!(desk.gets("why nothing").contains("nothing is free: nobody holds it."));
}

#[test]
fn history_and_watch_tell_the_same_and_a_watch_goes_on_where_it_ended() {
    let desk = Desk::new();
    desk.gets("acquire jobs/a --holder ann --ttl 1h");
    desk.gets("acquire web --holder ann --ttl 1h");
    desk.gets("release jobs/a@1");
    desk.gets("resource define jobs/a --capacity 2");
    desk.gets("key put k v");
    let back: Vec<String> = desk.gets("history -o jsonl").lines().map(ToOwned::to_owned).collect();
    assert_eq!(back.len(), 8);
    let watched = read_lines(desk.begins("watch --after 0 -o jsonl"), back.len());
    assert!(watched.iter().eq(back.iter().rev()), "{watched:?}\n{back:?}");
    let kinds = |line: &str| names(&desk.json(line)["items"], "kind");
    assert_eq!(kinds("history jobs/a"), ["defined", "vacated", "seated"]);
    assert_eq!(kinds("history --prefix jobs/ -n 1"), ["defined"]);
    let place = desk.gets("history web -o name");
    let rest = read_lines(desk.begins(&format!("watch jobs/ --after {place}")), 2);
    assert!(rest[0].contains("jobs/a@1 released") && rest[1].contains("jobs/a defined with 2 units"), "{rest:?}");
    assert!(desk.fails("watch --after 9999", 1).contains("has not happened here"));
}

/// The first lines that a watch prints; then it is stopped.
fn read_lines(mut child: Child, count: usize) -> Vec<String> {
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let (sender, receiver) = sync_channel(count);
    std::thread::spawn(move || stdout.lines().map_while(Result::ok).take(count).try_for_each(|line| sender.send(line)));
    let lines = (0..count).map(|_| receiver.recv_timeout(PATIENCE).expect("it is told")).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    lines
}

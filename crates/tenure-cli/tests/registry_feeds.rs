//! Programs that others wrote go where agents are: HAProxy and nginx, reloaded by `tenure discover --watch --exec`, and
//! Prometheus, which finds its targets by itself.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test stops where it is surprised, says what it skips, and pauses between two looks"
)]

use crate::support::agents::Agent;
use crate::support::{PATIENCE, Running, Server, reserved, text};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SERVICE: &str = "agents/planner";

/// Whether a program is there. Without it the test is skipped, but never in CI.
fn have(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
        || Command::new(program).arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    assert!(found || std::env::var_os("CI").is_none(), "CI needs the Debian package {program}");
    if !found {
        println!("skipped: the Debian package {program} is missing");
    }
    found
}

/// Something that answers every request with its own name, and counts them.
struct Backend {
    url: String,
    hits: Arc<AtomicU64>,
}

impl Backend {
    fn start(name: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let hits = Arc::new(AtomicU64::new(0));
        let counted = hits.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let counted = counted.clone();
                std::thread::spawn(move || answer(&stream, name, &counted));
            }
        });
        Self { url, hits }
    }

    fn hits(&self) -> u64 {
        self.hits.load(Ordering::SeqCst)
    }
}

fn answer(mut stream: &TcpStream, name: &str, hits: &AtomicU64) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    if lines.next().is_none_or(|first| !first.starts_with("GET ")) {
        return;
    }
    lines.find(String::is_empty);
    hits.fetch_add(1, Ordering::SeqCst);
    let body = format!("{name} 1\n");
    let head =
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\n", body.len());
    let _ = stream.write_all(format!("{head}connection: close\r\n\r\n{body}").as_bytes());
}

/// What is answered, head and all; nothing if nobody is there yet.
fn get(address: &str, path: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(address) else { return String::new() };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    let mut answer = String::new();
    let _ = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer));
    answer
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what} never came");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// HAProxy as a daemon, by the file of its number. Dropping it ends it.
struct Daemon {
    pid: PathBuf,
}

impl Daemon {
    fn number(&self) -> String {
        fs::read_to_string(&self.pid).unwrap_or_default().trim().to_owned()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-s", "KILL", &self.number()]).status();
    }
}

fn is_gone(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

fn register(server: &Server, id: &str, backend: &Backend) -> Agent {
    let args = ["register", SERVICE, "--id", id, "--endpoint", &backend.url, "--ttl", "5s"];
    let agent = Agent::start(&server.addr, &args);
    agent.until("stdout", |said| said.contains(id));
    agent
}

fn write_main(path: &Path, address: &str) {
    let text = format!(
        "global\n    maxconn 100\ndefaults\n    mode http\n    timeout connect 2s\n    timeout client 5s\n    \
         timeout server 5s\nfrontend in\n    bind {address}\n    default_backend agents_planner\n"
    );
    fs::write(path, text).unwrap();
}

#[test]
fn haproxy_sends_nothing_to_an_agent_that_was_killed_even_if_its_port_answers() {
    if !have("haproxy") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let [data, main, file, pid, loaded] =
        ["data", "main.cfg", "backend.cfg", "pid", "loaded"].map(|name| directory.path().join(name));
    let server = Server::start(&data);
    let backends = ["a1", "a2", "a3"].map(Backend::start);
    let agents: Vec<Agent> =
        ["a1", "a2", "a3"].into_iter().zip(&backends).map(|(id, backend)| register(&server, id, backend)).collect();
    let address = reserved().to_string();
    write_main(&main, &address);
    let [main, file_, pid_, loaded_] = [&main, &file, &pid, &loaded].map(|path| path.display().to_string());
    let reload = format!(
        "haproxy -D -f {main} -f {file_} -p {pid_} -sf $(cat {pid_} 2>/dev/null) && cp {file_} {loaded_}.new && mv {loaded_}.new {loaded_}"
    );
    let daemon = Daemon { pid };
    let args = ["discover", SERVICE, "-o", "haproxy", "--watch", "-f", &file_, "--exec", &reload];
    let keeper = Agent::start(&server.addr, &args);
    keeper.until(&loaded_, |text| ["a1", "a2", "a3"].iter().all(|id| text.contains(&format!("server {id} "))));
    until("all three get requests", || {
        get(&address, "/");
        backends.iter().all(|backend| backend.hits() > 0)
    });
    let before = daemon.number();
    agents[1].signal("KILL");
    keeper.until(&loaded_, |text| text.contains("server a1 ") && !text.contains("server a2 "));
    until("the old process of HAProxy ends", || daemon.number() != before && is_gone(&before));
    let [first, killed, third] = backends.each_ref().map(Backend::hits);
    for _ in 0..60 {
        let answer = get(&address, "/");
        assert!(answer.starts_with("HTTP/1.1 200") && !answer.contains("a2 1"), "{answer}");
    }
    assert_eq!(backends[1].hits(), killed, "its port answers, and nobody asks it");
    assert_eq!(backends[0].hits() + backends[2].hits(), first + third + 60);
    println!("{} reloads, {killed} requests before", keeper.read("stderr").lines().count());
}

/// nginx in the foreground. Dropping it ends it, with its workers.
struct Nginx(std::process::Child);

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-s", "TERM", &self.0.id().to_string()]).status();
        let _ = self.0.wait();
    }
}

/// How many workers it has, those that are ending included.
fn workers(nginx: &Nginx) -> usize {
    let id = nginx.0.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    children.split_whitespace().count()
}

/// By a configuration of its own.
fn nginx(directory: &Path, address: &str) -> Command {
    let text = format!(
        "daemon off;\nworker_processes 1;\nerror_log stderr;\npid nginx.pid;\nevents {{}}\nhttp {{\n    access_log off;\n    \
         client_body_temp_path body;\n    proxy_temp_path proxy;\n    fastcgi_temp_path fastcgi;\n    \
         uwsgi_temp_path uwsgi;\n    scgi_temp_path scgi;\n    \
         include planner.conf;\n    server {{\n        listen {address};\n        location / {{ proxy_pass \
         http://agents_planner; }}\n    }}\n}}\n"
    );
    fs::write(directory.join("main.conf"), text).unwrap();
    let mut command = Command::new("nginx");
    command.arg("-p").arg(directory).arg("-c").arg(directory.join("main.conf")).stdout(Stdio::null());
    command
}

#[test]
fn nginx_sends_nothing_to_an_agent_that_drains_or_was_killed() {
    if !have("nginx") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    let backends = ["a1", "a2", "a3"].map(Backend::start);
    let agents: Vec<Agent> =
        ["a1", "a2", "a3"].into_iter().zip(&backends).map(|(id, backend)| register(&server, id, backend)).collect();
    let (file, address) = (directory.path().join("planner.conf"), reserved().to_string());
    let mut command = nginx(directory.path(), &address);
    // As docs/registry.md has it, but for where nginx lives.
    let here = directory.path().display().to_string();
    let reload = format!("test ! -e {here}/nginx.pid || nginx -p {here} -c {here}/main.conf -s reload");
    let file_ = file.display().to_string();
    let args = ["discover", SERVICE, "-o", "nginx", "--watch", "-f", &file_, "--exec", &reload];
    let keeper = Agent::start(&server.addr, &args);
    keeper
        .until(&file_, |text| backends.iter().all(|backend| text.contains(backend.url.trim_start_matches("http://"))));
    let log = fs::File::create(directory.path().join("log")).unwrap();
    let nginx = Nginx(command.stderr(log).spawn().unwrap());
    until("all three get requests", || {
        get(&address, "/");
        backends.iter().all(|backend| backend.hits() > 0)
    });
    let quiet = |which: usize, what: &str| {
        // The workers from before the reload end by themselves.
        until(what, || {
            let before = backends[which].hits();
            (0..20).for_each(|_| drop(get(&address, "/")));
            backends[which].hits() == before && workers(&nginx) == 1
        });
    };
    let drained = server.tenure(&["service", "drain", &format!("{SERVICE}/a3")]);
    assert!(drained.status.success(), "{}", text(&drained.stderr));
    quiet(2, "nginx asks the draining one no more");
    agents[1].signal("KILL");
    quiet(1, "nginx asks the dead one no more");
    let [first, killed, draining] = backends.each_ref().map(Backend::hits);
    for _ in 0..60 {
        let answer = get(&address, "/");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("a1 1"), "{answer}");
    }
    assert_eq!(backends.each_ref().map(Backend::hits), [first + 60, killed, draining]);
}

#[tokio::test]
async fn prometheus_scrapes_those_that_are_there() {
    if !have("prometheus") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    let client = server.client().await;
    let [one, two] = ["a1", "a2"].map(Backend::start);
    let ask = |id: &str, url: &str| client.register(SERVICE).id(id).endpoint(url).ttl(Duration::from_secs(30));
    let _first = ask("a1", &one.url).begin().await.unwrap();
    let second = ask("a2", &two.url).begin().await.unwrap();
    let (config, address) = (directory.path().join("prometheus.yml"), reserved().to_string());
    let targets = format!("{}/v1/prometheus/targets?service={SERVICE}", server.addr);
    let scrape = format!(
        "scrape_configs:\n- job_name: agents\n  scrape_interval: 1s\n  scrape_timeout: 1s\n  http_sd_configs:\n  \
         - url: {targets}\n    refresh_interval: 1s\n"
    );
    fs::write(&config, scrape).unwrap();
    let mut command = Command::new("prometheus");
    command.arg(format!("--config.file={}", config.display())).arg(format!("--web.listen-address={address}"));
    command.arg(format!("--storage.tsdb.path={}", directory.path().join("tsdb").display()));
    let log = fs::File::create(directory.path().join("log")).unwrap();
    let _prometheus = Running(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
    let address_ = address.clone();
    let known = move |url: &str| {
        let active = get(&address_, "/api/v1/targets?state=active");
        active.contains(url.trim_start_matches("http://"))
    };
    let (first_url, second_url) = (one.url.clone(), two.url.clone());
    tokio::task::spawn_blocking({
        let (known, hits) = (known.clone(), [one.hits.clone(), two.hits.clone()]);
        move || {
            until("both are scraped", || hits.iter().all(|hits| hits.load(Ordering::SeqCst) > 0));
            assert!(known(&first_url) && known(&second_url));
        }
    })
    .await
    .unwrap();
    second.deregister().await.unwrap();
    let (first_url, second_url) = (one.url.clone(), two.url.clone());
    tokio::task::spawn_blocking(move || {
        until("Prometheus lets go of the second", || !known(&second_url) && known(&first_url));
        let (before, gone) = (one.hits(), two.hits());
        until("the first is scraped on", || one.hits() > before + 2);
        assert_eq!(two.hits(), gone, "the second is scraped no more");
    })
    .await
    .unwrap();
    println!("{}", text(&server.tenure(&["service", "ls"]).stdout));
}

//! The load on the HTTP door: plain HTTP/1.1 over connections that stay open, as most clients have them.

use crate::measure::{Figures, Tally, figures};
use crate::server::Server;
use crate::tenure_load::{run, start};
use crate::{Args, Failure};
use futures::future::try_join_all;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Watchers of one stream of events.
const WATCHERS: usize = 1000;

/// Changes that all of them are told, one after the other.
const CHANGES: usize = 50;

struct Line(BufReader<TcpStream>);

impl Line {
    async fn open(server: &Server) -> Result<Self, Failure> {
        let stream = TcpStream::connect(server.addr.trim_start_matches("http://")).await?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    async fn send(&mut self, method: &str, path: &str, body: &str) -> Result<(), Failure> {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        Ok(self.0.write_all(request.as_bytes()).await?)
    }

    /// Reads the head of an answer: whether it is a yes, and how long its body is.
    async fn head(&mut self) -> Result<(bool, usize), Failure> {
        let (mut is_yes, mut length) = (false, 0);
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).await? == 0 {
                return Err("the server has hung up".into());
            }
            if line == "\r\n" {
                return Ok((is_yes, length));
            }
            is_yes |= line.starts_with("HTTP/1.1 200");
            if let Some(text) = line.strip_prefix("content-length: ") {
                length = text.trim().parse()?;
            }
        }
    }

    async fn ask(&mut self, method: &str, path: &str, body: &str) -> Result<(), Failure> {
        self.send(method, path, body).await?;
        let (is_yes, length) = self.head().await?;
        let mut answer = vec![0; length];
        self.0.read_exact(&mut answer).await?;
        if is_yes { Ok(()) } else { Err(String::from_utf8_lossy(&answer).into_owned().into()) }
    }
}

/// Each client claims one new resource after the other.
pub(crate) async fn acquire(args: &Args) -> Result<Figures, Failure> {
    let server = start(args).await?;
    let time = args.time();
    let clients = (0..args.clients).map(|number| {
        let server = &server;
        async move {
            let mut line = Line::open(server).await?;
            let client = async move {
                let mut tally = Tally::default();
                let start = Instant::now();
                for n in 0.. {
                    let body =
                        format!(r#"{{"resource":"bench/{number}/{n}","holder":"bench-{number}","ttl_ms":60000}}"#);
                    let sent = Instant::now();
                    line.ask("POST", "/v1/acquire", &body).await?;
                    tally.add(sent, 1);
                    if start.elapsed() > time {
                        break;
                    }
                }
                Ok::<Tally, Failure>(tally)
            };
            tokio::spawn(client).await?
        }
    });
    run(clients).await
}

/// How long after it was asked for a change reaches each of many watchers: the acknowledgement of the disk included.
pub(crate) async fn watch(args: &Args) -> Result<Figures, Failure> {
    let server = start(args).await?;
    let (heard, mut told) = mpsc::channel(WATCHERS);
    let mut watchers = Vec::new();
    for _ in 0..WATCHERS {
        let mut line = Line::open(&server).await?;
        line.send("GET", "/v1/watch", "").await?;
        line.head().await?;
        let heard = heard.clone();
        watchers.push(tokio::spawn(async move {
            let mut text = String::new();
            while line.0.read_line(&mut text).await? > 0 {
                if text.contains(r#""kind":"seated""#) {
                    heard.send(Instant::now()).await?;
                }
                text.clear();
            }
            Ok::<(), Failure>(())
        }));
    }
    let mut writer = Line::open(&server).await?;
    let mut tally = Tally::default();
    let start = Instant::now();
    for n in 0..CHANGES {
        let body = format!(r#"{{"resource":"bench/{n}","holder":"bench","ttl_ms":60000}}"#);
        let sent = Instant::now();
        writer.ask("POST", "/v1/acquire", &body).await?;
        for _ in 0..WATCHERS {
            let at = tokio::time::timeout(Duration::from_secs(20), told.recv()).await?.ok_or("no watcher is left")?;
            tally.add_latency(at - sent);
        }
    }
    watchers.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(figures(vec![tally], start.elapsed()))
}

/// How long `tenure ls` takes with many leases, as a process that starts, asks, prints and ends.
pub(crate) async fn ls(args: &Args) -> Result<Figures, Failure> {
    const LEASES: usize = 10_000;
    const CALLS: usize = 10;
    let server = start(args).await?;
    let lines = (0..args.clients).map(|number| {
        let server = &server;
        async move {
            let mut line = Line::open(server).await?;
            for n in (number..LEASES).step_by(args.clients) {
                let body = format!(r#"{{"resource":"bench/{n:05}","holder":"bench-{number}","ttl_ms":600000}}"#);
                line.ask("POST", "/v1/acquire", &body).await?;
            }
            Ok::<(), Failure>(())
        }
    });
    try_join_all(lines).await?;
    let mut tally = Tally::default();
    let start = Instant::now();
    for _ in 0..CALLS {
        let mut command = tokio::process::Command::new(&args.binary);
        let begun = Instant::now();
        let listed = command.arg("ls").env("TENURE_ADDR", &server.addr).output().await?;
        tally.add(begun, 1);
        let rows = listed.stdout.iter().filter(|byte| **byte == b'\n').count();
        if rows < LEASES {
            return Err(format!("ls printed {rows} lines").into());
        }
    }
    Ok(figures(vec![tally], start.elapsed()))
}

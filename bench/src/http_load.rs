//! The load on the HTTP door: plain HTTP/1.1 over connections that stay open, as most clients have them.

use crate::claims::{Claim, Claims};
use crate::measure::{Figures, Tally, figures};
use crate::server::Server;
use crate::tenure_load::start;
use crate::{Args, Failure};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Watchers of one stream of events.
const WATCHERS: usize = 1000;

/// Changes that all of them are told, one after the other.
const CHANGES: usize = 50;

pub(crate) struct Line(BufReader<TcpStream>);

impl Claims for Line {
    async fn open(server: &Server) -> Result<Self, Failure> {
        let stream = TcpStream::connect(server.addr.trim_start_matches("http://")).await?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    async fn claim(&mut self, claim: Claim) -> Result<(), Failure> {
        let Claim { resource, holder, ttl_ms } = claim;
        let body = format!(r#"{{"resource":"{resource}","holder":"{holder}","ttl_ms":{ttl_ms}}}"#);
        self.ask("POST", "/v1/acquire", &body).await
    }
}

impl Line {
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
        let sent = Instant::now();
        writer.claim(Claim { resource: format!("bench/{n}"), holder: "bench".into(), ttl_ms: 60_000 }).await?;
        for _ in 0..WATCHERS {
            let at = tokio::time::timeout(Duration::from_secs(20), told.recv()).await?.ok_or("no watcher is left")?;
            tally.add_latency(at - sent);
        }
    }
    watchers.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(figures(vec![tally], start.elapsed()))
}

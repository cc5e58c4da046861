//! A plain HTTP/1.1 client for tests: it sends just what it is told, and hides nothing that comes back.

use crate::PATIENCE;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// A server that can be asked.
pub trait Listens {
    /// `http://host:port`.
    fn addr(&self) -> &str;
}

impl Listens for crate::Server {
    fn addr(&self) -> &str {
        &self.addr
    }
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// What was answered, if it was a yes.
    pub fn yes(self) -> Value {
        assert_eq!(self.status, 200, "{:?}", String::from_utf8_lossy(&self.body));
        assert_eq!(self.header("content-type"), Some("application/json"));
        self.json()
    }

    /// The status and the code of a problem, which says what was changed.
    pub fn no(self) -> (u16, String) {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status);
        (self.status, problem["code"].as_str().unwrap().to_owned())
    }
}

/// An open connection to a server.
pub struct Line {
    stream: BufReader<TcpStream>,
}

impl Line {
    /// A connection to `http://host:port`.
    pub fn open(server: &impl Listens) -> Self {
        Self::to(server.addr().trim_start_matches("http://"))
    }

    /// A connection to `host:port`.
    pub fn to(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// Sends as many bytes as the server takes.
    pub fn try_send(&mut self, bytes: &[u8]) {
        let _ = self.stream.get_mut().write_all(bytes);
    }

    /// Sends a request with these headers beside the usual ones.
    pub fn ask(&mut self, method: &str, path: &str, headers: &[&str], body: &[u8]) {
        let mut request = format!("{method} {path} HTTP/1.1\r\ncontent-length: {}\r\n", body.len());
        if !headers.iter().any(|header| header.to_lowercase().starts_with("host:")) {
            request += "host: localhost\r\n";
        }
        for header in headers {
            request += header;
            request += "\r\n";
        }
        request += "\r\n";
        self.send(&[request.as_bytes(), body].concat());
    }

    /// A line, without its end; none if the server has hung up.
    pub fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let count = self.stream.read_line(&mut line).unwrap_or(0);
        (count > 0).then(|| line.trim_end().to_owned())
    }

    /// The status and the headers of an answer.
    pub fn head(&mut self) -> Answer {
        let first = self.line().expect("the server answers");
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        let mut headers = Vec::new();
        while let Some((name, value)) = self.line().unwrap().split_once(": ") {
            headers.push((name.to_lowercase(), value.to_owned()));
        }
        Answer { status, headers, body: Vec::new() }
    }

    /// A whole answer with a known length.
    pub fn answer(&mut self) -> Answer {
        let mut answer = self.head();
        let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
        answer.body = vec![0; length];
        self.stream.read_exact(&mut answer.body).unwrap();
        answer
    }

    /// The next message of an event stream: its id and its data, which may be missing.
    pub fn message(&mut self) -> Option<(Option<String>, Option<Value>)> {
        let (mut id, mut data) = (None, None);
        loop {
            let line = self.line()?;
            if let Some(text) = line.strip_prefix("id: ") {
                id = Some(text.to_owned());
            } else if let Some(text) = line.strip_prefix("data: ") {
                data = Some(serde_json::from_str(text).unwrap());
            } else if line.is_empty() && (id.is_some() || data.is_some()) {
                return Some((id, data));
            }
        }
    }

    /// The next event of a stream, and its place.
    pub fn event(&mut self) -> (String, Value) {
        loop {
            if let (Some(id), Some(data)) = self.message().expect("the stream goes on") {
                return (id, data);
            }
        }
    }

    /// Whether the server has hung up.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

pub fn get(server: &impl Listens, path: &str) -> Answer {
    ask(server, "GET", path, &[], b"")
}

pub fn ask(server: &impl Listens, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Answer {
    let mut line = Line::open(server);
    line.ask(method, path, headers, body);
    line.answer()
}

pub fn post(server: &impl Listens, path: &str, body: &Value) -> Answer {
    write(server, "POST", path, body)
}

pub fn write(server: &impl Listens, method: &str, path: &str, body: &Value) -> Answer {
    ask(server, method, path, &["content-type: application/json"], body.to_string().as_bytes())
}

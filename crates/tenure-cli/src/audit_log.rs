//! The audit log: the server's audit events as JSON lines in a file of their own. A thread writes them; requests never wait for
//! it. When the file cannot be written, or the queue is full, lines are lost: that is counted, and said in the server's log,
//! and the server goes on.

use crate::failure::Failure;
use serde_json::{Map, Value};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use tenure_server::{AUDIT_TARGET, Node};
use tokio::signal::unix::Signal;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// Lines that wait for the disk: some seconds of a busy server, and a few megabytes.
const QUEUE_MAX: usize = 8192;

/// What the writer receives.
enum Order {
    Line(Vec<u8>),
    /// Open the file again: it may have been renamed.
    Reopen,
    /// Where lost lines are counted from now on.
    CountAt(Box<Node>),
    Close,
}

/// An open audit log.
pub(crate) struct AuditLog {
    orders: SyncSender<Order>,
    lost: Arc<AtomicU64>,
    writer: JoinHandle<()>,
}

impl AuditLog {
    /// Opens the file, which only this user may read if it is new, and starts to write.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let cannot = |error: std::io::Error| {
            let why = format!("cannot write the audit log {}: {error}", path.display());
            Failure::before("cannot serve", &why, "Name a file with --audit-log that this user may write.")
        };
        let file = append_to(path).map_err(cannot)?;
        let (orders, receiver) = sync_channel(QUEUE_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let writer = Writer { path: path.into(), file: Some(file), lost: lost.clone(), told: 0, node: None };
        let writer = std::thread::Builder::new().name("audit-log".into()).spawn(move || writer.run(&receiver));
        Ok(Self { orders, lost, writer: writer.map_err(cannot)? })
    }

    /// What takes the server's audit events.
    pub(crate) fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        let lines = Lines { orders: self.orders.clone(), lost: self.lost.clone() };
        lines.with_filter(Targets::new().with_target(AUDIT_TARGET, tracing::Level::INFO))
    }

    /// Counts lost lines in the metrics of a node, and opens the file again at each hangup.
    pub(crate) async fn keep(orders: Orders, node: Node, mut hangups: Signal) {
        orders.send(Order::CountAt(Box::new(node))).await;
        while hangups.recv().await.is_some() {
            orders.send(Order::Reopen).await;
        }
    }

    pub(crate) fn orders(&self) -> Orders {
        Orders(self.orders.clone())
    }

    /// Writes what is left.
    pub(crate) fn close(self) {
        // A writer that is gone has nothing left.
        let _ = self.orders.send(Order::Close);
        let _ = self.writer.join();
    }
}

/// Where the writer receives what is no line.
#[derive(Clone)]
pub(crate) struct Orders(SyncSender<Order>);

impl Orders {
    async fn send(&self, order: Order) {
        let orders = self.0.clone();
        // The queue may be full for a while. A writer that is gone needs no orders.
        let _ = tokio::task::spawn_blocking(move || drop(orders.send(order))).await;
    }
}

fn append_to(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// The thread that writes.
struct Writer {
    path: PathBuf,
    file: Option<File>,
    lost: Arc<AtomicU64>,
    /// How many lost lines were counted and said.
    told: u64,
    node: Option<Box<Node>>,
}

impl Writer {
    fn run(mut self, orders: &Receiver<Order>) {
        while let Ok(first) = orders.recv() {
            let mut batch = Vec::new();
            let mut lines = 0;
            let mut next = Some(first);
            let mut is_over = false;
            while let Some(order) = next.take() {
                match order {
                    Order::Line(line) => {
                        batch.extend_from_slice(&line);
                        lines += 1;
                        next = if lines < QUEUE_MAX as u64 { orders.try_recv().ok() } else { None };
                    }
                    Order::Reopen => {
                        self.write(&std::mem::take(&mut batch), std::mem::take(&mut lines));
                        self.file = None;
                        next = orders.try_recv().ok();
                    }
                    Order::CountAt(node) => self.node = Some(node),
                    Order::Close => is_over = true,
                }
            }
            self.write(&batch, lines);
            self.tell_of_lost();
            if is_over {
                return;
            }
        }
    }

    /// Writes whole lines. After a failure the file is opened again for the next ones.
    fn write(&mut self, lines: &[u8], count: u64) {
        if self.file.is_none() {
            self.file = append_to(&self.path).inspect_err(|error| self.say(error)).ok();
        }
        let written = match &mut self.file {
            Some(_) if lines.is_empty() => return,
            Some(file) => file.write_all(lines),
            None => {
                self.lost.fetch_add(count, Ordering::Relaxed);
                return;
            }
        };
        if let Err(error) = written {
            self.say(&error);
            self.lost.fetch_add(count, Ordering::Relaxed);
            self.file = None;
        }
    }

    fn say(&self, error: &std::io::Error) {
        tracing::error!(path = %self.path.display(), %error, "the audit log cannot be written");
    }

    fn tell_of_lost(&mut self) {
        let lost = self.lost.load(Ordering::Relaxed);
        let Some(node) = self.node.as_ref().filter(|_| lost > self.told) else { return };
        node.audit_lines_lost(lost - self.told);
        tracing::error!(lines = lost - self.told, "lines of the audit log are lost; the server goes on");
        self.told = lost;
    }
}

/// Makes a line of each event.
struct Lines {
    orders: SyncSender<Order>,
    lost: Arc<AtomicU64>,
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut line = Value::Object(fields.0).to_string().into_bytes();
        line.push(b'\n');
        match self.orders.try_send(Order::Line(line)) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(_)) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// The fields of an event that say something.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        let value = match field.name() {
            // A list comes as JSON, since a field has no lists.
            "names" => serde_json::from_str(value).unwrap_or(Value::Null),
            _ => Value::from(value),
        };
        if value != "" && value != Value::Array(Vec::new()) {
            self.0.insert(field.name().into(), value);
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if value > 0 {
            self.0.insert(field.name().into(), value.into());
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.record_u64(field, u64::try_from(value).unwrap_or_default());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().into(), format!("{value:?}").into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use tracing_subscriber::layer::SubscriberExt;

    fn lines(path: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn told(call: &'static str) {
        let names = r#"["a/b"]"#;
        tracing::info!(target: AUDIT_TARGET, wall_ms = 7, key = "ann", peer = "", call, names, more = 0, code = "ok");
        tracing::info!(call, "what is no audit event");
    }

    #[test]
    fn events_are_lines_of_a_file_that_others_cannot_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let log = AuditLog::open(&path).unwrap();
        let subscriber = tracing_subscriber::registry().with(log.layer());
        tracing::subscriber::with_default(subscriber, || {
            told("acquire");
            // logrotate renames the file and sends a hangup; what comes then is in a new one.
            std::fs::rename(&path, dir.path().join("audit.log.1")).unwrap();
            log.orders.send(Order::Reopen).unwrap();
            told("release");
        });
        log.close();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let line = |call| serde_json::json!({"wall_ms": 7, "key": "ann", "call": call, "names": ["a/b"], "code": "ok"});
        assert_eq!(lines(&dir.path().join("audit.log.1")), [line("acquire")]);
        assert_eq!(lines(&path), [line("release")]);
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let log = AuditLog::open(&path).unwrap();
        let lost = log.lost.clone();
        std::fs::remove_dir_all(dir.path()).unwrap();
        log.orders.send(Order::Reopen).unwrap();
        let subscriber = tracing_subscriber::registry().with(log.layer());
        tracing::subscriber::with_default(subscriber, || told("acquire"));
        log.close();
        assert_eq!(lost.load(Ordering::Relaxed), 1);
    }
}

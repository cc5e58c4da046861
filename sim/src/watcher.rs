//! Watchers: clients that watch events and instances at any node, lose their connection, and resume at another node from the place
//! that they had reached. What they were sent is compared with the one history that all nodes have.

use crate::chronicle::Chronicle;
use crate::dice::Dice;
use crate::machine::Site;
use crate::net::Life;
use crate::run::Plant;
use futures::{Stream, StreamExt};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tenure::v1::{Cursor, Failure, WatchInstancesReply, WatchInstancesRequest, WatchReply, WatchRequest};
use tenure_core::{Event, Happening, Ledger, Revision};
use tenure_server::{Node, watch_events, watch_instances};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// What the watchers of events watch: everything, and what begins so.
const PREFIXES: [&str; 2] = ["", "db/"];

/// How long a watcher may take to receive all events, once everything is healed.
const CATCH_UP: Duration = Duration::from_secs(30);

/// A place in the stream of events.
pub(crate) type Place = (Revision, u32);

/// The watchers of a run.
pub(crate) struct Watchers {
    site: Site,
    tasks: Vec<JoinHandle<()>>,
    events: Vec<Arc<Mutex<EventLog>>>,
    instances: Arc<Mutex<InstanceLog>>,
}

/// What one watcher of events was sent.
#[derive(Default)]
struct EventLog {
    prefix: String,
    /// Where it began, and how far it is.
    from: Option<Place>,
    at: Place,
    events: Vec<tenure::v1::Event>,
}

/// What a watcher of instances knew whenever it was up to date.
#[derive(Default)]
struct InstanceLog {
    known: BTreeSet<String>,
    /// A snapshot that is not whole yet.
    snapshot: BTreeSet<String>,
    /// The revision of what it knows.
    at: u64,
    views: Vec<View>,
}

/// Instances that were known at a revision, read from a node that had come to another one by then.
struct View {
    revision: u64,
    read_until: u64,
    known: BTreeSet<String>,
}

/// What each watcher needs.
#[derive(Clone)]
struct Watcher {
    site: Site,
    dice: Dice,
    plant: Option<Plant>,
}

fn lock<T>(log: &Mutex<T>) -> MutexGuard<'_, T> {
    log.lock().expect("no task panics while it notes what it was sent")
}

impl Watchers {
    pub(crate) fn spawn(site: &Site, dice: &Dice, plant: Option<Plant>) -> Self {
        let watcher = || Watcher { site: site.clone(), dice: dice.fork(), plant };
        let log = |prefix: &str| Arc::new(Mutex::new(EventLog { prefix: prefix.into(), ..EventLog::default() }));
        let events: Vec<_> = PREFIXES.into_iter().map(log).collect();
        let instances = Arc::<Mutex<InstanceLog>>::default();
        let mut tasks: Vec<_> = events.iter().map(|log| tokio::spawn(watcher().watch_events(log.clone()))).collect();
        tasks.push(tokio::spawn(watcher().watch_instances(instances.clone())));
        Self { site: site.clone(), tasks, events, instances }
    }

    /// Waits until every watcher has received all events, and compares what they received with the history.
    pub(crate) async fn close(self, chronicle: &Chronicle) {
        let newest = || self.site.net.nodes().into_iter().map(|(_, node)| node.read_stale(Ledger::revision)).max();
        let is_behind = || self.events.iter().any(|log| Some(lock(log).at.0) < newest());
        let caught_up = async {
            while is_behind() {
                sleep(Duration::from_millis(50)).await;
            }
        };
        if timeout(CATCH_UP, caught_up).await.is_err() {
            self.site.broken("S13", "a watcher does not receive all events after healing");
        }
        self.tasks.iter().for_each(JoinHandle::abort);
        for log in &self.events {
            lock(log).judge(&self.site, chronicle.events());
        }
        lock(&self.instances).judge(&self.site, chronicle.events());
    }
}

impl EventLog {
    fn take(&mut self, reply: WatchReply) {
        if let Some(Cursor { revision, n }) = reply.cursor {
            self.at = (Revision(revision), n);
            self.from.get_or_insert(self.at);
        }
        self.events.extend(reply.events);
    }

    /// The watcher was sent each event after its first place once, in order.
    fn judge(&self, site: &Site, events: &[Event]) {
        let Some(from) = self.from else { return };
        let place = |event: &Event| (event.revision, event.n);
        let is_due = |event: &&Event| {
            let is_wanted = self.prefix.is_empty() || event.what.is_under(&self.prefix);
            is_wanted && place(event) > from && place(event) <= self.at
        };
        let due: Vec<_> = events.iter().filter(is_due).map(tenure_api::event).collect();
        let differs = due.iter().zip(&self.events).position(|(due, sent)| due != sent);
        let at = differs.unwrap_or(due.len().min(self.events.len()));
        if at < due.len().max(self.events.len()) {
            let (due, sent) = (due.get(at), self.events.get(at));
            site.broken("S13", &format!("a watcher of {:?} was sent {sent:?} instead of {due:?}", self.prefix));
        }
    }
}

impl InstanceLog {
    fn take(&mut self, reply: WatchInstancesReply, read_until: u64) {
        let known = if reply.snapshot { &mut self.snapshot } else { &mut self.known };
        for put in reply.put {
            known.insert(format!("{}/{}", put.service, put.id));
        }
        for removed in reply.removed {
            known.remove(&format!("{}/{}", removed.service, removed.id));
        }
        if reply.snapshot && reply.last {
            self.known = std::mem::take(&mut self.snapshot);
        }
        if reply.last {
            self.at = reply.revision;
            self.views.push(View { revision: reply.revision, read_until, known: self.known.clone() });
        }
    }

    /// Whenever the watcher was up to date, it knew each instance that was registered, unless that changed while the message was made.
    fn judge(&self, site: &Site, events: &[Event]) {
        let (mut registered, mut next) = (BTreeSet::new(), 0);
        for view in &self.views {
            while let Some(event) = events.get(next).filter(|event| event.revision.0 <= view.revision) {
                register(&mut registered, event);
                next += 1;
            }
            let later = events[next..].iter().take_while(|event| event.revision.0 <= view.read_until);
            let changing: BTreeSet<String> =
                later.filter_map(|event| Some(event.what.instance()?.to_string())).collect();
            let differs = registered.symmetric_difference(&view.known).find(|it| !changing.contains(*it));
            if let Some(instance) = differs {
                let (knows, revision) = (view.known.contains(instance), view.revision);
                site.broken(
                    "S13",
                    &format!("at revision {revision}, whether {instance} is registered: a watcher says {knows}"),
                );
                return;
            }
        }
    }
}

fn register(registered: &mut BTreeSet<String>, event: &Event) {
    match &event.what {
        Happening::Registered { instance, .. } => drop(registered.insert(instance.to_string())),
        Happening::Deregistered { instance, .. } => drop(registered.remove(&instance.to_string())),
        _ => {}
    }
}

impl Watcher {
    async fn watch_events(self, log: Arc<Mutex<EventLog>>) {
        loop {
            let (life, node) = self.connect().await;
            let request = self.events_request(&lock(&log));
            let Ok(replies) = watch_events(node, request) else { continue };
            self.receive(life, replies, |reply| lock(&log).take(reply)).await;
        }
    }

    /// A watch that resumes goes on after the last event that it was sent. One that is planted leaves out the next revision.
    fn events_request(&self, log: &EventLog) -> WatchRequest {
        let (mut revision, n) = (log.at.0.0, log.at.1);
        if self.plant == Some(Plant::SkippingWatches) {
            revision += 1;
        }
        let after = log.from.map(|_| Cursor { revision, n });
        WatchRequest { prefix: log.prefix.clone(), after, ..WatchRequest::default() }
    }

    async fn watch_instances(self, log: Arc<Mutex<InstanceLog>>) {
        loop {
            let (life, node) = self.connect().await;
            let after = lock(&log).at;
            lock(&log).snapshot.clear();
            let request =
                WatchInstancesRequest { service_prefix: "svc/".into(), all: true, after, ..Default::default() };
            let Ok(replies) = watch_instances(node.clone(), request) else { continue };
            self.receive(life, replies, |reply| lock(&log).take(reply, node.read_stale(Ledger::revision).0)).await;
        }
    }

    /// A node that is up.
    async fn connect(&self) -> (Life, Node) {
        loop {
            sleep(self.dice.ms(5, 400)).await;
            let machine = self.dice.between(0, self.site.net.machines() as u64 - 1) as usize;
            if let Some(found) = self.site.net.life(machine) {
                return found;
            }
        }
    }

    /// Receives until the connection is over: the watch ends, the process dies, or the client goes away.
    async fn receive<T>(
        &self,
        life: Life,
        mut replies: impl Stream<Item = Result<T, Failure>> + Unpin,
        mut take: impl FnMut(T),
    ) {
        let received = async {
            while let Some(Ok(reply)) = replies.next().await {
                self.site.net.reach(life.machine, self.dice.ms(0, 30)).await;
                take(reply);
            }
        };
        let is_rough = self.site.net.is_rough();
        let stays = if is_rough { self.dice.ms(100, 15_000) } else { CATCH_UP };
        tokio::select! {
            biased;
            () = self.site.net.until(|net| !net.is_alive(life)) => {}
            () = received => {}
            () = sleep(stays) => {}
        }
    }
}

//! Requests as the doors see them: how many, how they ended, how long they took. The labels are fixed words, so that no
//! client makes a series, and each has its cell from the start, so that counting looks nothing up.

use super::histogram::Histogram;
use super::{Metrics, SECONDS};
use crate::trace;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tenure_api::Code;
use tenure_api::v1::request::Body as Ask;
use tracing::{Instrument, Span};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($word:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name {
            $($word,)*
        }

        impl $name {
            const ALL: &[Self] = &[$(Self::$word,)*];

            const fn text(self) -> &'static str {
                match self { $(Self::$word => $text,)* }
            }
        }
    };
}

words! {
    /// The way by which a request came.
    Door {
        Etcd = "etcd",
        Grpc = "grpc",
        Http = "http",
        Stream = "stream",
    }
}

words! {
    /// What was asked for, whichever door it came by.
    Call {
        Acquire = "acquire",
        AddMember = "add_member",
        Backup = "backup",
        Break = "break_claims",
        Cancel = "cancel",
        DefineResource = "define_resource",
        Delete = "delete",
        Deregister = "deregister",
        Discover = "discover",
        Drain = "drain",
        GetKey = "get_key",
        Grant = "grant",
        History = "history",
        ListClasses = "list_classes",
        ListKeys = "list_keys",
        ListLeases = "list_leases",
        ListResources = "list_resources",
        ListServices = "list_services",
        Members = "members",
        Put = "put",
        Register = "register",
        Release = "release",
        ReleaseLease = "release_lease",
        RemoveMember = "remove_member",
        Renew = "renew",
        RenewHandle = "renew_handle",
        Revoke = "revoke",
        SetClass = "set_class",
        SetHealth = "set_health",
        Show = "show",
        ShowInstance = "show_instance",
        ShowLease = "show_lease",
        Status = "status",
        Transfer = "transfer",
        TransferLead = "transfer_lead",
        UpdateInstance = "update_instance",
        Verify = "verify",
        Watch = "watch",
        WatchInstances = "watch_instances",
        Other = "other",
    }
}

impl Call {
    /// What a request of the multiplexed stream asks for.
    pub(crate) fn of(ask: Option<&Ask>) -> Self {
        match ask {
            Some(Ask::Acquire(_)) => Self::Acquire,
            Some(Ask::BreakClaims(_)) => Self::Break,
            Some(Ask::Cancel(_)) => Self::Cancel,
            Some(Ask::DefineResource(_)) => Self::DefineResource,
            Some(Ask::Delete(_)) => Self::Delete,
            Some(Ask::Deregister(_)) => Self::Deregister,
            Some(Ask::Drain(_)) => Self::Drain,
            Some(Ask::Grant(_)) => Self::Grant,
            Some(Ask::Put(_)) => Self::Put,
            Some(Ask::Register(_)) => Self::Register,
            Some(Ask::Release(_)) => Self::Release,
            Some(Ask::ReleaseLease(_)) => Self::ReleaseLease,
            Some(Ask::Renew(_)) => Self::Renew,
            Some(Ask::RenewHandle(_)) => Self::RenewHandle,
            Some(Ask::Revoke(_)) => Self::Revoke,
            Some(Ask::SetClass(_)) => Self::SetClass,
            Some(Ask::SetHealth(_)) => Self::SetHealth,
            Some(Ask::Transfer(_)) => Self::Transfer,
            Some(Ask::UpdateInstance(_)) => Self::UpdateInstance,
            None => Self::Other,
        }
    }
}

/// The code of an answer that is a yes.
pub(crate) const OK: &str = "ok";
/// How a request ended beside the codes of the treaty: well, by a code that is not in the treaty, or because whoever
/// asked had gone.
const BESIDE: [&str; 3] = [OK, "other", "gone"];
const OK_AT: usize = 0;
const OTHER_AT: usize = 1;
const GONE_AT: usize = 2;
const CODES: usize = BESIDE.len() + Code::ALL.len();

fn code_text(at: usize) -> &'static str {
    BESIDE.get(at).copied().unwrap_or_else(|| Code::ALL[at - BESIDE.len()].text())
}

/// Whether the fault was the service's, and not the request's.
fn is_fault(at: usize) -> bool {
    at.checked_sub(BESIDE.len()).is_some_and(|at| Code::ALL[at].http() >= 500)
}

fn code_at(text: &str) -> usize {
    if text == OK {
        return OK_AT;
    }
    let known = Code::ALL.iter().position(|code| code.text() == text);
    known.map_or(OTHER_AT, |at| at + BESIDE.len())
}

/// All requests of all doors. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Requests {
    /// One for each door and call, the calls of one door together.
    cells: Arc<[Cell]>,
}

#[derive(Debug)]
struct Cell {
    door: Door,
    call: Call,
    codes: [AtomicU64; CODES],
    took: Histogram,
}

impl Requests {
    pub(super) fn new() -> Self {
        let pairs = Door::ALL.iter().flat_map(|door| Call::ALL.iter().map(|call| (*door, *call)));
        let cell = |(door, call)| {
            let codes = [const { AtomicU64::new(0) }; CODES];
            Cell { door, call, codes, took: Histogram::new(SECONDS) }
        };
        Self { cells: pairs.map(cell).collect() }
    }

    fn note(&self, place: usize, code: usize, took: Duration) {
        let cell = &self.cells[place];
        cell.codes[code].fetch_add(1, Ordering::Relaxed);
        cell.took.observe_time(took);
    }
}

/// A request under way. Dropped without an answer, it counts as one whose client has gone.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    metrics: &'a Metrics,
    place: usize,
    since: Duration,
    is_answered: bool,
    span: Span,
}

impl<'a> Asked<'a> {
    pub(super) fn begin(metrics: &'a Metrics, door: Door, call: Call) -> Self {
        let place = door as usize * Call::ALL.len() + call as usize;
        let span = trace::request(door.text(), call.text());
        Self { metrics, place, since: metrics.now(), is_answered: false, span }
    }

    /// Does the work of this request, so that its spans are below the request's.
    pub(crate) async fn follow<F: Future>(&self, work: F) -> F::Output {
        work.instrument(self.span.clone()).await
    }

    /// Counts the answer by its code: `OK`, or the text of a code of the treaty.
    pub(crate) fn answered(mut self, code: &str) {
        self.is_answered = true;
        self.note(code_at(code));
    }

    fn note(&self, code: usize) {
        let took = self.metrics.now().saturating_sub(self.since);
        self.metrics.requests().note(self.place, code, took);
        self.span.record("code", code_text(code));
        if is_fault(code) {
            self.span.record("otel.status_code", "ERROR");
        }
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.note(GONE_AT);
        }
    }
}

/// How many requests were answered, by door, call and code; those that never came are not shown.
#[derive(Debug)]
pub(super) struct Counts(pub(super) Requests);

impl EncodeMetric for Counts {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for cell in self.0.cells.iter() {
            for (at, count) in cell.codes.iter().enumerate() {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    let labels = [("door", cell.door.text()), ("call", cell.call.text()), ("code", code_text(at))];
                    let none: Option<&Exemplar<NoLabelSet, f64>> = None;
                    encoder.encode_family(&labels)?.encode_counter(&count, none)?;
                }
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }
}

/// How long requests took, by door and call; those that never came are not shown.
#[derive(Debug)]
pub(super) struct Times(pub(super) Requests);

impl EncodeMetric for Times {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for cell in self.0.cells.iter().filter(|cell| !cell.took.is_empty()) {
            let labels = [("door", cell.door.text()), ("call", cell.call.text())];
            cell.took.encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    fn count(metrics: &Metrics, call: Call, code: usize) -> u64 {
        let is_it = |cell: &&Cell| (cell.door, cell.call) == (Door::Grpc, call);
        let cell = metrics.requests().cells.iter().find(is_it).unwrap();
        cell.codes[code].load(Ordering::Relaxed)
    }

    #[test]
    fn a_request_is_counted_once_whether_it_is_answered_or_dropped() {
        let metrics = Metrics::new(Arc::new(SystemClock::start()));
        metrics.asked(Door::Grpc, Call::Grant).answered(OK);
        drop(metrics.asked(Door::Grpc, Call::Put));
        let counts = |call| [OK_AT, OTHER_AT, GONE_AT].map(|code| count(&metrics, call, code));
        assert_eq!(counts(Call::Grant), [1, 0, 0]);
        assert_eq!(counts(Call::Put), [0, 0, 1]);
    }

    #[test]
    fn every_cell_is_where_its_door_and_call_say() {
        let requests = Requests::new();
        for door in Door::ALL {
            for call in Call::ALL {
                let cell = &requests.cells[*door as usize * Call::ALL.len() + *call as usize];
                assert_eq!((cell.door, cell.call), (*door, *call));
            }
        }
    }

    #[test]
    fn every_code_has_its_own_place_and_whatever_is_none_has_one_together() {
        for code in Code::ALL {
            assert_eq!(code_text(code_at(code.text())), code.text());
        }
        assert_eq!(code_text(code_at(OK)), OK);
        assert_eq!(code_text(code_at("jobs/nightly")), "other");
        assert_eq!(code_text(GONE_AT), "gone");
        let faults = [Code::NotLeader, Code::Unknown].map(|code| is_fault(code_at(code.text())));
        assert_eq!(faults, [true; 2], "the service could not");
        let answers = [code_at(Code::Taken.text()), code_at(Code::BadName.text()), OK_AT, OTHER_AT, GONE_AT];
        assert!(!answers.into_iter().any(is_fault), "the service worked, whatever the answer is");
    }
}

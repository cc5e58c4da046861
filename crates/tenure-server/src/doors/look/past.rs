//! What happened, newest first.

use super::Page;
use crate::access::Caller;
use crate::limits::HISTORY_PAGE;
use tenure_api::{BadRequest, event, read_name, v1};
use tenure_core::{Event, Ledger, Moment, Name, Revision};

/// Which events are asked for.
pub(in crate::doors) enum Wanted {
    Everything,
    /// What happened to a resource, or to the instance `SERVICE/ID`.
    Named(Name),
    Prefix(String),
}

impl Wanted {
    pub(in crate::doors) fn read(request: &v1::HistoryRequest) -> Result<Self, BadRequest> {
        match (request.resource.as_str(), request.prefix.as_str()) {
            ("", "") => Ok(Self::Everything),
            (name, "") => read_name(name).map(Self::Named),
            ("", prefix) => Ok(Self::Prefix(prefix.into())),
            _ => Err(BadRequest::Both("`resource` and `prefix`")),
        }
    }

    fn wants(&self, event: &Event) -> bool {
        match self {
            Self::Everything => true,
            Self::Named(name) => event.what.is_of(name.as_str()),
            Self::Prefix(prefix) => event.what.is_under(prefix),
        }
    }
}

pub(in crate::doors) fn history(
    ledger: &Ledger,
    request: &v1::HistoryRequest,
    wanted: &Wanted,
    caller: &Caller,
    now: Moment,
) -> v1::HistoryReply {
    let mut page = Page::of(request.limit, HISTORY_PAGE);
    let mut reply =
        v1::HistoryReply { revision: ledger.revision().0, now_ms: now.millis(), ..v1::HistoryReply::default() };
    let before = request.before.map_or((Revision(u64::MAX), u32::MAX), |at| (Revision(at.revision), at.n));
    let older = ledger.events_back().skip_while(|event| (event.revision, event.n) >= before);
    let mut last = None;
    for each in older.filter(|event| wanted.wants(event) && caller.may_see(event)) {
        let item = event(each);
        if !page.takes(&item) {
            reply.next = last;
            break;
        }
        last = Some(v1::Cursor { revision: item.revision, n: item.n });
        reply.events.push(item);
    }
    reply
}

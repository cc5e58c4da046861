//! Keys: key put|get|ls|rm|attach|detach.

use super::{Caller, lease_or_none, words};
use crate::args::{Key as Asked, Output};
use crate::failure::Failure;
use crate::page::{Cell, List, Row};
use crate::print;
use serde::Serialize;
use std::io::Read;
use std::process::ExitCode;
use tenure::v1;
use tenure::v1::delete_request::Which;

/// Characters of a value that a table shows.
const SHOWN_MAX: usize = 60;

#[derive(Serialize)]
struct Key {
    key: String,
    /// Absent if it is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<String>,
    create_revision: u64,
    mod_revision: u64,
    version: u64,
}

impl Key {
    fn new(item: v1::KeyValue) -> Self {
        let (value, value_hex) = match String::from_utf8(item.value) {
            Ok(text) => (Some(text), None),
            Err(bytes) => (None, Some(bytes.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect())),
        };
        Self {
            key: words::text(&item.key),
            value,
            value_hex,
            lease: lease_or_none(item.lease),
            create_revision: item.create_revision,
            mod_revision: item.mod_revision,
            version: item.version,
        }
    }

    fn shown(&self) -> String {
        let text = match (&self.value, &self.value_hex) {
            (Some(text), _) => words::text(text.as_bytes()),
            (None, hex) => format!("0x{}", hex.as_deref().unwrap_or_default()),
        };
        match text.char_indices().nth(SHOWN_MAX) {
            Some((at, _)) => format!("{}…", &text[..at]),
            None => text,
        }
    }
}

impl Row for Key {
    const HEADINGS: &'static [&'static str] = &["KEY", "VALUE", "LEASE", "VERSION", "REVISION"];
    const EMPTY: &'static str = "there are no keys";

    fn cells(&self) -> Vec<Cell> {
        let lease = self.lease.clone().unwrap_or_else(|| "-".into());
        let cells = [self.key.clone(), self.shown(), lease, self.version.to_string(), self.mod_revision.to_string()];
        cells.map(Cell::from).into()
    }

    fn name(&self) -> String {
        self.key.clone()
    }
}

pub(crate) async fn key(caller: &Caller, asked: Asked) -> Result<ExitCode, Failure> {
    match asked {
        Asked::Put { key, value, lease } => {
            let what = format!("cannot put {key}");
            let value = Some(read_value(value).map_err(|error| {
                Failure::before(&what, &error.to_string(), "Say the value itself: `tenure key put KEY VALUE`.")
            })?);
            let keep_lease = lease.is_none();
            let request = v1::PutRequest { key: key.into(), value, lease: lease.unwrap_or_default(), keep_lease };
            put(caller, &what, request).await
        }
        Asked::Attach { key, lease } => {
            let what = format!("cannot attach {key}");
            put(caller, &what, v1::PutRequest { key: key.into(), value: None, lease, keep_lease: false }).await
        }
        Asked::Detach { key } => {
            let what = format!("cannot detach {key}");
            put(caller, &what, v1::PutRequest { key: key.into(), ..v1::PutRequest::default() }).await
        }
        Asked::Get { key } => get(caller, key).await,
        Asked::Ls { prefix } => ls(caller, prefix.unwrap_or_default()).await,
        Asked::Rm { key, prefix } => rm(caller, key, prefix).await,
    }
}

fn read_value(value: String) -> std::io::Result<Vec<u8>> {
    if value != "-" {
        return Ok(value.into());
    }
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[derive(Serialize)]
struct Written {
    key: String,
    kv_revision: u64,
    version: u64,
}

async fn put(caller: &Caller, what: &str, request: v1::PutRequest) -> Result<ExitCode, Failure> {
    let client = caller.connect(what).await?;
    let key = words::text(&request.key);
    let reply = client.put(request).await.map_err(|error| Failure::of(what, &error))?;
    if caller.output != Output::Table {
        let written = Written { key, kv_revision: reply.kv_revision, version: reply.version };
        print::one(caller.output, &written.key, &written);
    }
    Ok(ExitCode::SUCCESS)
}

async fn get(caller: &Caller, key: String) -> Result<ExitCode, Failure> {
    let what = format!("cannot get {key}");
    let client = caller.connect(&what).await?;
    let request = v1::GetKeyRequest { key: key.into(), stale: false };
    let reply = client.get_key(request).await.map_err(|error| Failure::of(&what, &error))?;
    let Some(item) = reply.item else {
        return Err(Failure::before(&what, "there is no such key", "See the keys with `tenure key ls`."));
    };
    match caller.output {
        Output::Table => print::bytes(&item.value),
        output => {
            let key = Key::new(item);
            print::one(output, &key.key, &key);
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn ls(caller: &Caller, prefix: String) -> Result<ExitCode, Failure> {
    let what = "cannot list keys";
    let client = caller.connect(what).await?;
    let keys_only = caller.output == Output::Name;
    let mut request = v1::ListKeysRequest { prefix: prefix.into(), keys_only, ..v1::ListKeysRequest::default() };
    let mut rows = Vec::new();
    loop {
        let page = client.list_keys(request.clone()).await.map_err(|error| Failure::of(what, &error))?;
        rows.extend(page.items.into_iter().map(Key::new));
        if page.next.is_empty() {
            break;
        }
        request.from = page.next;
    }
    print::draw(caller.output, &List(rows));
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Deleted {
    count: u64,
    kv_revision: u64,
}

async fn rm(caller: &Caller, key: String, prefix: bool) -> Result<ExitCode, Failure> {
    let what = format!("cannot delete {key}");
    if prefix && key.is_empty() {
        // Everything at once is never what somebody meant whose variable is not set.
        let next = "Say how the keys start, or delete them one by one.";
        return Err(Failure::usage("cannot delete keys", "an empty prefix would delete every key", next));
    }
    let client = caller.connect(&what).await?;
    let which = if prefix { Which::Prefix(key.into()) } else { Which::Key(key.into()) };
    let request = v1::DeleteRequest { which: Some(which) };
    let reply = client.delete(request).await.map_err(|error| Failure::of(&what, &error))?;
    let deleted = Deleted { count: reply.count, kv_revision: reply.kv_revision };
    match caller.output {
        Output::Table => print::say(&format!("{} deleted", print::count(deleted.count, "key", "keys"))),
        output => print::one(output, &deleted.count.to_string(), &deleted),
    }
    Ok(ExitCode::SUCCESS)
}

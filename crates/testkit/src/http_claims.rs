//! Claims over HTTP.

use crate::http::{Line, Listens, get};
use crate::until_so;
use serde_json::{Value, json};

/// A request for a resource.
pub fn claim(resource: &str, holder: &str) -> Value {
    json!({"resource": resource, "holder": holder, "ttl_ms": 60_000})
}

/// The same, in line.
pub fn waiting(resource: &str, holder: &str) -> Value {
    json!({"resource": resource, "holder": holder, "ttl_ms": 60_000, "wait": true})
}

/// Asks to wait, and returns when the claim stands in line.
pub fn stand_in_line(server: &impl Listens, body: &Value) -> Line {
    let waiting = || show(server, body["resource"].as_str().unwrap())["waiting"].as_u64().unwrap();
    let before = waiting();
    let mut line = Line::open(server);
    line.ask("POST", "/v1/acquire", &["content-type: application/json"], body.to_string().as_bytes());
    until_so("it stands in line", || waiting() > before);
    line
}

/// A resource as it is now.
pub fn show(server: &impl Listens, resource: &str) -> Value {
    get(server, &format!("/v1/resources/{resource}")).yes()
}

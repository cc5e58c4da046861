//! Traces by OTLP, where the feature `otlp` is built in.

#[cfg(not(feature = "otlp"))]
mod none;
#[cfg(feature = "otlp")]
mod otlp;

use crate::failure::Failure;
use http::Uri;
#[cfg(not(feature = "otlp"))]
pub(crate) use none::Traces;
#[cfg(feature = "otlp")]
pub(crate) use otlp::Traces;

const NEXT: &str = "Say something like --otlp-endpoint http://127.0.0.1:4317.";

/// Refuses what cannot be the address of a collector.
pub(crate) fn check_endpoint(endpoint: &str) -> Result<(), Failure> {
    if cfg!(not(feature = "otlp")) {
        let next = "Build tenure with --features otlp, or leave --otlp-endpoint out.";
        return Err(Failure::usage("cannot serve", "this build of tenure cannot send traces", next));
    }
    let refuse = |why: &str| Err(Failure::usage("cannot serve", &format!("{endpoint:?} {why}"), NEXT));
    let Ok(uri) = endpoint.parse::<Uri>() else { return refuse("is no address of an OTLP collector") };
    match (uri.scheme_str(), uri.authority()) {
        (Some("https"), _) => refuse("asks for TLS, which is not there: use a collector on a trusted network"),
        (Some("http"), Some(authority)) if authority.as_str().contains('@') => {
            refuse("has a name or password in it, which would be logged: say it in OTEL_EXPORTER_OTLP_HEADERS")
        }
        (Some("http"), Some(_)) => Ok(()),
        _ => refuse("is no address of an OTLP collector"),
    }
}

/// Refuses what is no share of the requests.
pub(crate) fn check_ratio(ratio: f64) -> Result<(), Failure> {
    if (0.0..=1.0).contains(&ratio) {
        return Ok(());
    }
    let why = format!("{ratio} is no share of the requests to trace");
    Err(Failure::usage("cannot serve", &why, "Say a number from 0 to 1, such as --otlp-ratio 0.01."))
}

//! Prometheus' HTTP service discovery: the instances that are there, as targets to scrape.

use super::HttpDoor;
use super::discover::WhichInstances;
use super::problem::{NotRead, Problem};
use crate::limits::{PAGE_MAX, TARGETS_BYTES_MAX, TARGETS_MAX};
use axum::Json;
use axum::extract::RawQuery;
use serde::Serialize;
use std::collections::BTreeMap;
use tenure_api::{Code, v1};
use tenure_core::Endpoint;
use utoipa::{IntoParams, ToSchema};

/// Which endpoints.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes what is read by hand")]
pub(super) struct Scheme {
    /// Only endpoints with this scheme; `http` and `https` unless said.
    #[param(required = false)]
    scheme: String,
}

/// One endpoint of one instance.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct Target {
    /// `HOST:PORT`
    targets: [String; 1],
    /// What relabelling can look at: `__meta_tenure_…`.
    labels: BTreeMap<String, String>,
}

impl Target {
    fn bytes(&self) -> usize {
        self.targets[0].len() + self.labels.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
    }
}

/// Lists targets for Prometheus' `http_sd_configs`. There is one group for each endpoint of each instance that new work can
/// go to; with `all` also of the others.
#[utoipa::path(get, path = "/v1/prometheus/targets", tag = "registry", params(WhichInstances, Scheme), responses(
    (status = 200, description = "All targets.", body = Vec<Target>),
    NotRead,
))]
pub(super) async fn targets(door: HttpDoor, RawQuery(query): RawQuery) -> Result<Json<Vec<Target>>, Problem> {
    let (which, rest) = WhichInstances::read(query.as_deref().unwrap_or_default(), &["scheme"])?;
    let mut request = which.message(&rest)?;
    request.limit = u32::try_from(PAGE_MAX).unwrap_or(u32::MAX);
    let (mut targets, mut bytes) = (Vec::new(), 0);
    loop {
        let page = door.desk.discover(&request).await?;
        for target in page.items.iter().flat_map(|instance| targets_of(instance, &rest.scheme)) {
            bytes += target.bytes();
            targets.push(target);
            if targets.len() > TARGETS_MAX || bytes > TARGETS_BYTES_MAX {
                let (most, mib) = (TARGETS_MAX, TARGETS_BYTES_MAX >> 20);
                let detail =
                    format!("there are more than {most} targets or {mib} MiB; ask for less, such as by `service`");
                return Err(Problem::new(Code::TooMany, detail));
            }
        }
        if page.next.is_empty() {
            return Ok(Json(targets));
        }
        request.from = page.next;
    }
}

fn targets_of(instance: &v1::Instance, scheme: &str) -> Vec<Target> {
    let Some(details) = &instance.details else { return Vec::new() };
    let endpoints = details.endpoints.iter().filter_map(|text| Endpoint::parse(text).ok());
    let is_wanted = |endpoint: &Endpoint| match scheme {
        "" => is_http(endpoint),
        scheme => endpoint.scheme() == scheme,
    };
    endpoints.filter(is_wanted).map(|endpoint| target(instance, details, &endpoint)).collect()
}

fn is_http(endpoint: &Endpoint) -> bool {
    ["http", "https"].contains(&endpoint.scheme())
}

fn target(instance: &v1::Instance, details: &v1::Details, endpoint: &Endpoint) -> Target {
    let capabilities = details.capabilities.iter().fold(String::from(","), |list, word| list + word + ",");
    let facts = [
        ("service", instance.service.clone()),
        ("id", instance.id.clone()),
        ("zone", details.zone.clone()),
        ("version", details.version.clone()),
        ("scheme", endpoint.scheme().into()),
        ("health", instance.health().as_str_name().trim_start_matches("HEALTH_").to_lowercase()),
        ("draining", instance.draining.is_some().to_string()),
        ("weight", details.weight.unwrap_or(1).to_string()),
        ("capabilities", if details.capabilities.is_empty() { String::new() } else { capabilities }),
    ];
    let facts = facts.into_iter().filter(|(_, value)| !value.is_empty());
    let mut labels: BTreeMap<String, String> =
        facts.map(|(name, value)| (format!("__meta_tenure_{name}"), value)).collect();
    for (key, value) in &details.labels {
        labels.insert(format!("__meta_tenure_label_{}", label_name(key)), value.clone());
    }
    if is_http(endpoint) {
        labels.insert("__scheme__".into(), endpoint.scheme().into());
    }
    let text = endpoint.to_string();
    let address = text.split_once("://").map_or(text.as_str(), |(_, address)| address);
    Target { targets: [address.into()], labels }
}

/// A key as the name of one of Prometheus' labels may be.
fn label_name(key: &str) -> String {
    key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance() -> v1::Instance {
        let text = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
        v1::Instance {
            service: "agents/planner".into(),
            id: "a7".into(),
            health: v1::Health::Passing.into(),
            details: Some(v1::Details {
                endpoints: text(&["http://10.0.0.7:8080", "grpc://10.0.0.7:9000", "https://[::1]:8443"]),
                capabilities: text(&["cuda12", "gpu"]),
                labels: [("app.kubernetes.io/name".into(), "x".into())].into(),
                zone: "eu".into(),
                weight: Some(3),
                ..v1::Details::default()
            }),
            ..v1::Instance::default()
        }
    }

    fn addresses(targets: &[Target]) -> Vec<&str> {
        targets.iter().map(|target| target.targets[0].as_str()).collect()
    }

    #[test]
    fn each_endpoint_that_can_be_scraped_is_a_target() {
        assert_eq!(addresses(&targets_of(&instance(), "")), ["10.0.0.7:8080", "[::1]:8443"]);
        assert_eq!(addresses(&targets_of(&instance(), "https")), ["[::1]:8443"]);
        assert_eq!(addresses(&targets_of(&instance(), "grpc")), ["10.0.0.7:9000"]);
        assert_eq!(addresses(&targets_of(&instance(), "HTTP")), <[&str; 0]>::default());
    }

    #[test]
    fn its_labels_say_what_is_known_of_it() {
        let told = serde_json::to_value(&targets_of(&instance(), "http")[0]).unwrap();
        let expected = serde_json::json!({
            "targets": ["10.0.0.7:8080"],
            "labels": {
                "__meta_tenure_service": "agents/planner",
                "__meta_tenure_id": "a7",
                "__meta_tenure_zone": "eu",
                "__meta_tenure_scheme": "http",
                "__meta_tenure_health": "passing",
                "__meta_tenure_draining": "false",
                "__meta_tenure_weight": "3",
                "__meta_tenure_capabilities": ",cuda12,gpu,",
                "__meta_tenure_label_app_kubernetes_io_name": "x",
                "__scheme__": "http",
            },
        });
        assert_eq!(told, expected);
        let other = &targets_of(&instance(), "grpc")[0];
        assert!(!other.labels.contains_key("__scheme__"), "Prometheus knows only two schemes");
    }
}

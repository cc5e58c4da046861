//! Agents that come and go, and who looks for them.

mod registry;
mod registry_calm;
mod registry_client;
mod registry_cluster;
mod registry_envoy;
mod registry_feeds;
mod registry_http;
mod support;

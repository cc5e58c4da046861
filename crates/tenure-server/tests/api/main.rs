//! The protocols as clients meet them, against a whole server in this process on a disk in memory.

mod access;
mod bad_input;
mod bounds;
mod client;
mod etcd_refused;
mod etcd_transactions;
mod http;
mod http_bad_input;
mod keys;
mod late_requests;
mod registry_client;
mod registry_http;
mod wire;

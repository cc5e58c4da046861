//! Several servers that are one: leaders that come and go, faults, members.

mod cluster;
mod cluster_faults;
mod members;
mod members_at_once;
mod secure_peers;
mod support;

//! The dialect of etcd: its clients, and a real etcd beside it.

mod differential;
mod etcd_bad_input;
mod etcd_clients;
mod etcd_cluster;
mod etcd_differential;
mod etcd_gateway;
mod etcd_keys;
mod etcd_past;
mod etcd_refusals;
mod support;

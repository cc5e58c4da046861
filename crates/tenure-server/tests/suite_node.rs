//! A node as its operator meets it: damaged data, metrics.

mod bounded_work;
mod damaged_node;
mod metrics;
mod openmetrics;
mod poisoned_node;

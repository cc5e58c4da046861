//! The log on disk: its rules, damage, and faults of the disk below it.

mod disk_model;
mod log_damage;
mod log_faults;
mod log_rules;
mod log_support;

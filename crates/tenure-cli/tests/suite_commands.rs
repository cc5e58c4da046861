//! The commands, typed as people type them, and what they wrap.

mod command_line;
mod config;
mod doctor;
mod examples;
mod handover;
mod log_lines;
mod looking;
mod manual;
mod once;
mod readme;
mod rules_by_hand;
mod supervised;
mod support;
mod traces;
mod wrap;
mod wrap_limits;

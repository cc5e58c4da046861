//! What simulations and tests change in a node, and no flag does.

use crate::limits::{AUDIT_INTERVAL, SNAPSHOT_LOG_BYTES, STEP_MAX};
use std::time::Duration;
use tenure_core::limits::RULES_MAX;

/// What a node may be tuned by in a simulation or a test, never by a flag: with other steps or with leader restore the
/// promises do not hold.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// How far one stamp may go beyond what was last seen applied.
    pub step_max: Duration,
    /// Whether a restarted leader may go on in its old term.
    pub leader_restore: bool,
    /// Whether a leader takes openraft's record of acknowledgements as proof that it leads (decision 0014).
    pub reads_by_acknowledgement: bool,
    /// Log bytes after which a snapshot is taken and the log before it is dropped.
    pub snapshot_log_bytes: u64,
    /// How often replicas compare what they hold.
    pub audit_interval: Duration,
    /// The newest rules that this node says it knows, as an older build would.
    pub rules_max: u32,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            step_max: STEP_MAX,
            leader_restore: false,
            reads_by_acknowledgement: false,
            snapshot_log_bytes: SNAPSHOT_LOG_BYTES,
            audit_interval: AUDIT_INTERVAL,
            rules_max: RULES_MAX,
        }
    }
}

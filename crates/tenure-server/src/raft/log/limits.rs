//! Owns the bounds of the log on disk. Never a default that an operator would want to change: those are in `LogOptions`.

/// The longest payload of one batch. A length beyond it in a frame header is damage, so recovery never trusts a wild length,
/// and the memory that a batch takes while it is written is bounded.
pub const BATCH_BYTES_MAX: usize = 64 << 20;

/// The write buffer shrinks to this after a larger batch, so that one large batch does not hold its memory for ever.
pub(super) const BUFFER_BYTES_KEPT_MAX: usize = 1 << 20;

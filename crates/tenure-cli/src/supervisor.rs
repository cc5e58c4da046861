//! Tells systemd, if it started this process and asked to be told, how the server is. Without systemd it does nothing.

use sd_notify::NotifyState;
use std::time::Duration;
use tenure_server::Node;

/// The server can be used.
pub(crate) fn ready() {
    tell(NotifyState::Ready);
}

/// The server was asked to stop.
pub(crate) fn stopping() {
    tell(NotifyState::Stopping);
}

/// Tells the watchdog that the node answers, twice as often as it asks for. A node that does not answer in that time says
/// nothing, so that it is started anew. That it does not lead is an answer.
pub(crate) async fn feed_watchdog(node: Node) {
    let Some(patience) = sd_notify::watchdog_enabled() else { return };
    let pause = (patience / 2).max(Duration::from_millis(1));
    loop {
        if tokio::time::timeout(pause, node.is_alive()).await == Ok(true) {
            tell(NotifyState::Watchdog);
        }
        tokio::time::sleep(pause).await;
    }
}

fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "systemd could not be told how the server is");
    }
}

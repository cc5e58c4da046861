//! The certificates of a running server: read again at SIGHUP and when their files change, and announced in the log and the
//! metrics before they end.

use crate::clock;
use crate::config::Settings;
use crate::failure::Failure;
use crate::secure::{self, Files, Pem};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tenure_server::{BadPem, Node, PeerTls, Tls};
use tokio::signal::unix::Signal;

/// How often the files are looked at. A change is used at the second look that finds it, because a certificate and its key are
/// two files, which are written one after the other.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Certificates that end sooner are announced, each day.
const WARN_DAYS: u64 = 30;

const DAY_S: u64 = 24 * 60 * 60;

/// All certificates of a server.
pub(crate) struct Certificates {
    sides: Vec<Side>,
}

/// The certificate that is shown to clients, or the one that is shown to peers.
struct Side {
    end: End,
    files: Files,
    in_use: Pem,
    /// What the last look found.
    found: Option<Pem>,
    /// The failure that was logged last, so that it is logged once.
    told: String,
}

enum End {
    Clients(Tls),
    Peers(PeerTls),
}

impl End {
    /// What a failure leaves as it was.
    fn unchanged(&self) -> &'static str {
        match self {
            Self::Clients(_) => "the certificate for clients is as it was",
            Self::Peers(_) => "the certificate for peers is as it was",
        }
    }

    fn replace(&self, pem: &Pem) -> Result<(), BadPem> {
        match self {
            Self::Clients(tls) => tls.replace(&pem.certificate, &pem.key),
            Self::Peers(tls) => tls.replace(pem.for_peers()),
        }
    }
}

/// Until when a certificate is valid.
pub(crate) struct Ending {
    /// As the metric calls it.
    pub(crate) which: &'static str,
    pub(crate) path: PathBuf,
    /// In seconds since 1970.
    pub(crate) at: u64,
}

impl Certificates {
    /// Reads what the settings name.
    pub(crate) fn open(settings: &Settings, what: &str) -> Result<Self, Failure> {
        let mut sides = Vec::new();
        if let Some(files) = Files::for_clients(settings) {
            sides.push(Side::open(files, what, |pem| Ok(End::Clients(Tls::new(&pem.certificate, &pem.key)?)))?);
        }
        if let Some(files) = Files::for_peers(settings) {
            let choice = secure::peer_identity(settings);
            sides.push(Side::open(files, what, |pem| Ok(End::Peers(PeerTls::new(pem.for_peers(), choice)?)))?);
        }
        Ok(Self { sides })
    }

    /// How clients are spoken with; none in the clear.
    pub(crate) fn tls(&self) -> Option<Tls> {
        self.sides.iter().find_map(|side| match &side.end {
            End::Clients(tls) => Some(tls.clone()),
            End::Peers(_) => None,
        })
    }

    /// How peers are spoken with; none in the clear.
    pub(crate) fn peer_tls(&self) -> Option<PeerTls> {
        self.sides.iter().find_map(|side| match &side.end {
            End::Clients(_) => None,
            End::Peers(tls) => Some(tls.clone()),
        })
    }

    pub(crate) fn are_none(&self) -> bool {
        self.sides.is_empty()
    }

    pub(crate) fn endings(&self) -> Vec<Ending> {
        self.sides.iter().flat_map(Side::endings).collect()
    }

    /// Announces them at once, and then keeps them as the files are for as long as the future is polled.
    pub(crate) fn keep(self, node: Node, hangups: Signal) -> impl Future<Output = ()> + Send {
        let warned_at = self.announce(&node);
        self.keep_on(node, hangups, warned_at)
    }

    async fn keep_on(mut self, node: Node, mut hangups: Signal, mut warned_at: u64) {
        loop {
            let is_asked = tokio::select! {
                Some(()) = hangups.recv() => true,
                () = tokio::time::sleep(LOOK_INTERVAL) => false,
            };
            let mut is_new = false;
            for side in &mut self.sides {
                is_new |= side.look(is_asked).await;
            }
            if is_new || clock::wall_s().abs_diff(warned_at) >= DAY_S {
                warned_at = self.announce(&node);
            }
        }
    }

    /// Says which certificates end soon, and tells the metrics when each of them does. Returns the time.
    fn announce(&self, node: &Node) -> u64 {
        let now = clock::wall_s();
        for ending in self.endings() {
            node.certificate_expires(ending.which, ending.at);
            let certificate = ending.path.display();
            match judge(ending.at, now) {
                Validity::Good(_) => {}
                Validity::EndsSoon(text) => tracing::warn!(%certificate, "{text}"),
                Validity::Ended(text) => tracing::error!(%certificate, "{text}"),
            }
        }
        now
    }
}

impl Side {
    fn open(files: Files, what: &str, end: impl FnOnce(&Pem) -> Result<End, BadPem>) -> Result<Self, Failure> {
        let in_use = files.read(what)?;
        let end = end(&in_use).map_err(|bad| files.wrong(&bad, what))?;
        Ok(Self { end, files, in_use, found: None, told: String::new() })
    }

    fn endings(&self) -> Vec<Ending> {
        let ending = |which, path: &Path, at| Ending { which, path: path.to_owned(), at };
        let own = &self.files.certificate;
        match &self.end {
            End::Clients(tls) => tls.expires().map(|at| ending("clients", own, at)).into_iter().collect(),
            End::Peers(tls) => {
                let authority = self.files.authority.as_deref().zip(tls.authority_expires());
                let authority = authority.map(|(path, at)| ending("authority", path, at));
                [Some(ending("peers", own, tls.expires())), authority].into_iter().flatten().collect()
            }
        }
    }

    /// Uses what is in the files now, if it is something else. True if it was. A look that was asked for is logged in any case.
    async fn look(&mut self, is_asked: bool) -> bool {
        let (files, unchanged) = (self.files.clone(), self.end.unchanged());
        // On a thread of its own, because a file system can hang.
        let Ok(read) = tokio::task::spawn_blocking(move || files.read(unchanged)).await else { return false };
        let replaced = read.and_then(|pem| self.consider(pem, is_asked));
        match replaced {
            Ok(is_new) => {
                self.told.clear();
                is_new
            }
            Err(failure) => {
                let text = failure.text().to_owned();
                if is_asked || self.told != text {
                    failure.log();
                    self.told = text;
                }
                false
            }
        }
    }

    fn consider(&mut self, pem: Pem, is_asked: bool) -> Result<bool, Failure> {
        let (certificate, is_same) = (self.files.certificate.display(), pem == self.in_use);
        let is_steady = self.found.replace(pem.clone()).is_some_and(|before| before == pem);
        if is_same {
            if is_asked {
                tracing::info!(%certificate, "the certificate was read again, and is the same");
            }
            return Ok(false);
        }
        if !is_asked && !is_steady {
            return Ok(false);
        }
        self.end.replace(&pem).map_err(|bad| self.files.wrong(&bad, self.end.unchanged()))?;
        tracing::info!(%certificate, "the certificate was read again; new connections use it");
        self.in_use = pem;
        Ok(true)
    }
}

/// How much longer a certificate is valid.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Validity {
    Good(String),
    EndsSoon(String),
    Ended(String),
}

/// Of one that ends then.
pub(crate) fn judge(at: u64, now: u64) -> Validity {
    let on = clock::local(at.saturating_mul(1000));
    let days = |seconds: u64| match seconds / DAY_S {
        0 => "less than a day".to_owned(),
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    };
    match at.checked_sub(now) {
        None | Some(0) => Validity::Ended(format!("the certificate has expired, on {on}: others refuse it")),
        Some(left) if left < WARN_DAYS * DAY_S => {
            Validity::EndsSoon(format!("the certificate expires in {}, on {on}", days(left)))
        }
        Some(left) => Validity::Good(format!("valid for {}, until {on}", days(left))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_within_thirty_days_is_announced() {
        let now = 1_800_000_000;
        assert!(matches!(judge(now + 30 * DAY_S, now), Validity::Good(text) if text.starts_with("valid for 30 days")));
        let soon = |left| match judge(now + left, now) {
            Validity::EndsSoon(text) => text,
            other => panic!("{other:?}"),
        };
        assert!(soon(30 * DAY_S - 1).starts_with("the certificate expires in 29 days, on "));
        assert!(soon(DAY_S).starts_with("the certificate expires in 1 day, on "));
        assert!(soon(1).starts_with("the certificate expires in less than a day, on "));
        for at in [now, now - 1, 0] {
            assert!(matches!(judge(at, now), Validity::Ended(text) if text.contains("has expired, on ")), "{at}");
        }
        assert!(matches!(judge(u64::MAX, now), Validity::Good(_)), "no clock shows that");
    }
}

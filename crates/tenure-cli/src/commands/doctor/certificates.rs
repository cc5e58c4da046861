//! What the doctor finds of the certificates that the settings name: whether they can be read, and until when they are valid.

use super::Finding;
use crate::certificates::{Validity, judge};
use crate::clock;
use std::path::PathBuf;
use tenure_server::Certificate;

const UNREADABLE: &str = "A server does not start with it: name a PEM file that this user may read.";
const RENEW: &str =
    "Make another with `tenure cluster pki add`, and put it in its place; the server reads it again by itself.";

/// The files by what they are for.
pub(super) fn look(files: &[(&'static str, PathBuf)]) -> Vec<Finding> {
    files.iter().map(|(check, path)| one(check, path, clock::wall_s())).collect()
}

fn one(check: &'static str, path: &PathBuf, now: u64) -> Finding {
    let found = |text: &str| format!("{}: {text}", path.display());
    let first = std::fs::read(path).map_err(|error| error.to_string());
    match first.and_then(|pem| Certificate::read_pem(&pem).map_err(|bad| bad.to_string())) {
        Err(why) => Finding::bad(check, found(&why), UNREADABLE),
        Ok(certificate) => match judge(certificate.not_after, now) {
            Validity::Good(text) => Finding::ok(check, found(&text)),
            Validity::EndsSoon(text) => Finding::warn(check, found(&text), RENEW),
            Validity::Ended(text) => Finding::bad(check, found(&text), RENEW),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    #[test]
    fn certificates_that_end_soon_are_warned_of_and_ended_ones_are_bad() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.crt");
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        params.not_after = date_time_ymd(2026, 1, 1);
        std::fs::write(&path, params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()).unwrap();
        let (ends, day) = (1_767_225_600, 24 * 60 * 60);
        let verdict = |now| one("a", &path, now).verdict;
        assert_eq!(verdict(ends - 31 * day), Verdict::Ok);
        assert_eq!(verdict(ends - 29 * day), Verdict::Warn);
        assert_eq!(verdict(ends), Verdict::Bad);
        std::fs::write(&path, "nothing").unwrap();
        assert_eq!(verdict(0), Verdict::Bad);
        assert_eq!(one("a", &directory.path().join("b.crt"), 0).verdict, Verdict::Bad);
    }
}

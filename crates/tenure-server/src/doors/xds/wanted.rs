//! Which services a stream wants to know of, and what of it has to be told. It is told the time, and looks at nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tenure_core::Revision;

/// The names of a stream.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    names: BTreeMap<String, Known>,
    /// How many bytes the names have.
    bytes: usize,
    /// What has to be told.
    unsaid: BTreeSet<String>,
    /// When what was told has to be told anew.
    dues: BTreeSet<(Duration, String)>,
}

/// What was told last of a name.
#[derive(Debug, Default)]
struct Known {
    revision: Option<Revision>,
    due: Option<Duration>,
}

impl Wanted {
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.names.keys()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// Whether there is anything to tell.
    pub(super) fn has_news(&self) -> bool {
        !self.unsaid.is_empty()
    }

    /// Wants a name, which is told in any case.
    pub(super) fn add(&mut self, name: String) {
        if !self.has(&name) {
            self.bytes += name.len();
        }
        self.names.entry(name.clone()).or_default().revision = None;
        self.unsaid.insert(name);
    }

    /// Wants these names and no others. Those that are known already are not told again for it.
    pub(super) fn replace(&mut self, names: BTreeSet<String>) {
        let gone: Vec<String> = self.names.keys().filter(|name| !names.contains(*name)).cloned().collect();
        gone.iter().for_each(|name| self.remove(name));
        for name in names {
            if !self.names.contains_key(&name) {
                self.add(name);
            }
        }
    }

    pub(super) fn remove(&mut self, name: &str) {
        let Some(known) = self.names.remove(name) else { return };
        self.bytes -= name.len();
        if let Some(due) = known.due {
            self.dues.remove(&(due, name.to_owned()));
        }
        self.unsaid.remove(name);
    }

    /// Something has happened to a service. What was told after it is not told again.
    pub(super) fn changed(&mut self, service: &str, revision: Revision) {
        if self.names.get(service).is_some_and(|known| known.revision.is_none_or(|told| told < revision)) {
            self.unsaid.insert(service.to_owned());
        }
    }

    /// Nobody knows what has happened.
    pub(super) fn all_changed(&mut self) {
        self.unsaid.extend(self.names.keys().cloned());
    }

    /// When something has to be told anew.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.dues.first().map(|(due, _)| *due)
    }

    /// What is due by now has to be told.
    pub(super) fn fall_due(&mut self, now: Duration) {
        while self.next_due().is_some_and(|due| due <= now) {
            let (_, name) = self.dues.pop_first().expect("there is a next one");
            self.names.get_mut(&name).expect("what is due is wanted").due = None;
            self.unsaid.insert(name);
        }
    }

    /// Some of what has to be told.
    pub(super) fn next(&self, count: usize) -> Vec<String> {
        self.unsaid.iter().take(count).cloned().collect()
    }

    /// A name was told as it is at a revision, and has to be told anew by then.
    pub(super) fn told(&mut self, name: &str, revision: Revision, due: Option<Duration>) {
        self.unsaid.remove(name);
        let Some(known) = self.names.get_mut(name) else { return };
        known.revision = Some(revision);
        if let Some(before) = std::mem::replace(&mut known.due, due) {
            self.dues.remove(&(before, name.to_owned()));
        }
        self.dues.extend(due.map(|due| (due, name.to_owned())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn wanted(names: &[&str]) -> Wanted {
        let mut wanted = Wanted::default();
        wanted.replace(names.iter().map(ToString::to_string).collect());
        wanted
    }

    #[test]
    fn what_is_wanted_is_told_once_and_when_it_changes() {
        let mut wanted = wanted(&["a", "b"]);
        assert_eq!(wanted.next(10), ["a", "b"]);
        wanted.told("a", Revision(5), None);
        wanted.told("b", Revision(5), None);
        assert!(!wanted.has_news());
        wanted.changed("c", Revision(6));
        wanted.changed("a", Revision(5));
        assert!(!wanted.has_news(), "it is not wanted, or was told");
        wanted.changed("a", Revision(6));
        wanted.changed("a", Revision(7));
        assert_eq!(wanted.next(10), ["a"], "two changes are told at once");
    }

    #[test]
    fn what_may_not_be_relied_on_any_longer_is_told_anew() {
        let mut wanted = wanted(&["a", "b"]);
        wanted.told("a", Revision(5), Some(at(100)));
        wanted.told("b", Revision(5), Some(at(200)));
        wanted.told("a", Revision(6), Some(at(300)));
        assert_eq!(wanted.next_due(), Some(at(200)), "the newest counts");
        wanted.fall_due(at(199));
        assert!(!wanted.has_news());
        wanted.fall_due(at(300));
        assert_eq!(wanted.next(10), ["a", "b"]);
        assert_eq!(wanted.next_due(), None);
    }

    #[test]
    fn what_is_not_wanted_any_longer_is_forgotten() {
        let mut wanted = wanted(&["a", "b"]);
        wanted.told("a", Revision(5), Some(at(100)));
        wanted.replace(BTreeSet::from(["b".to_owned(), "c".to_owned()]));
        assert_eq!((wanted.next(10), wanted.next_due()), (vec!["b".into(), "c".into()], None));
        wanted.told("a", Revision(6), Some(at(1)));
        assert_eq!(wanted.next_due(), None);
        wanted.remove("b");
        wanted.remove("c");
        assert_eq!((wanted.len(), wanted.has_news()), (0, false));
    }

    #[test]
    fn whoever_asks_again_is_told_again() {
        let mut wanted = wanted(&["a"]);
        wanted.told("a", Revision(5), Some(at(100)));
        wanted.replace(BTreeSet::from(["a".to_owned()]));
        assert!(!wanted.has_news(), "an acknowledgement names what it wants, and knows it");
        wanted.add("a".into());
        assert!(wanted.has_news());
        assert_eq!(wanted.next_due(), Some(at(100)));
    }
}

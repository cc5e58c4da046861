//! What capabilities are wanted: `gpu & (cuda12 | rocm) & !preview`. Read once, then held against many instances.

use super::Word;
use crate::limits::{WANTED_BYTES_MAX, WANTED_DEPTH_MAX};
use crate::names::BadText;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::fmt;

/// An expression over capabilities: words with `!`, `&`, `|` and parentheses, of which `!` binds most and `|` least. A
/// comma is an `&`, so that a plain list wants them all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted(Term);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    Has(Word),
    Not(Box<Self>),
    All(Vec<Self>),
    Any(Vec<Self>),
}

impl Wanted {
    /// Reads an expression, or says where it is none.
    pub fn parse(text: &str) -> Result<Self, BadWanted> {
        if text.len() > WANTED_BYTES_MAX {
            return Err(BadWanted::TooLong { bytes: text.len() });
        }
        let mut reader = Reader { text, at: 0, depth: 0 };
        let term = reader.any()?;
        match reader.next() {
            Some(_) => Err(BadWanted::Joint { at: reader.at }),
            None => Ok(Self(term)),
        }
    }

    /// Whether an instance with these capabilities is wanted.
    pub fn is_met_by(&self, capabilities: &BTreeSet<Word>) -> bool {
        self.0.is_met_by(capabilities)
    }
}

impl Term {
    fn is_met_by(&self, capabilities: &BTreeSet<Word>) -> bool {
        match self {
            Self::Has(word) => capabilities.contains(word),
            Self::Not(term) => !term.is_met_by(capabilities),
            Self::All(terms) => terms.iter().all(|term| term.is_met_by(capabilities)),
            Self::Any(terms) => terms.iter().any(|term| term.is_met_by(capabilities)),
        }
    }
}

/// Reads from left to right and never goes back. The depth bounds how far it calls itself.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Reader<'_> {
    /// The next letter that is no space; `at` is where it stands.
    fn next(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.text[self.at..].chars().next()
    }

    /// Goes past a joint, if that is what comes next.
    fn passes(&mut self, joint: char) -> bool {
        let passes = self.next() == Some(joint);
        self.at += if passes { joint.len_utf8() } else { 0 };
        passes
    }

    fn any(&mut self) -> Result<Term, BadWanted> {
        let (first, mut comma) = self.all()?;
        let mut terms = Vec::from([first]);
        while self.passes('|') {
            let (term, another) = self.all()?;
            terms.push(term);
            comma = comma.or(another);
        }
        match comma.filter(|_| terms.len() > 1) {
            // Some would read `a, b | c` in one way and some in the other.
            Some(at) => Err(BadWanted::Mixed { at }),
            None => Ok(single(terms, Term::Any)),
        }
    }

    /// Everything that is joined by `&` or commas, and where the first comma stands.
    fn all(&mut self) -> Result<(Term, Option<usize>), BadWanted> {
        let mut terms = Vec::from([self.one()?]);
        let mut comma = None;
        loop {
            if self.passes(',') {
                comma = comma.or(Some(self.at - 1));
            } else if !self.passes('&') {
                return Ok((single(terms, Term::All), comma));
            }
            terms.push(self.one()?);
        }
    }

    fn one(&mut self) -> Result<Term, BadWanted> {
        if self.depth == WANTED_DEPTH_MAX {
            return Err(BadWanted::TooDeep { at: self.at });
        }
        self.depth += 1;
        let term = match self.next() {
            Some('!') => {
                self.at += 1;
                self.one().map(|term| Term::Not(Box::new(term)))
            }
            Some('(') => {
                let opened = self.at;
                self.at += 1;
                let inner = self.any()?;
                if self.passes(')') { Ok(inner) } else { Err(self.unclosed(opened)) }
            }
            _ => self.word(),
        };
        self.depth -= 1;
        term
    }

    fn unclosed(&mut self, opened: usize) -> BadWanted {
        if self.next().is_none() { BadWanted::Unclosed { at: opened } } else { BadWanted::Joint { at: self.at } }
    }

    fn word(&mut self) -> Result<Term, BadWanted> {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| c.is_whitespace() || "&|!(),".contains(c)).unwrap_or(rest.len());
        if end == 0 {
            return Err(BadWanted::NoWord { at: self.at });
        }
        let word = Word::parse(&rest[..end]).map_err(|bad| BadWanted::Word { at: self.at, bad })?;
        self.at += end;
        Ok(Term::Has(word))
    }
}

fn single(mut terms: Vec<Term>, several: impl FnOnce(Vec<Term>) -> Term) -> Term {
    match terms.pop() {
        Some(only) if terms.is_empty() => only,
        last => {
            terms.extend(last);
            several(terms)
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (terms, joint) = match self {
            Self::Has(word) => return write!(f, "{word}"),
            Self::Not(term) if matches!(**term, Self::All(_) | Self::Any(_)) => return write!(f, "!({term})"),
            Self::Not(term) => return write!(f, "!{term}"),
            Self::All(terms) => (terms, " & "),
            Self::Any(terms) => (terms, " | "),
        };
        for (n, term) in terms.iter().enumerate() {
            f.write_str(if n == 0 { "" } else { joint })?;
            match term {
                Self::All(_) | Self::Any(_) => write!(f, "({term})")?,
                Self::Has(_) | Self::Not(_) => write!(f, "{term}")?,
            }
        }
        Ok(())
    }
}

/// Why a text is no expression over capabilities, and at which byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadWanted {
    /// It is too long.
    #[error("it has {bytes} bytes, more than {WANTED_BYTES_MAX}")]
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// It calls itself too deeply.
    #[error("from byte {at} on it is deeper than {WANTED_DEPTH_MAX} `!` and parentheses")]
    TooDeep {
        /// Where.
        at: usize,
    },
    /// There is no word where one has to be.
    #[error("at byte {at} a capability is expected, such as `gpu` or `!preview` or `(cuda12 | rocm)`")]
    NoWord {
        /// Where.
        at: usize,
    },
    /// What should be a word is none.
    #[error("what stands at byte {at} is no capability: {bad}")]
    Word {
        /// Where.
        at: usize,
        /// Why.
        bad: BadText,
    },
    /// Something else than `&`, `|` or a comma comes after a word.
    #[error("at byte {at} an `&`, a `|` or the end is expected")]
    Joint {
        /// Where.
        at: usize,
    },
    /// A parenthesis is not closed.
    #[error("the parenthesis at byte {at} is not closed")]
    Unclosed {
        /// Where it is opened.
        at: usize,
    },
    /// A comma stands beside a `|`.
    #[error("the comma at byte {at} stands beside a `|`: write `&` and parentheses instead")]
    Mixed {
        /// Where the comma is.
        at: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;

    fn met(expression: &str, capabilities: &str) -> bool {
        let capabilities = capabilities.split_whitespace().map(|word| Word::parse(word).unwrap()).collect();
        Wanted::parse(expression).unwrap().is_met_by(&capabilities)
    }

    #[test]
    fn words_are_wanted_together_one_of_them_or_not_at_all() {
        let gpu = "gpu & (cuda12 | rocm) & !preview";
        assert!(met(gpu, "gpu rocm") && met(gpu, "cuda12 gpu other"));
        assert!(!met(gpu, "gpu") && !met(gpu, "cuda12") && !met(gpu, "gpu rocm preview") && !met(gpu, ""));
        assert!(met("gpu,rocm", "gpu rocm") && !met("gpu,rocm", "gpu"), "a list wants them all");
        assert!(met("!gpu", "") && !met("!gpu", "gpu") && met("!!gpu", "gpu"));
        assert!(met("a|b&c", "a") && !met("a|b&c", "b"), "`&` binds more than `|`");
        assert!(met("!a&b", "b") && !met("!a&b", ""), "`!` binds most");
        assert!(met(" a\t&\n b ", "a b") && met("a:1+x~2.b_c-d", "a:1+x~2.b_c-d"));
    }

    #[test]
    fn what_was_read_is_written_so_that_it_is_read_again() {
        for (given, told) in [
            ("a", "a"),
            ("((a))", "a"),
            ("a,b , c", "a & b & c"),
            ("a|b&c", "a | (b & c)"),
            ("!(a|b)&!c", "!(a | b) & !c"),
            ("(a&b)&c", "(a & b) & c"),
        ] {
            let wanted = Wanted::parse(given).unwrap();
            assert_eq!(wanted.to_string(), told);
            assert_eq!(Wanted::parse(told), Ok(wanted));
        }
    }

    #[test]
    fn what_cannot_be_read_is_pointed_at() {
        let bad = |text: &str| Wanted::parse(text).unwrap_err();
        assert_eq!(bad(""), BadWanted::NoWord { at: 0 });
        assert_eq!(bad("  "), BadWanted::NoWord { at: 2 });
        assert_eq!(bad("a &"), BadWanted::NoWord { at: 3 });
        assert_eq!(bad("a && b"), BadWanted::NoWord { at: 3 });
        assert_eq!(bad("a,"), BadWanted::NoWord { at: 2 });
        assert_eq!(bad("a | )"), BadWanted::NoWord { at: 4 });
        assert_eq!(bad("a b"), BadWanted::Joint { at: 2 });
        assert_eq!(bad("a ! b"), BadWanted::Joint { at: 2 });
        assert_eq!(bad("a)"), BadWanted::Joint { at: 1 });
        assert_eq!(bad("(a b)"), BadWanted::Joint { at: 3 });
        assert_eq!(bad("b & (a"), BadWanted::Unclosed { at: 4 });
        assert_eq!(bad("a, b | c"), BadWanted::Mixed { at: 1 });
        assert_eq!(bad("a | b, c"), BadWanted::Mixed { at: 5 });
        assert_eq!(bad("b & ä"), BadWanted::Word { at: 4, bad: BadText::NotOfWord { at: 0 } });
        assert_eq!(bad("a=b"), BadWanted::Word { at: 0, bad: BadText::NotOfWord { at: 1 } });
        assert!(matches!(bad(&"a".repeat(129)), BadWanted::Word { at: 0, bad: BadText::TooLong { .. } }));
        assert!(Wanted::parse("a, (b | c)").is_ok(), "parentheses say how it is meant");
    }

    #[test]
    fn it_is_neither_too_long_nor_too_deep() {
        let long = |words: usize| format!("a{}", ",a".repeat(words - 1));
        assert!(Wanted::parse(&long(512)).is_ok());
        assert_eq!(Wanted::parse(&long(513)), Err(BadWanted::TooLong { bytes: 1025 }));
        let deep = |n: usize| format!("{}a{}", "(".repeat(n), ")".repeat(n));
        assert!(Wanted::parse(&deep(WANTED_DEPTH_MAX - 1)).is_ok());
        assert_eq!(Wanted::parse(&deep(WANTED_DEPTH_MAX)), Err(BadWanted::TooDeep { at: WANTED_DEPTH_MAX }));
        assert!(Wanted::parse(&format!("{}a", "!".repeat(WANTED_DEPTH_MAX))).is_err());
        let wide = format!("({})", "(a)&".repeat(200) + "(a)");
        assert!(Wanted::parse(&wide).is_ok(), "what is closed again does not count");
    }
}

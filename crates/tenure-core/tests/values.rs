//! Every value that is valid when it exists: names, times, numbers. One below its limit is read, one above is refused.

use crate::support::handle;
use tenure_core::{
    BadHandle, BadSpan, BadText, BadTtl, Epoch, Fence, Handle, Holder, Key, Keys, Label, Labels, LeaseId, Moment, Name,
    Note, Priority, RequestNumber, Span, Ttl, Units, limits,
};

#[test]
fn names() {
    let max = limits::NAME_BYTES_MAX;
    let of_bytes = |bytes: usize| "n".repeat(bytes);
    assert_eq!(Name::parse(&of_bytes(max)).unwrap().as_str(), of_bytes(max));
    assert_eq!(Name::parse(&of_bytes(max + 1)), Err(BadText::TooLong { bytes: max + 1, max }));
    // Bytes are counted, not characters.
    assert!(Name::parse(&"é".repeat(max / 2)).is_ok());
    assert_eq!(Name::parse(&"é".repeat(max / 2 + 1)), Err(BadText::TooLong { bytes: max + 2, max }));
    assert_eq!(Name::parse(""), Err(BadText::Empty));
    assert_eq!(Name::parse("a/b\n"), Err(BadText::Control { at: 3 }));
    assert_eq!(Name::parse("é\u{85}"), Err(BadText::Control { at: 2 }), "also beyond ASCII");
    assert_eq!(Name::parse("a\u{7f}"), Err(BadText::Control { at: 1 }));
    assert_eq!(Name::parse("\0"), Err(BadText::Control { at: 0 }));
    assert_eq!(Name::parse("/a"), Err(BadText::EmptyPart { at: 0 }));
    assert_eq!(Name::parse("a/"), Err(BadText::EmptyPart { at: 2 }));
    assert_eq!(Name::parse("ab//c"), Err(BadText::EmptyPart { at: 3 }));
    assert_eq!(Name::parse("/"), Err(BadText::EmptyPart { at: 0 }));
    for good in ["a", "a/b/c", "jobs/nightly@eu", "with space", "日本/語"] {
        assert_eq!(Name::parse(good).unwrap().to_string(), good);
    }
}

#[test]
fn holders_and_notes() {
    let max = limits::HOLDER_BYTES_MAX;
    assert!(Holder::parse(&"h".repeat(max)).is_ok());
    assert_eq!(Holder::parse(&"h".repeat(max + 1)), Err(BadText::TooLong { bytes: max + 1, max }));
    assert_eq!(Holder::parse(""), Err(BadText::Empty));
    assert_eq!(Holder::parse("a\tb"), Err(BadText::Control { at: 1 }));
    assert_eq!(Holder::parse("/ann@host:7/").unwrap().as_str(), "/ann@host:7/", "a holder is no path");

    let max = limits::NOTE_BYTES_MAX;
    assert!(Note::parse(&"n".repeat(max)).is_ok());
    assert_eq!(Note::parse(&"n".repeat(max + 1)), Err(BadText::TooLong { bytes: max + 1, max }));
    assert_eq!(Note::parse("").unwrap().as_str(), "", "a note may be empty");
    assert_eq!(Note::parse("one\ntwo"), Err(BadText::Control { at: 3 }));
}

#[test]
fn invisible_and_bidi_characters_are_refused() {
    let spans = [(0xad, 0xad), (0x61c, 0x61c), (0x180e, 0x180e), (0x200b, 0x200f), (0x202a, 0x202e)];
    let more = [(0x2060, 0x2064), (0x2066, 0x2069), (0xfeff, 0xfeff), (0xe0000, 0xe007f)];
    let all = spans.into_iter().chain(more).flat_map(|(first, last)| first..=last);
    for hidden in all.map(|number| char::from_u32(number).unwrap()) {
        let (text, code) = (format!("a{hidden}b"), format!("U+{:04X} at byte 1", u32::from(hidden)));
        let refusals = [
            Name::parse(&text).unwrap_err(),
            Holder::parse(&text).unwrap_err(),
            Label::parse(&text, "").unwrap_err(),
            Label::parse("key", &text).unwrap_err(),
        ];
        for refused in refusals {
            assert!(refused.to_string().contains(&code), "{code}: {refused}");
        }
        let joins = matches!(hidden, '\u{200c}' | '\u{200d}');
        assert_eq!(Note::parse(&text).is_ok(), joins, "notes keep the two that some scripts need: {code}");
        assert!(Key::parse(text.as_bytes()).is_ok(), "a key is bytes");
    }
    for good in ["\u{ac}", "\u{200a}", "\u{2010}", "\u{2065}", "\u{206a}", "\u{e0080}", "👩", "שלום"] {
        assert!(Name::parse(good).is_ok(), "{good:?}");
    }
}

#[test]
fn ttls_and_lease_ids() {
    for ms in [limits::TTL_MS_MIN, limits::TTL_MS_MAX] {
        assert_eq!(Ttl::from_millis(ms).unwrap().millis(), ms);
    }
    for ms in [0, limits::TTL_MS_MIN - 1, limits::TTL_MS_MAX + 1, u64::MAX] {
        assert_eq!(Ttl::from_millis(ms), Err(BadTtl { ms }));
    }
    let said = BadTtl { ms: 99 }.to_string();
    assert!(said.contains("100 ms") && said.contains("9000000000000 ms"), "the refusal names the range: {said}");

    let max = (1 << 63) - 1;
    assert_eq!([1, max].map(|n| LeaseId::from_number(n).unwrap().number()), [1, max]);
    assert_eq!([0, max + 1, u64::MAX].map(LeaseId::from_number), [None; 3]);
}

#[test]
fn handles() {
    let max = limits::FENCE_MAX;
    assert_eq!(max, 9_007_199_254_740_991, "a JSON number holds every fence");
    for good in ["jobs/nightly@7", "a@b@7", "@@1", "a@9007199254740991"] {
        assert_eq!(Handle::parse(good).unwrap().to_string(), good);
    }
    let split = handle("jobs@eu@7");
    assert_eq!((split.resource.as_str(), split.fence.number()), ("jobs@eu", 7), "split at the last @");
    for junk in ["a@", "a@0", "a@9007199254740992", "a@18446744073709551616", "a@-1", "a@+1", "a@1 ", "a@x", "a@１"] {
        assert_eq!(Handle::parse(junk), Err(BadHandle::Fence), "{junk}");
    }
    assert_eq!(Handle::parse("jobs/nightly"), Err(BadHandle::NoFence));
    assert_eq!(Handle::parse(""), Err(BadHandle::NoFence));
    assert_eq!(Handle::parse("@7"), Err(BadHandle::Name(BadText::Empty)));
    assert_eq!(Handle::parse("a//b@7"), Err(BadHandle::Name(BadText::EmptyPart { at: 2 })));
    let long = "n".repeat(limits::NAME_BYTES_MAX + 1) + "@7";
    assert!(matches!(Handle::parse(&long), Err(BadHandle::Name(BadText::TooLong { .. }))));
    assert_eq!([0, max + 1].map(Fence::from_number), [None; 2]);
    assert_eq!(Fence::from_number(max).unwrap().number(), max);
}

#[test]
fn labels() {
    let (keys, values) = (limits::LABEL_KEY_BYTES_MAX, limits::LABEL_VALUE_BYTES_MAX);
    let label = Label::parse(&"k".repeat(keys), &"v".repeat(values)).unwrap();
    assert_eq!((label.key().len(), label.value().len()), (keys, values));
    let too_long = |bytes: usize, max: usize| Err(BadText::TooLong { bytes, max });
    assert_eq!(Label::parse(&"k".repeat(keys + 1), ""), too_long(keys + 1, keys));
    assert_eq!(Label::parse("k", &"v".repeat(values + 1)), too_long(values + 1, values));
    assert_eq!(Label::parse("", "v"), Err(BadText::Empty));
    assert_eq!(Label::parse("k", "").unwrap().value(), "", "a value may be empty");
    assert_eq!(Label::parse("k=v", ""), Err(BadText::Equals { at: 1 }));
    assert_eq!(Label::parse("k", "v=w").unwrap().value(), "v=w", "a value may have one");
    assert_eq!(Label::parse("k", "v\n"), Err(BadText::Control { at: 1 }));

    let max = limits::LABELS_MAX;
    let names: Vec<_> = (0..=max).map(|n| format!("k{n:02}")).collect();
    let pairs = |count: usize| names[..count].iter().map(|name| (name.as_str(), "v"));
    let most = Labels::parse(pairs(max)).unwrap();
    assert!(most.iter().map(|(key, _)| key).eq(names[..max].iter().map(String::as_str)), "they are in order");
    assert_eq!(Labels::parse(pairs(max + 1)), Err(BadText::TooMany { count: max + 1, max }));
    assert_eq!(Labels::parse([("k", "v"), ("k", "w")]), Err(BadText::Twice));
    assert_eq!(Labels::parse([("k", "v"), ("k=", "w")]), Err(BadText::Equals { at: 1 }));
    assert!(most.has(&Label::parse("k00", "v").unwrap()) && !most.has(&Label::parse("k00", "w").unwrap()));
    assert!(Labels::parse([]).unwrap().is_empty() && !most.is_empty());
}

#[test]
fn keys() {
    let max = limits::KEY_VALUE_BYTES_MAX;
    assert_eq!(Key::parse(&vec![0xff; max]).unwrap().bytes().len(), max, "a key is any bytes");
    assert_eq!(Key::parse(&vec![0; max + 1]), Err(BadText::TooLong { bytes: max + 1, max }));
    assert_eq!(Key::parse(b""), Err(BadText::Empty));
}

#[test]
fn keys_in_a_row() {
    let from = |end: Option<&[u8]>| Keys::From { first: b"b"[..].into(), end: end.map(Into::into) };
    let covered = |keys: &Keys| -> Vec<&str> {
        ["a", "b", "b/1", "c", "c\0", "d"].into_iter().filter(|key| keys.cover(key.as_bytes())).collect()
    };
    assert_eq!(covered(&from(None)), ["b", "b/1", "c", "c\0", "d"]);
    assert_eq!(covered(&from(Some(b"c"))), ["b", "b/1"], "the end is not meant");
    assert_eq!(covered(&from(Some(b"a"))), [""; 0], "an end before the first leaves nothing");
    assert_eq!(covered(&Keys::Prefix(b"b"[..].into())), ["b", "b/1"]);
    assert_eq!(covered(&Keys::Prefix([][..].into())).len(), 6, "everything starts so");
    assert_eq!(covered(&Keys::One(crate::support::key("c"))), ["c"]);
    assert_eq!([from(None).first(), Keys::One(crate::support::key("c")).first()], [b"b", b"c"]);
}

#[test]
fn units_priorities_and_epochs() {
    let max = limits::CAPACITY_MAX;
    assert_eq!([1, max].map(|n| Units::from_number(n).unwrap().number()), [1, max]);
    assert_eq!([0, max + 1, 1 << 32, u64::MAX].map(Units::from_number), [None; 4]);
    assert_eq!(Units::ONE.number(), 1);

    let max = limits::PRIORITY_MAX;
    assert_eq!([-max, 0, max].map(|n| Priority::from_number(n).unwrap().number()), [-max, 0, max]);
    assert_eq!([-max - 1, max + 1, i32::MIN, i32::MAX].map(Priority::from_number), [None; 4]);
    // At any moment each priority has its own place, and no arithmetic ends there.
    let order = |number, now| Priority::from_number(number).unwrap().order_ms(Moment::from_millis(now));
    assert!(order(max, 0) < order(max - 1, 0) && order(max, u64::MAX) < order(-max, u64::MAX));
    assert_eq!(order(1, limits::PRIORITY_INTERVAL_MS), order(0, 0), "one step is worth its interval");

    assert_eq!([1, u64::MAX].map(|n| Epoch::from_number(n).unwrap().number()), [1, u64::MAX]);
    assert_eq!(Epoch::from_number(0), None);
}

#[test]
fn spans() {
    for max in [limits::LOCK_DELAY_MS_MAX, limits::GRACE_MS_MAX, limits::BREAK_DELAY_MS_MAX, limits::WAIT_MS_MAX] {
        assert_eq!([0, max].map(|ms| Span::at_most(ms, max).unwrap().millis()), [0, max]);
        assert_eq!(Span::at_most(max + 1, max), Err(BadSpan { ms: max + 1, max_ms: max }));
    }
    let said = BadSpan { ms: 3_600_001, max_ms: limits::LOCK_DELAY_MS_MAX }.to_string();
    assert!(said.contains("3600001 ms") && said.contains("3600000 ms"), "the refusal names both: {said}");
    let end = Moment::from_millis(u64::MAX);
    assert_eq!(end.plus(Span::at_most(5, 10).unwrap()), end, "time stands still at its end");
}

#[test]
fn request_numbers() {
    let max = limits::FENCE_MAX;
    for (number, below) in [(1, 0), (1, 1), (max, max)] {
        let read = RequestNumber::new(number, below).map(|it| (it.number(), it.answered_below()));
        assert_eq!(read, Some((number, below)));
    }
    for (number, below) in [(0, 0), (0, 1), (max + 1, 0), (1, max + 1)] {
        assert_eq!(RequestNumber::new(number, below), None, "{number} {below}");
    }
}

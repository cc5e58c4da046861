//! Steps and answers for people to read: keys and values as text, and without what says nothing.

/// Characters that are shown: a request that is too large has more.
const SHOWN_MAX: usize = 3000;

/// Shortens what `{:?}` says of a message.
pub(crate) fn brief(words: &str) -> String {
    let mut text = words.to_owned();
    for opening in ["key: [", "range_end: [", "value: [", "Value(["] {
        text = with_text(&text, opening);
    }
    for nothing in ["0", "false", "[]", "None", r#""""#, r#"b"""#] {
        text = without(&text, nothing);
    }
    text.chars().take(SHOWN_MAX).collect()
}

/// Lists of bytes after an opening as text.
fn with_text(words: &str, opening: &str) -> String {
    let mut pieces = words.split(opening);
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (list, rest) = piece.split_once(']').unwrap_or((piece, ""));
        let bytes: Vec<u8> = list.split(", ").filter_map(|number| number.parse().ok()).collect();
        text += &format!("{}b\"{}\"{rest}", opening.trim_end_matches('['), bytes.escape_ascii());
    }
    text
}

/// Fields without those that say `nothing`.
fn without(words: &str, nothing: &str) -> String {
    let is_said =
        |field: &&str| field.split_once(": ").is_none_or(|(name, value)| value != nothing || name.contains(' '));
    let mut text = words.split(", ").filter(is_said).collect::<Vec<_>>().join(", ");
    text = text.replace(&format!(": {nothing} }}"), ": - }");
    text
}

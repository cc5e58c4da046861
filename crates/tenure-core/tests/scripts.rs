//! Runs every rule in `tests/scripts/*.txt`. `UPDATE_SCRIPTS=1` writes what the ledger did into them; read the diff then.
//! Each is named in `docs/rules.md`.

use crate::support::script;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// What a script says, against what it should say: the first line that differs, and a readable difference.
fn check(file: &str, text: &str) -> Result<(), String> {
    if !text.starts_with("# ") {
        return Err(format!("{file}:1: a script begins with its rule, as a comment"));
    }
    let right = run(text).map_err(|(line, why)| format!("{file}:{line}: {why}"))?;
    if right == text { Ok(()) } else { Err(difference(file, text, &right)) }
}

/// The script as it should be, or the line at which it cannot go on: it is unreadable, or a promise is broken there.
fn run(text: &str) -> Result<String, (usize, String)> {
    match std::panic::catch_unwind(|| script::run(text)) {
        Ok(right) => right.map_err(|bad| (bad.line, bad.why)),
        Err(panic) => {
            let why = panic.downcast_ref::<String>().cloned();
            let why = why.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            Err((0, format!("a promise is broken: {}", why.unwrap_or_default())))
        }
    }
}

/// The lines between what is equal at the top and what is equal at the bottom.
fn difference(file: &str, text: &str, right: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (text.lines().collect(), right.lines().collect());
    let top = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let rest = old.len().min(new.len()) - top;
    let bottom = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(old, new)| old == new).count();
    let mut shown = format!("{file}:{}: `-` is what the script says, `+` is what happened\n", top + 1);
    let context = old[..top].iter().rev().take(3).rev().map(|line| (' ', line));
    let said = old[top..old.len() - bottom].iter().map(|line| ('-', line));
    let happened = new[top..new.len() - bottom].iter().map(|line| ('+', line));
    for (sign, line) in context.chain(said).chain(happened) {
        writeln!(shown, "  {sign} {line}").expect("a string grows as needed");
    }
    shown
}

fn all_scripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let entries = fs::read_dir(folder).expect("the scripts are beside the tests");
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    let mut scripts: Vec<_> = paths.filter(|path| path.extension().is_some_and(|it| it == "txt")).collect();
    scripts.sort();
    scripts
}

#[test]
fn every_rule_holds() {
    let scripts = all_scripts();
    assert!(!scripts.is_empty(), "there are rules");
    let mut wrong = Vec::new();
    for path in &scripts {
        let text = fs::read_to_string(path).unwrap();
        let file = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap().display().to_string();
        match (check(&file, &text), std::env::var_os("UPDATE_SCRIPTS")) {
            (Ok(()), _) => {}
            (Err(why), None) => wrong.push(why),
            (Err(why), Some(_)) => match run(&text) {
                Ok(right) => fs::write(path, right).unwrap(),
                Err(_) => wrong.push(why),
            },
        }
    }
    assert!(wrong.is_empty(), "{} of {} scripts are wrong\n\n{}", wrong.len(), scripts.len(), wrong.join("\n"));
}

#[test]
fn a_wrong_script_fails_at_its_line() {
    let line = |text: &str| check("x.txt", text).expect_err("this script is wrong");
    assert!(line("at 0s tick\n").starts_with("x.txt:1: a script begins with its rule"));
    assert!(line("# Rule.\nat 0s dance db\n").starts_with("x.txt:2: nothing is called `dance`"));
    assert!(line("# Rule.\nat 0s together:\n  grant ann for 10s\n  renew\n").starts_with("x.txt:4: `renew` says too"));
    // A line that is missing, one that is too many, and one that is different.
    let missing = line("# Rule.\nat 0s grant ann for 10s\nat 1s tick\n");
    assert!(missing.starts_with("x.txt:3:") && missing.contains("+   -> granted lease ann\n"), "{missing}");
    let too_many = line("# Rule.\nat 1s tick\n  -> expired ann\n");
    assert!(too_many.starts_with("x.txt:3:") && too_many.contains("-   -> expired ann\n"), "{too_many}");
    let different = line("# Rule.\nat 0s acquire db by ann for 10s\n  -> granted db to ann fence 2\n");
    assert!(different.contains("fence 2\n  +   -> granted db to ann fence 1\n"), "{different}");
}

/// Every rule is found in `docs/rules.md`, and everything that is linked there is there.
#[test]
fn every_rule_is_in_the_manual() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let manual = fs::read_to_string(docs.join("rules.md")).expect("the rules are written down");
    let links: Vec<_> = manual.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    for link in &links {
        assert!(docs.join(link).exists(), "docs/rules.md links to {link}, which is not there");
    }
    for script in all_scripts() {
        let file = script.file_name().expect("a script is a file").to_string_lossy().into_owned();
        let is_linked = links.iter().any(|link| link.ends_with(&format!("/scripts/{file}")));
        assert!(is_linked, "docs/rules.md does not name {file}");
    }
}

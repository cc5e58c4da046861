//! What the command line says of itself: completions for shells, and pages for `man`.

use crate::args::{Completions, Manual, commands};
use crate::failure::{EXIT_CODES, Failure};
use crate::print;
use clap_mangen::roff::{Roff, bold, roman};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn completions(args: &Completions) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut commands(), "tenure", &mut script);
    print::text(&String::from_utf8_lossy(&script));
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn manual(args: &Manual) -> Result<ExitCode, Failure> {
    match &args.dir {
        Some(dir) => pages(dir),
        None => page(),
    }
}

fn page() -> Result<ExitCode, Failure> {
    let mut page = Vec::new();
    let rendered = clap_mangen::Man::new(commands()).render(&mut page);
    rendered.and_then(|()| exit_status(&mut page)).expect("memory takes what is written to it");
    print::text(&String::from_utf8_lossy(&page));
    Ok(ExitCode::SUCCESS)
}

/// The section about exit codes.
fn exit_status(page: &mut impl Write) -> io::Result<()> {
    let mut section = Roff::new();
    section.control("SH", ["EXIT STATUS"]);
    for (code, means) in EXIT_CODES {
        section.control("TP", []).text([bold(code.to_string())]).text([roman(*means)]);
    }
    page.write_all(section.to_roff().as_bytes())
}

/// One page for each command; the exit codes are on the first.
fn pages(dir: &Path) -> Result<ExitCode, Failure> {
    let first = dir.join("tenure.1");
    let written = clap_mangen::generate_to(commands(), dir)
        .and_then(|()| exit_status(&mut File::options().append(true).open(&first)?));
    written.map_err(|error| {
        let what = format!("cannot write manual pages to {}", dir.display());
        let why = format!("{error}; pages that were written before it stay");
        Failure::new(&what, &why, "Make the directory, or say another one: tenure man --dir DIR")
    })?;
    print::say(&format!("read them with: man -l {}", first.display()));
    Ok(ExitCode::SUCCESS)
}

//! What the command line says of itself: completions for shells, and pages for `man`.

use crate::args::{Completions, Manual, commands};
use crate::failure::Failure;
use crate::print;
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
    rendered.expect("memory takes what is written to it");
    print::text(&String::from_utf8_lossy(&page));
    Ok(ExitCode::SUCCESS)
}

/// One page for each command.
fn pages(dir: &Path) -> Result<ExitCode, Failure> {
    clap_mangen::generate_to(commands(), dir).map_err(|error| {
        let what = format!("cannot write manual pages to {}", dir.display());
        let why = format!("{error}; pages that were written before it stay");
        Failure::new(&what, &why, "Make the directory, or say another one: tenure man --dir DIR")
    })?;
    print::say(&format!("read them with: man -l {}", dir.join("tenure.1").display()));
    Ok(ExitCode::SUCCESS)
}

//! `tenure config`: the settings of a server as a file, as they are in force, and whether they can be.

use crate::args::{Config, Output};
use crate::config::{self, Effective, File};
use crate::failure::Failure;
use crate::print;
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn config(output: Output, order: Config) -> Result<ExitCode, Failure> {
    match order {
        Config::Init { write: None } => print::line(config::template().trim_end()),
        Config::Init { write: Some(path) } => init(&path)?,
        Config::Show(serve) => show(output, &Effective::of(&serve)?),
        Config::Check { file } => check(file.as_deref())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn init(path: &Path) -> Result<(), Failure> {
    let write = || {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        file.write_all(config::template().as_bytes())
    };
    write().map_err(|error| {
        let next = match error.kind() {
            ErrorKind::AlreadyExists => "Nothing was changed. Move it away first, or see `tenure config check`.",
            _ => "Say another place with --write FILE.",
        };
        Failure::new(&format!("cannot write {}", path.display()), &error.to_string(), next)
    })?;
    print::say(&format!("wrote {}; every line in it is a default until you change it", path.display()));
    Ok(())
}

#[derive(Serialize)]
struct Items<'a> {
    items: &'a [config::Origin],
}

fn show(output: Output, effective: &Effective) {
    let items = &effective.origins;
    match output {
        Output::Json => print::line(&print::json(&Items { items })),
        Output::Jsonl => items.iter().for_each(|item| print::line(&print::json(item))),
        Output::Name => items.iter().for_each(|item| print::line(item.key)),
        Output::Table => {
            let width = items.iter().map(|item| item.value.len()).max().unwrap_or_default().max("VALUE".len());
            let keys = items.iter().map(|item| item.key.len()).max().unwrap_or_default();
            print::line(&format!("{:<keys$}  {:<width$}  FROM", "KEY", "VALUE"));
            for item in items {
                print::line(&format!("{:<keys$}  {:<width$}  {}", item.key, print::or_dash(&item.value), item.from));
            }
        }
    }
}

fn check(file: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = config::find(file) else {
        print::say("there is no file, so the defaults and the environment are in force");
        return Ok(());
    };
    File::read(&path)?.check(&path)?;
    print::say(&format!("{} can be used", path.display()));
    Ok(())
}

//! The commands in `tenure --help`, grouped by when people need them. Each is described by its own line and by nothing
//! here.

use super::Cli;
use clap::{Command, CommandFactory};

const GROUPS: &[(&str, &[&str])] = &[
    (
        "Everyday",
        &[
            "run", "elect", "once", "acquire", "renew", "touch", "release", "verify", "ls", "show", "why", "history",
            "watch", "top", "key",
        ],
    ),
    ("Discovery", &["register", "discover", "deregister", "service"]),
    (
        "Operate",
        &[
            "serve",
            "cluster",
            "config",
            "break",
            "transfer",
            "resource",
            "lease",
            "class",
            "explain",
            "doctor",
            "ping",
            "completions",
            "man",
            "version",
            "help",
        ],
    ),
];

/// The command line, with its commands in groups.
pub(super) fn grouped() -> Command {
    // Built, so that `help` is among the commands; and built anew, because what was built keeps its old help.
    let mut built = Cli::command();
    built.build();
    let mut text = String::new();
    for (group, names) in GROUPS {
        text += &format!("{group}:\n");
        for name in *names {
            let about = built.find_subcommand(name).and_then(Command::get_about);
            text += &format!("  {name:<13}{}\n", about.map(ToString::to_string).unwrap_or_default());
        }
        text += "\n";
    }
    Cli::command().help_template(format!("{{about}}\n\n{{usage-heading}} {{usage}}\n\n{text}Options:\n{{options}}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group_and_described() {
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            assert_eq!(grouped.iter().filter(|other| **other == name).count(), 1, "{name}");
        }
        let help = super::grouped().render_help().to_string();
        for name in grouped {
            let line = help.lines().find(|line| line.trim_start().starts_with(&format!("{name} ")));
            assert!(line.is_some_and(|line| line.trim().len() > name.len()), "{name}: {help}");
        }
    }

    #[test]
    fn the_whole_command_line_is_sound() {
        grouped().debug_assert();
    }
}

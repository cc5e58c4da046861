//! The program behind a command's first word, found before anybody waits for it: a typo costs no lease.

use crate::failure::Failure;
use rustix::fs::{Access, access};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where programs are looked for if nobody says it.
const PATH_DEFAULT: &str = "/bin:/usr/bin";

/// A command whose program was there when it was looked for.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(super) path: PathBuf,
    /// As it was typed, the program's own name included.
    pub(super) argv: Vec<OsString>,
}

impl Program {
    /// Its name, for people who ask what runs. Not its arguments, which may be nobody else's business.
    pub(crate) fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        name.chars().filter(|c| !c.is_control()).collect()
    }

    /// Looks for the program as a shell does: by its path if it has a slash, else along `PATH`.
    pub(crate) fn find(argv: Vec<OsString>) -> Result<Self, Failure> {
        let name = argv.first().map(OsString::as_os_str).unwrap_or_default();
        let path = std::env::var_os("PATH").unwrap_or_else(|| PATH_DEFAULT.into());
        let places: Vec<PathBuf> = match name.as_bytes().contains(&b'/') {
            true => vec![PathBuf::from(name)],
            false => std::env::split_paths(&path).map(|directory| directory.join(name)).collect(),
        };
        match places.iter().find(|path| can_execute(path)) {
            Some(path) => Ok(Self { path: path.clone(), argv }),
            None => Err(not_found(name, places.iter().find(|path| !name.is_empty() && path.exists()))),
        }
    }
}

fn can_execute(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

fn not_found(name: &OsStr, there: Option<&PathBuf>) -> Failure {
    let what = format!("cannot run {}", name.display());
    match there {
        Some(path) if path.is_dir() => {
            let why = format!("{} is a directory; nothing was changed", path.display());
            Failure::cannot_execute(&what, &why, "Name a program in it.")
        }
        Some(path) => {
            let why = format!("{} may not be executed; nothing was changed", path.display());
            Failure::cannot_execute(&what, &why, &format!("Allow it with `chmod +x {}`.", path.display()))
        }
        None => {
            let next = "Look for a typo; a shell's own commands need a shell: -- sh -c '...'";
            Failure::command_not_found(&what, "there is no such program; nothing was changed", next)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::process::ExitCode;

    fn find(words: &[&OsStr]) -> Result<Program, ExitCode> {
        Program::find(words.iter().map(OsString::from).collect()).map_err(Failure::report)
    }

    fn assert_code(found: Result<Program, ExitCode>, code: u8) {
        assert_eq!(format!("{:?}", found.unwrap_err()), format!("{:?}", ExitCode::from(code)));
    }

    #[test]
    fn programs_are_found_along_the_path_or_where_they_are() {
        let found = find(&[OsStr::new("sh"), OsStr::new("-c")]).unwrap();
        assert!(found.path.is_absolute() && found.path.ends_with("sh"), "{found:?}");
        assert_eq!(found.argv, ["sh", "-c"]);
        assert_eq!(find(&[OsStr::new("/bin/sh")]).unwrap().path, Path::new("/bin/sh"));
    }

    #[test]
    fn what_cannot_run_is_told_apart_from_what_is_not_there() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("script");
        fs::write(&file, "#!/bin/sh\n").unwrap();
        assert_code(find(&[file.as_os_str()]), 126);
        assert_code(find(&[directory.path().as_os_str()]), 126);
        assert_code(find(&[directory.path().join("none").as_os_str()]), 127);
        assert_code(find(&[OsStr::new("no-such-program-anywhere")]), 127);
        assert_code(find(&[OsStr::new("")]), 127);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find(&[file.as_os_str()]).unwrap().path, file);
    }
}

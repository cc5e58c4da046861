//! A terminal for tests: a real one to the program inside, and text to the test outside.

use super::PATIENCE;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, OptionalActions, OutputModes, Winsize, tcgetattr, tcsetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};

/// A program in a terminal. Dropping it kills the program.
pub struct Terminal {
    child: Child,
    keyboard: File,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    text: Mutex<(String, bool)>,
    changed: Condvar,
}

impl Terminal {
    /// Starts a program in a terminal of this size, with no echo and lines that end as they were written.
    pub fn start(command: &mut Command, columns: u16, lines: u16) -> Self {
        let outside = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&outside).unwrap();
        unlockpt(&outside).unwrap();
        let name = ptsname(&outside, Vec::new()).unwrap().into_string().unwrap();
        let inside = File::options().read(true).write(true).open(name).unwrap();
        let mut modes = tcgetattr(&inside).unwrap();
        modes.local_modes.remove(LocalModes::ECHO);
        modes.output_modes.remove(OutputModes::ONLCR);
        tcsetattr(&inside, OptionalActions::Now, &modes).unwrap();
        tcsetwinsize(&inside, Winsize { ws_col: columns, ws_row: lines, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let end = || Stdio::from(inside.try_clone().unwrap());
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        // The command keeps its ends otherwise, and nobody would see that the program's own are closed.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let keyboard = File::from(outside);
        let seen = Arc::new(Seen::default());
        let (screen, heard) = (keyboard.try_clone().unwrap(), seen.clone());
        std::thread::spawn(move || read(screen, &heard));
        Self { child, keyboard, seen }
    }

    pub fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    pub fn resize(&self, columns: u16, lines: u16) {
        let size = Winsize { ws_col: columns, ws_row: lines, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(self.keyboard.as_fd(), size).unwrap();
        // No session is led from this terminal, so nobody else tells the program.
        self.signal("WINCH");
    }

    pub fn signal(&self, name: &str) {
        assert!(Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap().success());
    }

    /// Waits until what was printed so far is what is looked for, and gives it.
    pub fn until(&self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let guard = self.seen.text.lock().unwrap();
        let wait =
            self.seen.changed.wait_timeout_while(guard, PATIENCE, |(text, is_over)| !is_there(text) && !*is_over);
        let (guard, _) = wait.unwrap();
        assert!(is_there(&guard.0), "{what} never came: {:?}", guard.0);
        guard.0.clone()
    }

    /// Forgets what was printed so far.
    pub fn forget(&self) {
        self.seen.text.lock().unwrap().0.clear();
    }

    /// Waits for the end of the program, and gives what it printed and its exit code.
    pub fn ends(&mut self) -> (String, Option<i32>) {
        let code = self.child.wait().unwrap().code();
        let guard = self.seen.text.lock().unwrap();
        let wait = self.seen.changed.wait_timeout_while(guard, PATIENCE, |(_, is_over)| !*is_over);
        (wait.unwrap().0.0.clone(), code)
    }
}

/// Hears everything until no program has the terminal any more.
fn read(mut screen: File, seen: &Seen) {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let count = screen.read(&mut chunk).unwrap_or(0);
        bytes.extend_from_slice(&chunk[..count]);
        let whole = bytes.utf8_chunks().next().map_or(0, |chunk| chunk.valid().len());
        let mut text = seen.text.lock().unwrap();
        text.0.extend(String::from_utf8(bytes.drain(..whole).collect()));
        text.1 = count == 0;
        drop(text);
        seen.changed.notify_all();
        if count == 0 {
            return;
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

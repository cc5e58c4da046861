//! Why a lease needs a fence. A holder is stopped in the middle of its work, for longer than its TTL; another one takes
//! over; the first one wakes up, believes that it still holds the lease, and writes. The lease cannot stop that. The fence
//! does: the file refuses whoever is older than its last writer.
//!
//! ```sh
//! cargo run --example pause
//! ```
#![allow(clippy::print_stdout, reason = "an example talks")]

use std::io::{BufRead, BufReader, Error as IoError, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tenure::guard::HighWaterFile;
use tenure::{Client, Error};

const TTL: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.as_slice() {
        [name, file] => Ok(hold(name, Path::new(file)).await?),
        _ => Ok(play()?),
    }
}

/// One holder: holds the lease, and writes a line whenever it is told to, without looking at the clock. A real program
/// would look; but one that is stopped between the look and the write would be no better off.
async fn hold(name: &str, file: &Path) -> Result<(), Error> {
    let client = Client::from_env().await?;
    let held = client.lease("example/pause").ttl(TTL).holder(name).wait_for_ever().acquire().await?;
    let fence = held.fence();
    println!("{name} holds the lease with fence {fence}");
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let guard = HighWaterFile::at(file.with_extension("fence"));
        match guard.pass(fence, || append(file, &format!("{name} {line}"))) {
            Ok(_) => println!("{name} wrote {line:?}"),
            Err(refused) => println!("{name} was refused: {refused}"),
        }
    }
    Ok(())
}

fn append(file: &Path, line: &str) -> std::io::Result<()> {
    let mut file = std::fs::File::options().append(true).create(true).open(file)?;
    writeln!(file, "{line}")
}

/// A child that holds, what it says, and what it is told.
struct Holder {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Holder {
    fn start(name: &str, file: &Path) -> std::io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg(name).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let said = child.stdout.take().ok_or(IoError::other("no pipe"))?;
        Ok(Self { child, said: BufReader::new(said) })
    }

    /// Prints the next thing that it says.
    fn says(&mut self) -> std::io::Result<()> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        print!("{line}");
        Ok(())
    }

    fn write(&mut self, line: &str) -> std::io::Result<()> {
        writeln!(self.child.stdin.as_mut().ok_or(IoError::other("no pipe"))?, "{line}")
    }

    fn signal(&self, signal: &str) -> std::io::Result<()> {
        Command::new("kill").args(["-s", signal, &self.child.id().to_string()]).status().map(drop)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn play() -> std::io::Result<()> {
    let directory = std::env::temp_dir().join(format!("tenure-pause-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let file: PathBuf = directory.join("ledger");
    let mut ann = Holder::start("ann", &file)?;
    ann.says()?;
    ann.write("one")?;
    ann.says()?;
    println!("ann is stopped in the middle of her work");
    ann.signal("STOP")?;
    let mut bob = Holder::start("bob", &file)?;
    bob.says()?;
    bob.write("two")?;
    bob.says()?;
    println!("ann wakes up, and writes");
    ann.write("three")?;
    ann.signal("CONT")?;
    ann.says()?;
    print!("the file says:\n{}", std::fs::read_to_string(&file)?);
    std::fs::remove_dir_all(&directory)
}

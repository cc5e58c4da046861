//! Where work runs that blocks on the disk: on threads of its own, or in a simulation as tasks on simulated time.

use std::future::Future;
use std::io;

/// The home of work that blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// A thread for each.
    Threads,
    /// Tasks of the current runtime, for disks that do not really block.
    Tasks,
}

impl Workers {
    pub(crate) fn start(self, name: &str, work: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        match self {
            Self::Threads => {
                let thread = std::thread::Builder::new().name(name.to_owned());
                thread.spawn(move || futures::executor::block_on(work)).map(drop)
            }
            Self::Tasks => {
                tokio::spawn(work);
                Ok(())
            }
        }
    }
}

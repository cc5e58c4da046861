//! Whose data a directory holds: its format, its cluster and its node, in a small text file with a checksum.

use crate::disk::SharedDisk;
use crate::entropy::Entropy;
use crate::place::{Begin, Place};
use std::io;

const FILE: &str = "identity";
const TEMPORARY: &str = "identity.tmp";
/// In directories made by a build that knows identities of peers: their nodes refuse certificates without one by default.
const MARK: &str = "peer-identity";
const FORMAT: u64 = 1;

/// Whose data a directory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Drawn when the cluster was made; 0 as long as the node belongs to none.
    pub cluster: u64,
    /// The number of this node in it.
    pub node: u64,
    /// Drawn when this data directory was made: a wiped node is not its old self.
    pub incarnation: u64,
}

impl Identity {
    /// Reads the directory's identity. A new directory gets one: as a new cluster of one, or as a node of none yet.
    pub(crate) async fn open(disk: &SharedDisk, entropy: &dyn Entropy, place: &Place) -> io::Result<Self> {
        let names = disk.list()?;
        if names.iter().any(|name| name == FILE) {
            let text = String::from_utf8_lossy(&disk.read(FILE)?).into_owned();
            let identity = Self::parse(&text).map_err(|why| refuse(&why))?;
            return match place.node {
                Some(node) if node != identity.node => Err(another(identity.node, node)),
                _ => Ok(identity),
            };
        }
        if let Some(stray) = names.iter().find(|name| name.starts_with("log-") || name.starts_with("snapshot-")) {
            return Err(refuse(&format!("is missing, but there is data beside it ({stray})")));
        }
        let cluster = if place.begin == Begin::Alone { entropy.draw() } else { 0 };
        let identity = Self { cluster, node: place.node.unwrap_or(1), incarnation: entropy.draw() };
        identity.begin(disk).await?;
        Ok(identity)
    }

    /// Writes the identity of a new directory. The mark comes first, so that no directory with an identity lacks it.
    pub(crate) async fn begin(&self, disk: &SharedDisk) -> io::Result<()> {
        let mut mark = disk.create(MARK)?;
        mark.append(b"require\n")?;
        mark.sync().await?;
        self.write(disk).await
    }

    /// Whether a directory was made by a build that knows identities of peers.
    pub(crate) fn is_marked(disk: &SharedDisk) -> io::Result<bool> {
        Ok(disk.list()?.iter().any(|name| name == MARK))
    }

    /// Whether a directory has one.
    pub(crate) fn is_in(disk: &SharedDisk) -> io::Result<bool> {
        Ok(disk.list()?.iter().any(|name| name == FILE))
    }

    pub(crate) async fn write(&self, disk: &SharedDisk) -> io::Result<()> {
        let mut file = disk.create(TEMPORARY)?;
        file.append(self.text().as_bytes())?;
        file.sync().await?;
        disk.rename(TEMPORARY, FILE)?;
        disk.sync_dir()
    }

    fn text(&self) -> String {
        let Self { cluster, node, incarnation } = self;
        let body = format!(
            "tenure data directory\nformat {FORMAT}\ncluster {cluster:016x}\nnode {node}\nincarnation {incarnation:016x}\n"
        );
        let checksum = crc32fast::hash(body.as_bytes());
        format!("{body}checksum {checksum:08x}\n")
    }

    fn parse(text: &str) -> Result<Self, String> {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.ok_or_else(|| format!("has no line `{name}`"))
        };
        let number = |name, radix| {
            u64::from_str_radix(field(name)?, radix).map_err(|_| format!("has a line `{name}` that is not a number"))
        };
        let format = number("format", 10)?;
        if format != FORMAT {
            return Err(format!("has format {format}, and this build reads {FORMAT}: start the build that made it"));
        }
        let identity = Self {
            cluster: number("cluster", 16)?,
            node: number("node", 10)?,
            incarnation: number("incarnation", 16)?,
        };
        if identity.text() != text { Err("does not match its checksum".into()) } else { Ok(identity) }
    }
}

fn another(found: u64, asked: u64) -> io::Error {
    let text = format!(
        "the data directory is that of node {found}, not of node {asked}. Nothing was changed. Start it with --node-id \
         {found}, or give node {asked} a directory of its own"
    );
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

fn refuse(why: &str) -> io::Error {
    let text = format!("the file `{FILE}` in the data directory {why}. Nothing was changed. Restore it from a backup");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

//! Snapshots on disk: one checksummed file, replaced as a whole. It never looks inside the ledger's bytes.

use crate::disk::SharedDisk;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const MAGIC: &[u8; 8] = b"TENURESN";
const FORMAT: u32 = 1;
/// Magic, format, length of the meta, length of the body.
const HEADER_BYTES: usize = 8 + 4 + 4 + 8;
const CHECKSUM_BYTES: usize = 4;

/// Numbers the files that are not whole yet.
static SAVES: AtomicU64 = AtomicU64::new(0);

/// A snapshot: what the log before it came to.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) meta: Vec<u8>,
    pub(crate) body: Arc<Vec<u8>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Shelf {
    disk: SharedDisk,
}

impl Shelf {
    pub(crate) fn new(disk: SharedDisk) -> Self {
        Self { disk }
    }

    /// The newest snapshot, if there is one. A damaged one is refused, and named.
    pub(crate) fn load(&self) -> io::Result<Option<Snapshot>> {
        let Some((name, bytes)) = self.newest()? else { return Ok(None) };
        read(&bytes).map(Some).map_err(|why| {
            let text = format!(
                "snapshot {name} is damaged: {why}. Going on could lose acknowledged leases. Keep the file for \
                 inspection, and rebuild this node from its peers or from a backup"
            );
            io::Error::new(io::ErrorKind::InvalidData, text)
        })
    }

    /// The newest file. A save may put a newer one in its place between a look at the names and the read.
    fn newest(&self) -> io::Result<Option<(String, Vec<u8>)>> {
        let mut names = self.names()?;
        while let Some(name) = names.pop() {
            match self.disk.read(&name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let now = self.names()?;
                    if now.last() == Some(&name) {
                        return Err(error);
                    }
                    names = now;
                }
                bytes => return bytes.map(|bytes| Some((name, bytes))),
            }
        }
        Ok(None)
    }

    /// Puts a snapshot of everything up to `index` in place of all others. It is durable when this returns.
    pub(crate) async fn save(&self, index: u64, snapshot: &Snapshot) -> io::Result<()> {
        let name = format!("snapshot-{index:020}.snap");
        // A snapshot may come from the leader while one is being made: each has a file of its own until it is whole.
        let temporary = format!("snapshot-{index:020}.{}.tmp", SAVES.fetch_add(1, Ordering::Relaxed));
        let mut file = self.disk.create(&temporary)?;
        let mut checksum = crc32fast::Hasher::new();
        for piece in [&header(snapshot)[..], &snapshot.meta, &snapshot.body] {
            checksum.update(piece);
            file.append(piece)?;
        }
        file.append(&checksum.finalize().to_le_bytes())?;
        file.sync().await?;
        drop(file);
        self.disk.rename(&temporary, &name)?;
        self.disk.sync_dir()?;
        for old in self.names()? {
            if old < name {
                match self.disk.remove(&old) {
                    // Whoever saved a newer one meanwhile has removed it.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    removed => removed?,
                }
            }
        }
        Ok(())
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = self.disk.list()?;
        names.retain(|name| name.starts_with("snapshot-") && name.ends_with(".snap"));
        Ok(names)
    }
}

fn header(snapshot: &Snapshot) -> Vec<u8> {
    let meta = u32::try_from(snapshot.meta.len()).expect("a membership is small");
    let mut header = Vec::with_capacity(HEADER_BYTES);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&FORMAT.to_le_bytes());
    header.extend_from_slice(&meta.to_le_bytes());
    header.extend_from_slice(&(snapshot.body.len() as u64).to_le_bytes());
    header
}

fn read(bytes: &[u8]) -> Result<Snapshot, &'static str> {
    if bytes.len() < HEADER_BYTES + CHECKSUM_BYTES {
        return Err("it is too short");
    }
    let (content, checksum) = bytes.split_at(bytes.len() - CHECKSUM_BYTES);
    if crc32fast::hash(content).to_le_bytes() != checksum {
        return Err("its checksum does not match");
    }
    let (header, rest) = content.split_at(HEADER_BYTES);
    if &header[..8] != MAGIC {
        return Err("it is not a snapshot");
    }
    if header[8..12] != FORMAT.to_le_bytes() {
        return Err("it has a format that this build does not know");
    }
    let meta_bytes = u32::from_le_bytes(header[12..16].try_into().expect("four bytes are four bytes")) as usize;
    let body_bytes = u64::from_le_bytes(header[16..24].try_into().expect("eight bytes are eight bytes"));
    if meta_bytes > rest.len() || (rest.len() - meta_bytes) as u64 != body_bytes {
        return Err("its lengths do not match");
    }
    let (meta, body) = rest.split_at(meta_bytes);
    Ok(Snapshot { meta: meta.to_vec(), body: Arc::new(body.to_vec()) })
}

//! Ports for servers that a test starts, stops and starts again.

use std::net::{SocketAddr, TcpListener};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports that the kernel gives to connections, so that one that is free now is free when its server binds it.
const FIRST: u16 = 20_000;
const BLOCKS: u16 = 120;
const BLOCK: u16 = 100;

/// The block of this process: while it listens on the first port of a block, the rest is its own.
struct Block {
    first: u16,
    _guard: TcpListener,
    next: AtomicU16,
}

fn block() -> &'static Block {
    static BLOCK_OF_THIS_PROCESS: OnceLock<Block> = OnceLock::new();
    BLOCK_OF_THIS_PROCESS.get_or_init(|| {
        let begin = u16::try_from(std::process::id() % u32::from(BLOCKS)).expect("a remainder is small");
        let blocks = (0..BLOCKS).map(|n| FIRST + (begin + n) % BLOCKS * BLOCK);
        let taken = blocks.filter_map(|first| Some((first, TcpListener::bind(("127.0.0.1", first)).ok()?))).next();
        let (first, guard) = taken.expect("fewer tests run at once than there are blocks of ports");
        Block { first, _guard: guard, next: AtomicU16::new(first + 1) }
    })
}

/// An address on loopback that no other test uses.
pub fn reserved() -> SocketAddr {
    let block = block();
    loop {
        let port = block.next.fetch_add(1, Ordering::SeqCst);
        assert!(port < block.first + BLOCK, "a test needs fewer ports than a block has");
        // Something else on this machine may have it.
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return SocketAddr::from(([127, 0, 0, 1], port));
        }
    }
}

//! Calls of gRPC whose bytes are just those that a test gives, and a connection that can be cut within a frame. Never a test.

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::{Code, Status};

/// What a frame of HTTP/2 begins with: three bytes of length, its kind, and five more.
const FRAME_HEAD: usize = 9;
const DATA: u8 = 0;

/// Nothing is cut.
const WHOLE: usize = usize::MAX;

/// One connection, with many calls.
pub struct Wire {
    calls: SendRequest<Bytes>,
    address: String,
    cut: Arc<AtomicUsize>,
}

impl Wire {
    /// A connection to `host:port`.
    pub async fn to(address: &str) -> Self {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let cut = Arc::new(AtomicUsize::new(WHOLE));
        tokio::spawn(pump(theirs, TcpStream::connect(address).await.unwrap(), cut.clone()));
        let (calls, connection) = h2::client::handshake(ours).await.unwrap();
        tokio::spawn(async move { drop(connection.await) });
        Self { calls, address: address.into(), cut }
    }

    /// Of the next frame with data, only so many bytes go out; then the connection is closed.
    pub fn cut_after(&self, bytes: usize) {
        self.cut.store(bytes, Ordering::SeqCst);
    }

    /// Opens a call.
    pub async fn call(&self, path: &str) -> Call {
        let request = http::Request::post(format!("http://{}{path}", self.address))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .unwrap();
        let (answer, asks) = self.calls.clone().ready().await.unwrap().send_request(request, false).unwrap();
        Call { asks, answer: Some(answer), body: None, left: BytesMut::new(), head: http::HeaderMap::new() }
    }

    /// Makes a unary call, and says how it ended.
    pub async fn unary(&self, path: &str, message: &[u8]) -> (Code, String) {
        let mut call = self.call(path).await;
        call.asks.send_data(framed(message), true).unwrap();
        call.end().await
    }
}

/// Carries bytes both ways until one side ends, or what goes out is cut.
async fn pump(ours: tokio::io::DuplexStream, theirs: TcpStream, cut: Arc<AtomicUsize>) {
    let (mut from_us, mut to_us) = tokio::io::split(ours);
    let (mut from_them, mut to_them) = theirs.into_split();
    let out = async {
        let mut chunk = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from_us.read(&mut chunk).await {
            let bytes = cut.load(Ordering::SeqCst);
            let data = first_data(&chunk[..count]).filter(|_| bytes != WHOLE);
            let bytes = data.map_or(count, |at| count.min(at + bytes));
            if to_them.write_all(&chunk[..bytes]).await.is_err() || data.is_some() {
                return;
            }
        }
    };
    tokio::select! {
        () = out => {}
        _ = tokio::io::copy(&mut from_them, &mut to_us) => {}
    }
}

/// Where the first frame with data begins. Others may stand before it.
fn first_data(chunk: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(&[high, middle, low, kind]) = chunk.get(at..at + 4) {
        if kind == DATA {
            return Some(at);
        }
        at += FRAME_HEAD + u32::from_be_bytes([0, high, middle, low]) as usize;
    }
    None
}

/// A call that is under way.
pub struct Call {
    asks: SendStream<Bytes>,
    answer: Option<ResponseFuture>,
    body: Option<RecvStream>,
    left: BytesMut,
    head: http::HeaderMap,
}

impl Call {
    pub fn ask(&mut self, message: &[u8]) {
        self.asks.send_data(framed(message), false).unwrap();
    }

    /// Announces a message of this length, and sends only so much of it.
    pub fn begin(&mut self, length: u32, sent: usize) {
        let mut bytes = BytesMut::with_capacity(5 + sent);
        bytes.put_u8(0);
        bytes.put_u32(length);
        bytes.put_bytes(7, sent);
        self.asks.send_data(bytes.freeze(), false).unwrap();
    }

    async fn body(&mut self) -> Option<&mut RecvStream> {
        if let Some(answer) = self.answer.take() {
            let (head, body) = answer.await.ok()?.into_parts();
            (self.head, self.body) = (head.headers, Some(body));
        }
        self.body.as_mut()
    }

    /// The next message, or none at the end.
    pub async fn message<T: prost::Message + Default>(&mut self) -> Option<T> {
        loop {
            if let Some(length) = self.left.get(1..5) {
                let whole = 5 + u32::from_be_bytes(length.try_into().unwrap()) as usize;
                if self.left.len() >= whole {
                    return Some(T::decode(&self.left.split_to(whole)[5..]).unwrap());
                }
            }
            let part = self.body().await?.data().await?.ok()?;
            self.left.extend_from_slice(&part);
            let _ = self.body().await?.flow_control().release_capacity(part.len());
        }
    }

    /// Waits for the head of the answer, and reads nothing of what follows.
    pub async fn opened(&mut self) {
        self.body().await;
    }

    /// How the call ends, whatever comes before.
    pub async fn end(&mut self) -> (Code, String) {
        let mut trailers = None;
        if let Some(body) = self.body().await {
            while let Some(Ok(part)) = body.data().await {
                let _ = body.flow_control().release_capacity(part.len());
            }
            trailers = body.trailers().await.ok().flatten();
        }
        let status = trailers.as_ref().and_then(Status::from_header_map);
        let status = status.or_else(|| Status::from_header_map(&self.head)).expect("a call ends with a status");
        (status.code(), status.message().to_owned())
    }
}

/// A message as gRPC carries it.
pub fn framed(message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(5 + message.len());
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.len()).unwrap());
    bytes.put_slice(message);
    bytes.freeze()
}

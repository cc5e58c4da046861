//! Transactions of etcd's that once stopped a server: each is refused with a code of etcd's, and the server goes on.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use tenure_api::etcd::etcdserverpb as pb;
use tenure_api::etcd::etcdserverpb::kv_client::KvClient;
use tenure_api::etcd::etcdserverpb::request_op::Request;
use tenure_testkit::{Server, soon};
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

async fn kv(server: &Server) -> KvClient<Channel> {
    KvClient::new(Endpoint::from_shared(server.addr.clone()).unwrap().connect().await.unwrap())
}

fn op(request: Request) -> pb::RequestOp {
    pb::RequestOp { request: Some(request) }
}

fn put(key: String, value: Vec<u8>) -> pb::RequestOp {
    op(Request::RequestPut(pb::PutRequest { key: key.into_bytes(), value, ..pb::PutRequest::default() }))
}

fn txn(success: Vec<pb::RequestOp>) -> pb::TxnRequest {
    pb::TxnRequest { success, ..pb::TxnRequest::default() }
}

fn within(success: Vec<pb::RequestOp>) -> pb::RequestOp {
    op(Request::RequestTxn(txn(success)))
}

/// A look at one key, or at all.
fn range(key: &str, is_count: bool) -> pb::RequestOp {
    let (key, range_end) = if key.is_empty() { (vec![0], vec![0]) } else { (key.into(), vec![]) };
    op(Request::RequestRange(pb::RangeRequest { key, range_end, count_only: is_count, ..pb::RangeRequest::default() }))
}

/// Three levels of so many each: all within what one level may have.
fn cube(side: usize, leaf: impl Fn(usize) -> pb::RequestOp) -> pb::TxnRequest {
    let level = |from: usize| within((0..side).map(|n| leaf(from * side + n)).collect());
    txn((0..side).map(|x| within((0..side).map(|y| level(x * side + y)).collect())).collect())
}

async fn refused(kv: &mut KvClient<Channel>, request: pb::TxnRequest) -> (Code, String) {
    let answer = soon("an answer", kv.txn(request)).await.unwrap_err();
    (answer.code(), answer.message().to_owned())
}

/// The server does what it did before.
async fn goes_on(kv: &mut KvClient<Channel>) {
    let request = txn(vec![put("alive".into(), b"yes".to_vec()), range("alive", false)]);
    let done = soon("a transaction", kv.txn(request)).await.unwrap().into_inner();
    assert!(done.succeeded && done.responses.len() == 2);
}

fn too_many() -> (Code, String) {
    (Code::InvalidArgument, "etcdserver: too many operations in txn request".into())
}

#[tokio::test]
async fn deep_transactions_are_refused() {
    let server = Server::start();
    let mut kv = kv(&server).await;
    for levels in [9, 48, 49] {
        let deep = (1..levels).fold(vec![put("leaf".into(), vec![])], |ops, _| vec![within(ops)]);
        assert_eq!(refused(&mut kv, txn(deep)).await, too_many(), "{levels} levels");
    }
    goes_on(&mut kv).await;
}

#[tokio::test]
async fn operations_do_not_multiply_over_levels() {
    let server = Server::start();
    let mut kv = kv(&server).await;
    assert_eq!(refused(&mut kv, cube(34, |_| range("", true))).await, too_many(), "39,304 counts");
    assert_eq!(refused(&mut kv, cube(42, |n| put(format!("k{n}"), vec![]))).await, too_many(), "74,088 puts");
    goes_on(&mut kv).await;
}

#[tokio::test]
async fn answers_larger_than_the_limit_are_refused() {
    let server = Server::start();
    let mut kv = kv(&server).await;
    let large = pb::PutRequest { key: b"large".to_vec(), value: vec![7; 1_000_000], ..pb::PutRequest::default() };
    kv.put(large).await.unwrap();
    let full = "tenure: no room: bytes that one transaction answers may be at most 16777216";
    let mut ranges: Vec<_> = (0..100).map(|_| range("large", false)).collect();
    assert_eq!(refused(&mut kv, txn(ranges.clone())).await, (Code::ResourceExhausted, full.into()), "which only looks");
    ranges.push(put("x".into(), vec![]));
    assert_eq!(refused(&mut kv, txn(ranges)).await, (Code::ResourceExhausted, full.into()), "which writes");
    assert_eq!(
        kv.range(pb::RangeRequest { key: b"x".to_vec(), ..Default::default() }).await.unwrap().into_inner().count,
        0
    );
    goes_on(&mut kv).await;
}

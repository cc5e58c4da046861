"""client.py HOST PORT: keys, transactions, leases, watches, locks and an election with the Python package etcd3.

The package has no election of its own: the one here is made of its lock's parts, as people do.
"""

import sys
import threading

import etcd3
import grpc

PATIENCE_SECONDS = 60


def connect():
    return etcd3.client(host=sys.argv[1], port=int(sys.argv[2]), timeout=PATIENCE_SECONDS)


def values(found):
    return [value for value, _ in found]


def keys(client):
    client.put("py/a", "1")
    client.put("py/b", "2")
    before = client.put("py/a", "3", prev_kv=True)
    assert before.prev_kv.value == b"1", before
    value, about = client.get("py/a")
    assert (value, about.key, about.version) == (b"3", b"py/a", 2), (value, about.version)
    assert about.mod_revision > about.create_revision
    assert client.get("py/none") == (None, None)
    assert values(client.get_prefix("py/", sort_order="descend", sort_target="key")) == [b"2", b"3"]
    assert values(client.get_prefix("py/", sort_order="ascend", sort_target="mod")) == [b"2", b"3"]
    assert values(client.get_range("py/a", "py/b")) == [b"3"]
    assert len(list(client.get_prefix("py/", keys_only=True))) == 2
    assert client.put_if_not_exists("py/a", "4") is False
    assert client.put_if_not_exists("py/c", "4") is True
    assert client.replace("py/a", "3", "5") is True
    assert client.replace("py/a", "3", "6") is False
    assert client.delete("py/c") is True
    assert client.delete("py/c") is False
    assert client.delete_prefix("py/").deleted == 2


def transactions(client):
    client.delete_prefix("tx/")
    client.put("tx/a", "1")
    at = client.transactions
    done, answers = client.transaction(
        compare=[at.value("tx/a") == "1", at.version("tx/a") > 0, at.create("tx/b") == 0, at.mod("tx/a") != 0],
        success=[at.put("tx/b", "2"), at.get("tx/a"), at.delete("tx/a")],
        failure=[at.get("tx/a")],
    )
    assert done is True and answers[1][0][0] == b"1", (done, answers)
    done, answers = client.transaction(
        compare=[at.value("tx/b") < "2"],
        success=[],
        failure=[at.txn(compare=[], success=[at.get("tx/b")], failure=[])],
    )
    assert done is False and answers[0].response_txn.succeeded, (done, answers)
    assert client.get("tx/a") == (None, None)


def leases(client):
    lease = client.lease(600)
    client.put("leased/a", "1", lease=lease)
    client.put("leased/b", "1", lease=lease.id)
    assert lease.granted_ttl == 600 and 590 < lease.remaining_ttl <= 600
    assert sorted(lease.keys) == [b"leased/a", b"leased/b"]
    assert lease.refresh()[0].TTL == 600
    lease.revoke()
    assert list(client.get_prefix("leased/")) == []
    assert client.get_lease_info(lease.id).TTL == -1
    chosen = client.lease(600, lease_id=4711)
    assert chosen.id == 4711
    refused(grpc.StatusCode.FAILED_PRECONDITION, "lease already exists", lambda: client.lease(600, lease_id=4711))
    chosen.revoke()
    refused(grpc.StatusCode.NOT_FOUND, "requested lease not found", chosen.revoke)


def refused(code, words, call):
    try:
        call()
    except (grpc.RpcError, etcd3.Etcd3Exception) as raised:
        error = raised if isinstance(raised, grpc.RpcError) else raised.__context__
        assert error.code() == code and words in error.details(), (error.code(), error.details())
    else:
        raise AssertionError(f"{words}: nothing was refused")


def watches(client):
    now = client.get_response("nothing").header.revision
    events, cancel = client.watch_prefix("watched/", start_revision=now + 1, prev_kv=True)
    client.put("watched/a", "1")
    client.put("watched/a", "2")
    client.delete("watched/a")
    heard = [next(events) for _ in range(3)]
    kinds = [type(event).__name__ for event in heard]
    assert kinds == ["PutEvent", "PutEvent", "DeleteEvent"], kinds
    assert [event.prev_value for event in heard[1:]] == [b"1", b"2"], heard
    cancel()
    heard = []
    done = threading.Event()

    def hear(answer):
        heard.extend(answer.events)
        if len(heard) >= 3:
            done.set()

    number = client.add_watch_prefix_callback("watched/", hear, start_revision=now + 1)
    assert done.wait(PATIENCE_SECONDS), heard
    client.cancel_watch(number)
    client.compact(now + 3)
    try:
        next(client.watch("watched/a", start_revision=1)[0])
    except etcd3.exceptions.RevisionCompactedError as error:
        assert error.compacted_revision == now + 3
    else:
        raise AssertionError("what is forgotten cannot be watched")


def then(call, after):
    def both(*args, **options):
        answer = call(*args, **options)
        after()
        return answer

    return both


def locks(client):
    other = connect()
    first, second = client.lock("py", ttl=60), other.lock("py", ttl=60)
    assert first.acquire(timeout=PATIENCE_SECONDS) and first.is_acquired()
    assert second.acquire(timeout=0) is False
    # The package would miss a release that comes before its watch.
    watching = threading.Event()
    other.add_watch_callback = then(other.add_watch_callback, watching.set)
    waiting = threading.Thread(target=lambda: second.acquire(timeout=PATIENCE_SECONDS))
    waiting.start()
    assert watching.wait(PATIENCE_SECONDS)
    first.release()
    waiting.join(PATIENCE_SECONDS)
    assert second.is_acquired() and not first.is_acquired()
    assert second.refresh()[0].TTL == 60
    second.release()
    with client.lock("py", ttl=60) as held:
        assert held.is_acquired()


def election(client):
    def campaign(who, lease):
        at = client.transactions
        client.transaction([at.create(f"elect/{who}") == 0], [at.put(f"elect/{who}", who, lease)], [])

    def leader():
        found = client.get_prefix("elect/", sort_order="ascend", sort_target="create")
        return next((value.decode() for value, _ in found), None)

    ann, bob = client.lease(600), client.lease(600)
    campaign("bob", bob)
    campaign("ann", ann)
    assert leader() == "bob"
    now = client.get_response("nothing").header.revision
    bob.revoke()
    events, cancel = client.watch("elect/bob", start_revision=now + 1)
    assert isinstance(next(events), etcd3.events.DeleteEvent)
    cancel()
    assert leader() == "ann"
    ann.revoke()
    assert leader() is None


def server(client):
    status = client.status()
    assert status.version.startswith("3.5."), status.version
    assert status.leader is not None and status.raft_term > 0
    assert [member.client_urls for member in client.members]
    assert list(client.list_alarms()) == []


def main():
    client = connect()
    for part in (keys, transactions, leases, watches, locks, election, server):
        part(client)
        print(f"{part.__name__}: done")
    print("python etcd3: done")


main()

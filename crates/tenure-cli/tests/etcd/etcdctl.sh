#!/usr/bin/env bash
# etcdctl.sh ETCDCTL ENDPOINT: every command of etcdctl that people use for keys, leases, locks and elections. Ends at the
# first answer that is not the expected one.
set -eu -o pipefail
etcdctl=$1
export ETCDCTL_ENDPOINTS=$2 ETCDCTL_API=3 ETCDCTL_DIAL_TIMEOUT=60s ETCDCTL_COMMAND_TIMEOUT=60s
scratch=$(mktemp -d)
trap '{ kill $(jobs -p) || true; } 2>/dev/null; rm -rf "$scratch"' EXIT

ctl() { timeout 60 "$etcdctl" "$@"; }
is() { # is WHAT EXPECTED ANSWER
  [ "$2" = "$3" ] || { printf '%s: expected\n%s\nbut it was\n%s\n' "$1" "$2" "$3" >&2; exit 1; }
}
has() { # has WHAT PART ANSWER
  [[ "$3" == *"$2"* ]] || { printf '%s: expected part\n%s\nbut it was\n%s\n' "$1" "$2" "$3" >&2; exit 1; }
}
refused() { # refused WHAT PART COMMAND...
  local what=$1 part=$2
  shift 2
  if ctl "$@" >"$scratch/refused" 2>&1; then echo "$what: expected a refusal" >&2; exit 1; fi
  has "$what" "$part" "$(cat "$scratch/refused")"
}
until_says() { # until_says WHAT FILE PART
  for _ in $(seq 600); do
    grep -qF -- "$3" "$2" && return
    sleep 0.1
  done
  printf '%s: never said\n%s\nonly\n%s\n' "$1" "$3" "$(cat "$2")" >&2
  exit 1
}
begin() { # begin FILE COMMAND...: goes on by itself; $pid stops it
  timeout 60 "$etcdctl" "${@:2}" >"$1" 2>&1 &
  pid=$!
}
revision() { ctl get nothing -w json | sed -E 's/.*"revision":([0-9]+).*/\1/'; }
# etcdctl 3.4, which Debian had before, knows a little less.
[[ "$(ctl version)" == *"version: 3.4"* ]] && is_old=yes || is_old=no

# Keys.
is put OK "$(ctl put app/one 1)"
is put $'OK\napp/one\n1' "$(ctl put --prev-kv app/one 2)"
ctl put app/two 2 >/dev/null
ctl put app/three 3 >/dev/null
is get $'app/one\n2' "$(ctl get app/one)"
is "get a prefix" $'app/one\napp/three\napp/two' "$(ctl get --prefix --keys-only app/ | sed '/^$/d')"
is "get in order" $'3\n2' "$(ctl get --prefix app/ --order DESCEND --sort-by CREATE --limit 2 --print-value-only)"
[ $is_old = yes ] || has "get a count" '"Count" : 3' "$(ctl get --prefix --count-only app/ -w fields)"
is "get a range" $'app/one\n2' "$(ctl get app/one app/p)"
is "get from a key" $'app/two\n2' "$(ctl get --from-key app/two --limit 1)"
is "get as it was" 1 "$(ctl get app/one --print-value-only --rev=$(($(revision) - 3)))"
has "get as JSON" '"kvs":[{"key":"YXBwL29uZQ==","create_revision":' "$(ctl get app/one -w json)"
is del 1 "$(ctl del app/three)"
is "del and tell" $'1\napp/two\n2' "$(ctl del --prev-kv app/two)"
is "del again" 0 "$(ctl del app/two)"
refused "get what is not yet" "mvcc: required revision is a future revision" get app/one --rev=1000000

# Transactions.
is "txn that succeeds" $'SUCCESS\n\nOK\n\napp/one\n3' \
  "$(printf 'val("app/one") = "2"\nver("app/one") > "1"\n\nput app/one 3\nget app/one\n\nget nothing\n\n' | ctl txn)"
is "txn that fails" $'FAILURE\n\napp/one\n3' \
  "$(printf 'create("app/one") = "0"\n\nput app/one 9\n\nget app/one\n\n' | ctl txn)"
refused "txn that writes twice" "duplicate key given in txn request" txn < <(printf '\nput twice 1\nput twice 2\n\n\n')

# Watches, from a revision that is not yet, so that nothing is missed.
begin "$scratch/watch" watch --prefix --prev-kv --rev=$(($(revision) + 1)) w/
ctl put w/a 1 >/dev/null
ctl put w/a 2 >/dev/null
ctl del w/a >/dev/null
until [ "$(wc -l <"$scratch/watch")" -ge 11 ]; do sleep 0.05; done
kill $pid && wait $pid || true
is watch $'PUT\nw/a\n1\nPUT\nw/a\n1\nw/a\n2\nDELETE\nw/a\n2\nw/a' "$(cat "$scratch/watch")"
begin "$scratch/exec" watch w/b --rev=$(($(revision) + 1)) -- \
  sh -c 'echo "$ETCD_WATCH_EVENT_TYPE $ETCD_WATCH_KEY $ETCD_WATCH_VALUE"'
ctl put w/b 5 >/dev/null
until_says "watch with a command" "$scratch/exec" '"PUT" "w/b" "5"'
kill $pid && wait $pid || true

# Compaction.
old=$(revision)
is compaction "compacted revision $old" "$(ctl put app/one 4 >/dev/null; ctl compaction "$old")"
refused "get what is forgotten" "mvcc: required revision has been compacted" get app/one --rev=$((old - 1))
refused "compact again" "mvcc: required revision has been compacted" compaction "$old"
ctl watch app/one --rev=1 >"$scratch/old" 2>&1 || true
has "watch what is forgotten" "required revision has been compacted" "$(cat "$scratch/old")"

# Leases.
granted=$(ctl lease grant 600)
lease=$(echo "$granted" | sed -E 's/lease ([0-9a-f]+) .*/\1/')
is grant "lease $lease granted with TTL(600s)" "$granted"
ctl put --lease="$lease" leased/a 1 >/dev/null
ctl put --lease="$lease" leased/b 2 >/dev/null
is "keep-alive" "lease $lease keepalived with TTL(600)" "$(ctl lease keep-alive --once "$lease")"
live=$(ctl lease timetolive --keys "$lease")
has timetolive "lease $lease granted with TTL(600s), remaining(" "$live"
has timetolive leased/a "$live"
has timetolive leased/b "$live"
has "lease list" "$lease" "$(ctl lease list)"
is "revoke" "lease $lease revoked" "$(ctl lease revoke "$lease")"
is "keys of a revoked lease" "" "$(ctl get --prefix leased/)"
is "timetolive of a revoked lease" "lease $lease already expired" "$(ctl lease timetolive "$lease")"
refused "revoke again" "requested lease not found" lease revoke "$lease"
refused "put on a lease that is gone" "requested lease not found" put --lease="$lease" leased/a 1
is "lease list" "" "$(ctl lease list | grep -F "$lease" || true)"

# Locks: one at a time, given back when the command ends, with its exit code.
has lock "ETCD_LOCK_KEY=lock/" "$(ctl lock lock -- env)"
code=0
ctl lock lock -- sh -c 'exit 3' 2>/dev/null || code=$?
is "exit code of a command under a lock" $([ $is_old = yes ] && echo 1 || echo 3) "$code"
begin "$scratch/holder" lock lock
holder=$pid
until_says lock "$scratch/holder" lock/
begin "$scratch/waiter" lock lock -- echo "mine now"
waiter=$pid
until [ "$(ctl get --prefix --keys-only lock/ | grep -c /)" = 2 ]; do sleep 0.05; done
is "a waiter waits" "" "$(cat "$scratch/waiter")"
kill $holder
until_says "a waiter is next" "$scratch/waiter" "mine now"
wait $waiter

# Elections.
begin "$scratch/ann" elect election ann
ann=$pid
until_says elect "$scratch/ann" ann
begin "$scratch/listener" elect --listen election
listener=$pid
until_says "elect --listen" "$scratch/listener" ann
begin "$scratch/bob" elect election bob
bob=$pid
until [ "$(ctl get --prefix --keys-only election/ | grep -c /)" = 2 ]; do sleep 0.05; done
kill $ann
until_says "the next is elected" "$scratch/bob" bob
until_says "elect --listen hears of it" "$scratch/listener" bob
kill $bob
kill $listener

# The server.
has "member list" "started" "$(ctl member list)"
has "endpoint health" "is healthy: successfully committed proposal" "$(ctl endpoint health 2>&1)"
status=$(ctl endpoint status -w json)
for part in '"version":"3.5.' '"leader":' '"raftTerm":' '"raftAppliedIndex":' '"dbSize":'; do
  has "endpoint status" "$part" "$status"
done
has "alarm list" "" "$(ctl alarm list)"
has "endpoint hashkv" '"hash":' "$(ctl endpoint hashkv -w json)"
echo "etcdctl: done"

// client.js ENDPOINT: keys, leases, locks, elections and watches with the npm package etcd3. A watcher loses its connection,
// finds the server again, and has missed nothing.
'use strict';

const assert = require('node:assert');
const { once } = require('node:events');
const net = require('node:net');
const { Etcd3, EtcdLeaseInvalidError, EtcdLockFailedError } = require('etcd3');

const PATIENCE_MS = 60_000;

async function soon(what, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} never came`)), PATIENCE_MS);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

async function keys(client) {
  await client.put('js/a').value('1');
  await client.put('js/b').value('2');
  assert.strictEqual(await client.get('js/a').string(), '1');
  assert.strictEqual(await client.get('js/none').string(), null);
  assert.deepStrictEqual(await client.getAll().prefix('js/').strings(), { 'js/a': '1', 'js/b': '2' });
  assert.deepStrictEqual(await client.getAll().prefix('js/').sort('Create', 'Descend').limit(1).keys(), ['js/b']);
  assert.strictEqual(await client.getAll().prefix('js/').count(), 2);
  const yes = await client.if('js/a', 'Value', '==', '1').then(client.put('js/a').value('3')).commit();
  const no = await client.if('js/a', 'Create', '==', 0).then(client.put('js/a').value('9')).else(client.get('js/a')).commit();
  assert.deepStrictEqual([yes.succeeded, no.succeeded], [true, false]);
  assert.strictEqual(no.responses[0].response_range.kvs[0].value.toString(), '3');
  await client.stm().transact(async (tx) => tx.put('js/c').value(`${await tx.get('js/a')}${await tx.get('js/b')}`));
  assert.strictEqual(await client.get('js/c').string(), '32');
  assert.strictEqual((await client.delete().prefix('js/')).deleted, '3');
}

async function leases(client) {
  const lease = client.lease(600);
  await lease.put('leased/a').value('1');
  const id = await lease.grant();
  assert.strictEqual((await lease.keepaliveOnce()).TTL, '600');
  const { TTL: ttl, keys: attached } = await client.leaseClient.leaseTimeToLive({ ID: id, keys: true });
  assert.ok(Number(ttl) > 590 && attached[0].toString() === 'leased/a', `${ttl} ${attached}`);
  await lease.revoke();
  assert.strictEqual(await client.get('leased/a').string(), null);
  // The package is told that a lease is gone when it asks for more time.
  const lost = client.lease(600, { autoKeepAlive: false });
  const lostId = await lost.grant();
  await client.leaseClient.leaseRevoke({ ID: lostId });
  await assert.rejects(lost.keepaliveOnce(), EtcdLeaseInvalidError);
  const chosen = client.lease(30);
  const beat = once(chosen, 'keepaliveSucceeded');
  await chosen.grant();
  await soon('a beat by itself', beat);
  await chosen.revoke();
}

async function locks(client) {
  const first = client.lock('js').ttl(60);
  await first.acquire();
  await assert.rejects(client.lock('js').ttl(60).acquire(), EtcdLockFailedError);
  await first.release();
  assert.strictEqual(await client.lock('js').ttl(60).do(() => 'mine'), 'mine');
}

async function elections(client) {
  const election = client.election('js', 60);
  const ann = election.campaign('ann');
  await soon('an election', ann.wait());
  assert.strictEqual(await election.leader(), 'ann');
  const observer = await soon('an observer', election.observe());
  assert.strictEqual(observer.leader(), 'ann');
  const bob = election.campaign('bob');
  const elected = bob.wait();
  await bob.getCampaignKey();
  const proclaimed = change(observer, 'ann at noon');
  await ann.proclaim('ann at noon');
  await soon('what the leader says', proclaimed);
  const next = change(observer, 'bob');
  await ann.resign();
  await soon('the next leader', elected);
  await soon('news of the next leader', next);
  await bob.resign();
  await observer.cancel();
  assert.strictEqual(await election.leader(), undefined);
}

function change(observer, leader) {
  return new Promise((resolve) => {
    observer.on('change', (value) => value === leader && resolve());
  });
}

async function watches(endpoint) {
  const { proxy, cut, port } = await listen(new URL(endpoint));
  const away = new Etcd3({ hosts: `http://127.0.0.1:${port}` });
  const near = new Etcd3({ hosts: endpoint });
  const heard = [];
  const watcher = await away.watch().prefix('watched/').withPreviousKV().create();
  const until = (count) =>
    soon(`event ${count}`, new Promise((resolve) => {
      const look = () => heard.length >= count && resolve();
      watcher.on('data', look);
      look();
    }));
  watcher.on('put', (kv, before) => heard.push(`put ${kv.key} ${kv.value} was ${before ? before.value : ''}`));
  watcher.on('delete', (kv) => heard.push(`delete ${kv.key}`));
  await near.put('watched/a').value('1');
  await until(1);
  const lost = once(watcher, 'disconnected');
  const back = once(watcher, 'connected');
  cut();
  await soon('the loss of a connection', lost);
  await near.put('watched/a').value('2');
  await near.delete().key('watched/a');
  await soon('a new connection', back);
  await until(3);
  assert.deepStrictEqual(heard, ['put watched/a 1 was ', 'put watched/a 2 was 1', 'delete watched/a']);
  await watcher.cancel();
  away.close();
  near.close();
  proxy.close();
}

/** A way to the server that can be cut. */
async function listen({ hostname, port }) {
  const open = new Set();
  const proxy = net.createServer((near) => {
    const far = net.connect(Number(port), hostname);
    for (const [here, there] of [[near, far], [far, near]]) {
      open.add(here);
      here.on('error', () => there.destroy()).on('close', () => there.destroy());
      here.pipe(there);
    }
  });
  proxy.listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  const cut = () => open.forEach((socket) => socket.destroy());
  return { proxy, cut, port: proxy.address().port };
}

async function server(client) {
  const status = await client.maintenance.status();
  assert.match(status.version, /^3\.5\./);
  assert.notStrictEqual(status.leader, '0');
  assert.ok((await client.cluster.memberList({})).members.length >= 1);
}

async function main() {
  const endpoint = process.argv[2];
  const client = new Etcd3({ hosts: endpoint });
  for (const part of [keys, leases, locks, elections, server]) {
    await part(client);
    console.log(`${part.name}: done`);
  }
  client.close();
  await watches(endpoint);
  console.log('npm etcd3: done');
}

// The package keeps connections open after close(), and with them the process: now and then it would never end by itself.
main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);

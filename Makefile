# The two commands of the README are `cargo run --release -- serve` and `make test`; the rest is for whoever changes the
# code. Long runs have a slice in `make test` and their full length in `make soak`.

CARGO ?= cargo
TOOLS := $(CURDIR)/.tools
DENY := $(TOOLS)/bin/cargo-deny
DENY_VERSION := 0.20.2

.PHONY: run cluster test check fix soak bench sim audit fuzz-http

run:
	$(CARGO) run --release -- serve

# Three nodes on this machine.
cluster:
	$(CARGO) build --release
	@bash scripts/cluster target/release/tenure

# Formatting, lints, the pages of the crates, licences, banned crates. Nothing here changes a file of the project.
check: $(DENY)
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet
	$(DENY) --log-level error check bans licenses sources
	@bash scripts/laws

fix:
	$(CARGO) fmt --all
	$(CARGO) clippy --workspace --all-targets --fix --allow-dirty --allow-staged

ENVOY_VERSION := 1.40.0

# Everything but the simulator, then the simulator: its own tests and a slice of its seeds.
test:
	@bash scripts/need strace curl jq groff systemd-analyze=systemd haproxy nginx=nginx-light prometheus
	@bash scripts/fetch-deb $(TOOLS)/etcd etcd=etcd-server etcdctl=etcd-client
	@bash scripts/need-etcd-clients $(TOOLS)
	@bash scripts/need-envoy $(ENVOY_VERSION) $(TOOLS)/envoy
	$(CARGO) test --workspace --exclude tenure-sim
	$(MAKE) --no-print-directory fuzz-http CASES=2000
	$(MAKE) --no-print-directory sim SEEDS=100 CLUSTERS=10

# The simulator is deterministic only with tokio's seeded scheduler, which needs a flag of its own, and so a directory of
# its own for what is built with it.
SEEDS ?= 1000
CLUSTERS ?= 100
SIM_FLAGS := --profile sim --package tenure-sim --target-dir target/sim
sim:
	RUSTFLAGS="--cfg tokio_unstable" $(CARGO) test $(SIM_FLAGS)
	RUSTFLAGS="--cfg tokio_unstable" $(CARGO) run $(SIM_FLAGS) -- --seeds $(SEEDS)
	RUSTFLAGS="--cfg tokio_unstable" $(CARGO) run $(SIM_FLAGS) -- --nodes 3 --seeds $(CLUSTERS)
	RUSTFLAGS="--cfg tokio_unstable" $(CARGO) run $(SIM_FLAGS) -- --nodes 5 --seeds $(CLUSTERS)

# Asks the HTTP door what its own description allows, and what it does not. The binary is the one of the tests: a build of
# it alone would have other features, and compile most of its crates again.
CASES ?= 2000
SCHEMATHESIS_VERSION := 4.32.5
fuzz-http:
	@bash scripts/need-python schemathesis $(SCHEMATHESIS_VERSION) $(TOOLS)/python
	$(CARGO) test --workspace --exclude tenure-sim --no-run --quiet
	@bash scripts/fuzz-http $(CASES) $(TOOLS)

# The same tests at full length.
soak:
	@bash scripts/need strace curl jq groff systemd-analyze=systemd haproxy nginx=nginx-light prometheus
	@bash scripts/fetch-deb $(TOOLS)/etcd etcd=etcd-server etcdctl=etcd-client
	@bash scripts/need-etcd-clients $(TOOLS)
	@bash scripts/need-envoy $(ENVOY_VERSION) $(TOOLS)/envoy
	TENURE_CASES=20 TENURE_ROUNDS=50 $(CARGO) test --workspace --exclude tenure-sim
	$(MAKE) --no-print-directory fuzz-http CASES=50000
	$(MAKE) --no-print-directory sim SEEDS=20000 CLUSTERS=5000

# Needs the network: the list of known vulnerabilities.
audit: $(DENY)
	$(DENY) check advisories

# Beside etcd, if there is one: `make bench ETCD=path/to/etcd`.
ETCD ?= etcd
bench:
	$(CARGO) build --release --package tenure-cli --package tenure-bench
	target/release/tenure-bench --etcd $(ETCD)

$(DENY):
	@bash scripts/need-crate cargo-deny $(DENY_VERSION) $(TOOLS)

# The two commands of the README are `cargo run --release -- serve` and `make test`; the rest is for whoever changes the
# code. Long runs have a slice in `make test` and their full length in `make soak`.

CARGO ?= cargo
# Below, programs are started where they are built.
export CARGO_TARGET_DIR := $(CURDIR)/target
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

# All the tests, then slices of what can go on for hours. One that fails does not hide the next.
test:
	@bash scripts/need strace curl jq groff systemd-analyze=systemd haproxy nginx=nginx-light prometheus
	@bash scripts/fetch-deb $(TOOLS)/etcd etcd=etcd-server etcdctl=etcd-client
	@bash scripts/need-etcd-clients $(TOOLS)
	@bash scripts/need-envoy $(ENVOY_VERSION) $(TOOLS)/envoy
	$(CARGO) test --workspace --no-fail-fast
	$(MAKE) --no-print-directory fuzz-http CASES=2000
	$(MAKE) --no-print-directory sim SEEDS=100 CLUSTERS=10

# What runs below is the programs that the tests are built with: a build of one of them alone would have other features,
# and compile most of its crates again.
.PHONY: programs
programs:
	$(CARGO) test --workspace --no-run --quiet

# Whole nodes on simulated time and disks, by seed.
SEEDS ?= 1000
CLUSTERS ?= 100
sim: programs
	target/debug/tenure-sim --seeds $(SEEDS)
	target/debug/tenure-sim --nodes 3 --seeds $(CLUSTERS)
	target/debug/tenure-sim --nodes 5 --seeds $(CLUSTERS)

# Asks the HTTP door what its own description allows, and what it does not.
CASES ?= 2000
SCHEMATHESIS_VERSION := 4.32.5
fuzz-http: programs
	@bash scripts/need-python schemathesis $(SCHEMATHESIS_VERSION) $(TOOLS)/python
	@bash scripts/fuzz-http $(CASES) $(TOOLS)

# The same tests at full length.
soak:
	@bash scripts/need strace curl jq groff systemd-analyze=systemd haproxy nginx=nginx-light prometheus
	@bash scripts/fetch-deb $(TOOLS)/etcd etcd=etcd-server etcdctl=etcd-client
	@bash scripts/need-etcd-clients $(TOOLS)
	@bash scripts/need-envoy $(ENVOY_VERSION) $(TOOLS)/envoy
	TENURE_CASES=20 TENURE_ROUNDS=50 $(CARGO) test --workspace --no-fail-fast
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

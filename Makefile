# The two commands of the README are `cargo run --release -- serve` and `make test`; the rest is for people who change the code.
# Tests have three tiers: `make quick` needs nothing but cargo, `make test` adds real processes, real peers and slices of the
# simulator and of the fuzzer, `make soak` is the same at full length.

CARGO ?= cargo
export CARGO
# Below, programs are started where they are built.
export CARGO_TARGET_DIR := $(CURDIR)/target
TOOLS := $(CURDIR)/.tools
DENY := $(TOOLS)/bin/cargo-deny
DENY_VERSION := 0.20.2

.PHONY: run cluster quick test soak check doc fix bench sim audit sim-1 sim-3 sim-5 fuzz-http proto tools programs

run:
	$(CARGO) run --release -- serve

# Three nodes on this machine.
cluster:
	$(CARGO) build --release
	@bash scripts/cluster target/release/tenure

# Unit tests, scripts, the model, the log, and the APIs against a server in the process of the test.
QUICK := ledger protos api log node
quick:
	TENURE_CASES=0.1 bash scripts/run-tests --workspace --lib --bins $(addprefix --test ,$(QUICK))

# All the tests, then slices of what can go on for hours. One that fails does not hide the next.
test: tools programs
	TESTS_AGAIN=3 bash scripts/run-tests --workspace --lib --bins --tests
	$(CARGO) test --workspace --doc
	$(MAKE) --no-print-directory fuzz-http CASES=2000
	$(MAKE) --no-print-directory sim SEEDS=100 CLUSTERS=10

# The same tests at full length, with all of openraft's own checks of its state.
soak: CARGO += --config profile.dev.package.validit.debug-assertions=true
soak: tools programs
	TENURE_CASES=20 TENURE_ROUNDS=50 TEST_LIMIT=7200 bash scripts/run-tests --workspace --lib --bins --tests
	$(CARGO) test --workspace --doc
	$(MAKE) --no-print-directory fuzz-http CASES=50000
	$(MAKE) --no-print-directory sim SEEDS=20000 CLUSTERS=5000

# The programs that tests start or compare with, by package name.
ENVOY_VERSION := 1.40.0
tools:
	@bash scripts/need strace curl jq groff systemd-analyze=systemd haproxy nginx=nginx-light prometheus
	@bash scripts/fetch-deb $(TOOLS)/etcd etcd=etcd-server etcdctl=etcd-client
	@bash scripts/need-etcd-clients $(TOOLS)
	@bash scripts/need-envoy $(ENVOY_VERSION) $(TOOLS)/envoy
	@bash scripts/need-python schemathesis $(SCHEMATHESIS_VERSION) $(TOOLS)/python

# The server, the simulator and the examples as the tests start them: a build of one of them alone would have other features,
# and compile most of its crates again.
programs:
	$(CARGO) test --workspace --no-run

# Whole nodes on simulated time and disks, by seed. Each commit tries other seeds, FIRST=1 sets the first one; a failing run
# prints the command that replays it.
SEEDS ?= 1000
CLUSTERS ?= 100
FIRST ?= $(shell printf '%d' 0x$$(git rev-parse --short=8 HEAD 2>/dev/null || echo 1))
sim: programs
	@$(MAKE) --no-print-directory --output-sync --keep-going -j2 sim-5 sim-1 sim-3 SEEDS=$(SEEDS) CLUSTERS=$(CLUSTERS) FIRST=$(FIRST)
sim-1:
	target/debug/tenure-sim --first $(FIRST) --seeds $(SEEDS)
sim-3 sim-5: sim-%:
	target/debug/tenure-sim --first $(FIRST) --nodes $* --seeds $(CLUSTERS)

# Sends the HTTP API requests that its own description allows, and others that it does not.
CASES ?= 2000
SCHEMATHESIS_VERSION := 4.32.5
fuzz-http: programs
	@bash scripts/need-python schemathesis $(SCHEMATHESIS_VERSION) $(TOOLS)/python
	@bash scripts/fuzz-http $(CASES) $(TOOLS)

# Formatting, lints, each feature off (examples are named so that dependencies keep their features), licences, banned crates, known vulnerabilities, laws. Nothing here changes a file of the project.
check: $(DENY)
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy --workspace --bins --examples --no-default-features --features tenure-cli/otlp -- -D warnings
	$(CARGO) clippy --workspace --bins --examples --no-default-features --features tenure-cli/tui -- -D warnings
	$(DENY) --log-level error check bans licenses sources
	@bash scripts/advisories $(DENY)
	@bash scripts/laws

# The pages of the crates, without a broken link.
doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

fix:
	$(CARGO) fmt --all
	$(CARGO) clippy --workspace --all-targets --fix --allow-dirty --allow-staged

# Compiles the .proto files into the descriptors beside them; a test says when that is due.
proto:
	TENURE_WRITE_PROTOS=1 $(CARGO) test -p tenure-api --test protos

# All that the list of known vulnerabilities says. It has to be fetched.
audit: $(DENY)
	$(DENY) check advisories

# Beside etcd, if there is one: `make bench ETCD=path/to/etcd`.
ETCD ?= etcd
bench:
	$(CARGO) build --profile dist --package tenure-cli --package tenure-bench
	target/dist/tenure-bench --etcd $(ETCD)

$(DENY):
	@bash scripts/need-crate cargo-deny $(DENY_VERSION) $(TOOLS)

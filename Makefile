# The two commands of the README are `cargo run --release -- serve` and `make test`; the rest is for whoever changes the
# code. Long runs have a slice in `make test` and their full length in `make soak`.

CARGO ?= cargo
TOOLS := $(CURDIR)/.tools
DENY := $(TOOLS)/bin/cargo-deny
DENY_VERSION := 0.20.2

.PHONY: run test check fix soak bench sim audit

run:
	$(CARGO) run --release -- serve

# Formatting, lints, licences, banned crates. Nothing here changes a file of the project.
check: $(DENY)
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(DENY) --log-level error check bans licenses sources
	@bash scripts/laws

fix:
	$(CARGO) fmt --all
	$(CARGO) clippy --workspace --all-targets --fix --allow-dirty --allow-staged

# The fault tests run the release binary as users do, under strace where a slow or failing disk is the subject.
test:
	@bash scripts/need strace
	$(CARGO) build --release --package tenure-cli
	$(CARGO) test --workspace --quiet
	$(MAKE) --no-print-directory sim SEEDS=60

# The simulator is deterministic only with tokio's seeded scheduler, which needs a flag of its own and so a directory of
# its own for what is built with it.
SEEDS ?= 60
sim:
	RUSTFLAGS="--cfg tokio_unstable" $(CARGO) run --quiet --release --package tenure-sim --target-dir target/sim -- --seeds $(SEEDS)

soak:
	@bash scripts/need strace
	$(CARGO) build --release --package tenure-cli
	TENURE_CASES=20 TENURE_ROUNDS=50 $(CARGO) test --workspace --release
	$(MAKE) --no-print-directory sim SEEDS=5000

# Needs the network: the list of known vulnerabilities.
audit: $(DENY)
	$(DENY) check advisories

bench:
	$(CARGO) build --release --package tenure-cli --package tenure-bench
	target/release/tenure-bench

$(DENY):
	@bash scripts/need-crate cargo-deny $(DENY_VERSION) $(TOOLS)

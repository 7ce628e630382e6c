# `make demo` shows what glayers does; `make test` is what CI runs. Both set up .venv themselves.
SHELL := bash
PYTHON ?= python3
BIN := .venv/bin
# Folders too: a file that is gone makes its folder newer.
SOURCES := $(shell find src -name __pycache__ -prune -o -print)

.PHONY: demo test lint types tests format bench-metrics bench-fit bench-families table-g-layers table-paper-depths \
	table-methods reproduce clean

demo: .venv/package
	$(BIN)/glayers demo

test: lint types tests

lint: .venv/package
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/package
	$(BIN)/mypy

# The browser tests open the report in Chromium; where there is none, Debian's is installed.
.venv/browser:
	{ command -v chromium && command -v chromedriver; } >/dev/null || { apt-get update -qq && \
		apt-get install -y -qq --no-install-recommends chromium chromium-driver fonts-dejavu-core fonts-liberation >/dev/null; }
	mkdir -p .venv && touch $@

# Doctests run on the installed modules too: `--pyargs` finds the wheel in .venv, never the checkout.
tests: .venv/package .venv/browser
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal --cov=glayers --cov-report=term -p no:cacheprovider tests
	$(BIN)/pytest --doctest-modules -p no:cacheprovider --pyargs glayers

format: .venv/package
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench-metrics: .venv/bench
	$(BIN)/python benchmarks/bench_metrics.py

bench-fit: .venv/bench
	$(BIN)/python benchmarks/bench_fit.py

bench-families: .venv/bench
	$(BIN)/python benchmarks/bench_families.py
	$(BIN)/python benchmarks/bench_auto.py

# LOGITS=DIR with .npz files of logits_val, y_val, logits_test, y_test
table-g-layers: .venv/package
	$(BIN)/python experiments/g_layers_table.py --logits $(LOGITS)

# Every method beside the strongest peers; LOGITS=DIR as above
table-methods: .venv/bench
	$(BIN)/python experiments/methods_table.py --logits $(LOGITS)

# LOGITS=FILE, the published DenseNet 40 on CIFAR-10
table-paper-depths: .venv/package
	$(BIN)/python experiments/paper_depths.py --logits $(LOGITS)

# Every table of the paper; LOGITS=DIR with files of the NN_calibration collection by their names. Resumes.
reproduce: .venv/package
	OMP_NUM_THREADS=1 $(BIN)/python experiments/reproduce.py --logits $(LOGITS)

# Dependencies once, the package after every change to it. Built by the hatchling in .venv, so neither step needs the
# network once the requirements are met.
.venv/dependencies: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt 'hatchling>=1.25'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation '.[dev]'
	touch $@

.venv/package: .venv/dependencies $(SOURCES) README.md
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-index --no-build-isolation --force-reinstall .
	touch $@

.venv/bench: .venv/package
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation '.[bench]'
	touch $@

clean:
	rm -rf .venv dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage

# `make demo` shows what glayers does; `make test` is what CI runs. Both set up .venv themselves.
SHELL := bash
PYTHON ?= python3
BIN := .venv/bin
SOURCES := $(shell find src -type f -not -name '*.pyc')

.PHONY: demo test lint types tests format bench-metrics clean

demo: .venv/package
	$(BIN)/glayers demo

test: lint types tests

lint: .venv/package
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/package
	$(BIN)/mypy

# Doctests run on the installed modules too: `--pyargs` finds the wheel in .venv, never the checkout.
tests: .venv/package
	$(BIN)/pytest --cov=glayers --cov-report=term -p no:cacheprovider tests
	$(BIN)/pytest --doctest-modules -p no:cacheprovider --pyargs glayers

format: .venv/package
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench-metrics: .venv/bench
	$(BIN)/python benchmarks/bench_metrics.py

# Dependencies once, the package after every change to it: the second step needs no network.
.venv/dependencies: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt '.[dev]'
	touch $@

.venv/package: .venv/dependencies $(SOURCES) README.md
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-index --no-build-isolation --force-reinstall .
	touch $@

.venv/bench: .venv/package
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt '.[bench]'
	touch $@

clean:
	rm -rf .venv dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage

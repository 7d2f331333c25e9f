# Two commands do everything on a fresh machine: `make demo` and `make test`.
# PYTHON names the interpreter to make .venv with (3.11 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_TEST := $(VENV)/.ready-test
RUN := runs/demo
WORKERS ?= 2
SHARE ?= 1

# Many tests start Python, which imports torch: the bytecode is kept, in .venv, also where the environment forbids it
# beside the sources.
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/pycache
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test check types scripts test-hard bench docs clean

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(READY): pyproject.toml requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c requirements.txt -e .
	touch $@

$(READY_TEST): pyproject.toml requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c requirements.txt -e '.[test]'
	@sh tests/chromium.sh
	touch $(READY) $@

# Train a translator on the built-in phrasebook, test it on unseen sentences, use it.
demo: $(READY)
	@$(BIN)/python recipes/demo.py $(RUN)

# All checks and tests. Threads that wait sleep: those of one worker do not keep a core from the other.
test: $(READY_TEST) check
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -m "not slow" -n $(WORKERS) --dist loadfile \
	  --no-loadscope-reorder

# What takes one core each is done side by side: the types of Python, and the page's scripts.
check: $(READY_TEST)
	$(BIN)/ruff check src tests bench qa recipes docs/*.py
	$(BIN)/ruff format --check src tests bench qa recipes docs/*.py
	@$(MAKE) --no-print-directory -j 2 types scripts

types: $(READY_TEST)
	$(BIN)/mypy

scripts:
	sh tests/js/run.sh check
	sh tests/js/run.sh test

# The slow tests and all release trials (qa/README.md), about an hour. SHARE=0.05 is a sample of the trials.
test-hard: $(READY_TEST)
	$(BIN)/python -m pytest -m slow
	test -d $(RUN) || $(BIN)/python recipes/demo.py $(RUN)
	OMP_NUM_THREADS=1 $(BIN)/python qa --share $(SHARE) --jobs $(WORKERS) -m $(RUN)

# Races against other programs, with random weights; first the limits of this machine (bench/README.md).
bench: $(READY_TEST)
	$(BIN)/python -m bench.race train --preset transformer-tiny --preset transformer-base --against transformers --against torch.nn
	$(BIN)/python -m bench.race translate
	$(BIN)/python -m bench.race generate

# The site, into build/site: pages that follow from the code are written again, a link that leads nowhere is an error.
docs: $(READY_TEST)
	$(BIN)/python docs/make.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) tests/js/node_modules runs build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

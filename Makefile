# Everything a fresh machine needs: Python 3.11+, pip and make.
PYTHON ?= python3
BIN := .venv/bin
export OPENBLAS_NUM_THREADS ?= 1
export OMP_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1

.PHONY: demo test check docs bench browser fuzz kills clean

# Byte code is made of what is used, when it is used: a fifth less to install.
.venv/core: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -e .
	touch $@

.venv/dev: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[encoders,dev]"
	touch $@

demo: .venv/core  ## install and run the main job on the embedded data
	$(BIN)/scalecal demo --out runs/demo

test: .venv/dev check  ## install the development tools and run every check

check:  ## ruff, mypy, import-linter, pytest (doctests and README included)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest

docs: .venv/dev  ## build the documentation site into docs/_build/html; warnings are errors
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

browser:  ## Debian's Chromium, for the tests of the report (needs the rights to install)
	test -x /usr/bin/chromium || (apt-get update -qq && apt-get install -y -qq chromium)

fuzz: .venv/dev  ## N more cases of hostile input on J processes; stopped, it goes on where it was
	$(BIN)/python -m tests.fuzz -n $(or $(N),10000) -j $(or $(J),1)

bench: .venv/dev  ## speed against named peers, one process, one BLAS thread
	$(BIN)/python -m benchmarks

kills: .venv/dev  ## kill commands N times at random moments; their results must not change
	$(BIN)/python -m scripts.kills $(or $(N),100)

clean:
	rm -rf .venv runs build dist docs/_build docs/auto_gallery .mypy_cache .ruff_cache .pytest_cache

# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# One thread a process: two test processes share the cores, and CPU results stay the same bit for bit.
TEST_ENV := OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1

.PHONY: demo test test-slow check bench docs format constraints clean

demo: $(INSTALLED)  ## see a model become what somebody likes (a minute or two)
	@$(BIN)/clawback demo

test: $(INSTALLED)  ## the default tests
	$(TEST_ENV) $(BIN)/pytest -m "not slow" -n 2

test-slow: $(INSTALLED)  ## the long ones: real agents, kill -9, whole trainings
	$(TEST_ENV) $(BIN)/pytest -m slow

check: $(INSTALLED)  ## lint, format, types, import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/reference.py --check

bench: $(INSTALLED)  ## every figure in docs/benchmarks (hours on two cores)
	$(BIN)/python -m benchmarks

docs: $(INSTALLED)  ## write docs/cli.md from the commands themselves
	$(BIN)/python docs/reference.py

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

constraints: $(INSTALLED)  ## renew constraints.txt from what is installed
	{ sed -n 1p constraints.txt; $(BIN)/pip freeze --exclude-editable | sed 's/+cpu//'; } > constraints.new
	mv constraints.new constraints.txt

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis bench-results

$(INSTALLED): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (once; a few minutes) …"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Clawback needs Python 3.11 or newer; name one: make PYTHON=python3.12 …")'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

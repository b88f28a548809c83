# make demo | test | lint | coverage | bench | report | clean
# Everything is installed into .venv, which reruns keep.
#   PYTHON=python3.12   which Python makes .venv (3.10 or newer)
#   TL_TOPK_CUDA=AUTO   build the CUDA kernels: AUTO (if nvcc is found), ON or OFF
#   TL_TOPK_CUDA_ARCHS  for which GPUs; here only for this machine's, or 90a where there is none
#   TEST_PROCESSES      of `make test`: one a core, but where a GPU is, for some tests there take all
#                       of its memory or keep all of it busy: none but make's own
PYTHON ?= python3
TEST_PROCESSES ?= $(if $(shell command -v nvidia-smi),0,auto)
BIN := .venv/bin

export TL_TOPK_CUDA ?= AUTO
TL_TOPK_CUDA_ARCHS ?= $(or $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader \
  2>/dev/null | sed -n 's/^8\..*/80/p; s/^9\..*/90a/p; s/^10\..*/100f/p; s/^12\..*/120f/p' \
  | sort -u | paste -sd ';'),90a)
export TL_TOPK_CUDA_ARCHS

NATIVE := $(shell find csrc python_bindings bench/native tests/native tests/ffi_cpp tests/emulated -type f \
  \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) 2>/dev/null)

.PHONY: demo test lint coverage bench report clean FORCE

demo: .venv/package
	$(BIN)/tl-topk demo

test: lint
	$(BIN)/python -m pytest -q -n $(TEST_PROCESSES) --maxprocesses 8 --dist loadscope

lint: .venv/package
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $(NATIVE)

# Which lines the tests run: at least 95 % of Python's and 90 % of C++'s that a CPU can run.
coverage: .venv/package
	$(BIN)/pip install --quiet 'coverage>=7.6' 'gcovr>=8'
	$(BIN)/python -m bench.coverage

bench: .venv/package
	$(BIN)/python -m bench run short

report: .venv/package
	$(BIN)/python -m bench report

clean:
	rm -rf .venv build

# The package, editable: changed Python needs no reinstall, changed C++ recompiles what changed. Its
# build folder is its own, for `pip install .` leaves paths in the other that are gone afterwards.
.venv/package: .venv/tools .venv/settings CMakeLists.txt \
  $(filter csrc/% python_bindings/%,$(NATIVE))
	@echo 'Building tl_topk: pip installs what it needs, then CMake compiles the C++ code and, where'
	@echo 'nvcc is found, the CUDA kernels. A minute or two; with nvcc and two cores several minutes,'
	@echo 'in which nothing is printed.'
	$(BIN)/pip install --quiet --no-build-isolation -C build-dir=build/editable \
	  -e '.[test,lint,bench,tilelang]'
	@$(BIN)/python -c 'from tl_topk import _ffi; archs = _ffi.build_info()["architectures"]; \
	  print("tl_topk is built", f"with CUDA for {archs}" if archs else \
	  "without CUDA, for the CPU only: no nvcc was found, or TL_TOPK_CUDA=OFF")'
	touch $@

# Changes when the settings do, or when nvcc appears.
SETTINGS := $(TL_TOPK_CUDA) $(TL_TOPK_CUDA_ARCHS) $(shell command -v nvcc)
.venv/settings: .venv/tools FORCE
	@echo '$(SETTINGS)' | cmp -s - $@ || echo '$(SETTINGS)' > $@
FORCE:

.venv/tools: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo 'tl_topk needs Python 3.10 or newer: make PYTHON=python3.12 ...'; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo '$(PYTHON) cannot make virtual environments: apt install python3-venv'; exit 1; }
	@echo 'Making .venv: torch and the build tools.'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet torch==2.13.0 \
	  scikit-build-core apache-tvm-ffi==0.1.12 cmake ninja  # as [build-system] in pyproject.toml
	touch $@

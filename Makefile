# Thin: every target is one script or two commands. `make` alone prints the list.

DELTANET := build/release/deltanet

.PHONY: help
help:  ## Print this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name text; do \
	  printf '  make %-12s %s\n' "$$name" "$$text"; done

.PHONY: quickstart
quickstart: build  ## Set up, build, see what preconditioning does, and when; then a model of the docs
	$(DELTANET) quickstart

.PHONY: setup
setup:  ## Install the missing system packages of packages.txt
	@scripts/setup.sh

.PHONY: build
build:  ## Build build/release/deltanet and the Python module in .venv
	@scripts/build.sh

.PHONY: test
test:  ## Run all tests: C++ release, C++ under ASan and UBSan, Python
	@scripts/test.sh

.PHONY: tsan
tsan:  ## Run the unit tests under ThreadSanitizer
	@scripts/tsan.sh

.PHONY: bench
bench: build  ## Run the full kernel benchmark, with peers that pip can install
	@scripts/bench.sh

.PHONY: format
format:  ## Format the C++ files in place
	@scripts/lint.sh --fix

.PHONY: lint
lint:  ## Check spelling and formatting, run clang-tidy
	@scripts/lint.sh

.PHONY: clean
clean:  ## Remove build/ and .venv/
	rm -rf build .venv

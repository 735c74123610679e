#!/usr/bin/env bash
# All tests: the release build, the Python module, and the unit tests under AddressSanitizer and UBSan. The sanitizer
# build treats warnings as errors.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh

scripts/build.sh --all
run_ctest release

if python_ready; then
  .venv/bin/python -m pytest -q tests/python
  python_result="passed"
else
  python_result="SKIPPED (.venv could not be made; the reason is at the top)"
fi

configure asan
compile asan
run_ctest asan --label-regex unit

echo
echo "release tests    passed"
echo "python tests     $python_result"
echo "asan+ubsan tests passed"

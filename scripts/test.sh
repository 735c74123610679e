#!/usr/bin/env bash
# All tests: spelling and formatting (where the tools are installed), the release build, the Python module, and the unit
# tests under AddressSanitizer and UBSan. The sanitizer build treats warnings as errors.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh

scripts/lint.sh --quick
scripts/build.sh --all
run_ctest release

if python_ready; then
  python_result="passed"
  # Without these packages the tests of what is made for PyTorch are skipped; with CI=true that is an error.
  if ! install_once python/requirements-test.txt build/.stamps/test-packages.log; then
    [[ "${CI:-}" == true ]] && exit 1
    python_result="passed, those that need PyTorch SKIPPED"
  fi
  HF_HUB_OFFLINE=1 .venv/bin/python -m pytest -q tests/python
else
  python_result="SKIPPED (.venv could not be made; the reason is at the top)"
fi

configure asan
compile asan
run_ctest asan --label-regex unit

echo
echo "random tests     RC_PARAMS=\"${RC_PARAMS-seed=1}\" (other cases: RC_PARAMS=\"max_success=2000 seed=7\" make test)"
echo "release tests    passed"
echo "python tests     $python_result"
echo "asan+ubsan tests passed"

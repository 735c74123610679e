#!/usr/bin/env bash
# The unit tests under ThreadSanitizer, with std::thread instead of OpenMP.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh

scripts/setup.sh
require_cmake
configure tsan
compile tsan
run_ctest tsan --label-regex unit

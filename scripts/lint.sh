#!/usr/bin/env bash
# Formatting and clang-tidy over the C++ files. `scripts/lint.sh --fix` formats instead of checking.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh

need() {
  command -v "$1" >/dev/null && return
  echo "lint: $1 is not installed (Debian package $1)" >&2
  exit 1
}
mapfile -t files < <(find include src tests fuzz python examples -name '*.h' -o -name '*.cc' | sort)

need clang-format
if [[ "${1:-}" == --fix ]]; then
  clang-format -i "${files[@]}"
  exit 0
fi
clang-format --dry-run -Werror "${files[@]}"

need clang-tidy
configure dev
mapfile -t sources < <(printf '%s\n' "${files[@]}" | grep -E '^src/.*\.cc$')
printf '%s\n' "${sources[@]}" | xargs -P "$jobs" -n 1 \
  clang-tidy -p build/dev --quiet --extra-arg=-Wno-unknown-warning-option --warnings-as-errors='*'

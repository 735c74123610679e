#!/usr/bin/env bash
# Spelling and formatting of all files, then clang-tidy over the C++ sources.
#
#   scripts/lint.sh          all of it; what is not installed is an error
#   scripts/lint.sh --quick  spelling and formatting, seconds; what is not installed is said and left out
#   scripts/lint.sh --fix    formats the C++ files instead of checking them
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh

mode=${1:-all}

# Versions differ in what they format and which words they know, so the files are those of one of them: Debian 12's.
clang_format_version=14
codespell_version=2.2

# has PROGRAM: status 1 where it is left out
has() {
  command -v "$1" >/dev/null && return
  echo "lint: $1 is not installed (Debian package $1)" >&2
  if [[ "$mode" == --quick ]]; then return 1; fi
  exit 1
}

# has_version PROGRAM VERSION: status 1 where it is left out
has_version() {
  has "$1" || return
  local version
  version=$("$1" --version)
  [[ " $version" == *" $2."* ]] && return
  echo "lint: the files are those of $1 $2; here is: $version" >&2
  if [[ "$mode" == --quick ]]; then return 1; fi
  exit 1
}

mapfile -t files < <(find include src tests fuzz python examples -name '*.h' -o -name '*.cc' | sort)

if [[ "$mode" == --fix ]]; then
  has_version clang-format $clang_format_version
  clang-format -i "${files[@]}"
  exit 0
fi
if has_version codespell $codespell_version; then codespell; fi  # .codespellrc
if has_version clang-format $clang_format_version; then clang-format --dry-run -Werror "${files[@]}"; fi
if [[ "$mode" == --quick ]]; then exit 0; fi

has clang-tidy
configure dev
mapfile -t sources < <(printf '%s\n' "${files[@]}" | grep -E '^src/.*\.cc$')
# clang has no OpenMP of its own where GCC is the compiler: the files are read as they are without.
printf '%s\n' "${sources[@]}" | xargs -P "$jobs" -n 1 \
  clang-tidy -p build/dev --quiet --extra-arg=-Wno-unknown-warning-option --extra-arg=-UDELTANET_OPENMP \
    --warnings-as-errors='*'

#!/usr/bin/env bash
# Makes .venv with python/requirements-dev.txt in it. Does nothing, quickly, when it is up to date.
#
# Exit status 0: .venv is ready. 3: the Python side is skipped, and why was said. With CI=true nothing is ever skipped:
# the same problem is an error (status 1).
#
#   PYTHON=...   the interpreter to start from; otherwise python3 if it has venv and headers, else /usr/bin/python3
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh

requirements=python/requirements-dev.txt
stamp=.venv/requirements.stamp
if [[ -x .venv/bin/python ]] && cmp -s "$requirements" "$stamp" && .venv/bin/python -c '' 2>/dev/null; then exit 0; fi

give_up() {
  echo "python: $1" >&2
  if [[ "${CI:-}" == true ]]; then
    echo "python: CI=true, so this is an error" >&2
    exit 1
  fi
  echo "python: the Python module and its tests are SKIPPED; the C++ side does not need them" >&2
  exit 3
}

usable() {
  "$1" - 2>/dev/null <<'PYTHON'
import ensurepip, os, sys, sysconfig, venv
assert sys.version_info >= (3, 10)
assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
PYTHON
}

python=
for candidate in "${PYTHON:-python3}" /usr/bin/python3; do
  if usable "$candidate"; then
    python=$candidate
    break
  fi
done
[[ -n "$python" ]] || give_up "no Python >= 3.10 with venv and headers was found (python3, python3-venv, python3-dev)"

echo "python: making .venv with $("$python" --version)"
log=build/.stamps/venv.log
mkdir -p "$(dirname "$log")"
"$python" -m venv --clear .venv >"$log" 2>&1 || give_up ".venv could not be made: $(tail -n 1 "$log")"
if ! pip_install --requirement "$requirements" >"$log" 2>&1; then
  reason=$(grep -i '^error' "$log" | head -n 1 || true)
  give_up "the package index could not be reached or lacks a package: ${reason:-$(tail -n 1 "$log")} (see $log)"
fi
cp "$requirements" "$stamp"

# Functions shared by the scripts beside this file; to be sourced from the root of the project.

jobs=${JOBS:-$(nproc 2>/dev/null || echo 2)}

require_cmake() {
  local version
  version=$(cmake --version 2>/dev/null | sed -n 's/^cmake version \([0-9.]*\).*/\1/p')
  if [[ -z "$version" || "$(printf '%s\n' 3.25 "$version" | sort -V | head -n 1)" != 3.25 ]]; then
    echo "build: CMake 3.25 or newer is needed, but ${version:-none} was found" >&2
    return 1
  fi
}

# Status 0 when .venv is ready, 1 when the Python side is skipped; ends the script on an error (CI=true).
with_python() {
  local status=0
  scripts/venv.sh || status=$?
  case $status in
    0) return 0 ;;
    3) return 1 ;;
    *) exit "$status" ;;
  esac
}

# Is .venv up to date? Unlike with_python this tries nothing.
python_ready() {
  cmp -s python/requirements-dev.txt .venv/requirements.stamp
}

# pip_install ARGUMENTS...: into .venv, giving up soon where the package index cannot be reached
pip_install() {
  .venv/bin/python -m pip install --disable-pip-version-check --no-input --progress-bar off --timeout 20 --retries 2 "$@"
}

# install_once REQUIREMENTS LOG: adds the packages of that file to .venv, unless they are there already. The first one is
# installed alone, so that none of the others chooses its version.
install_once() {
  local requirements=$1 log=$2
  local stamp=.venv/${requirements//\//-}.stamp
  if cmp -s "$requirements" "$stamp"; then return 0; fi
  mkdir -p "$(dirname "$log")"
  echo "python: installing $requirements"
  if ! { pip_install "$(grep -m 1 '^[a-z]' "$requirements")" && pip_install --requirement "$requirements"; } >"$log" 2>&1; then
    echo "python: $requirements could not be installed (see $log)" >&2
    return 1
  fi
  cp "$requirements" "$stamp"
}

# configure PRESET [options...]
configure() {
  local preset=$1
  shift
  mkdir -p "build/$preset"
  local log="build/$preset/configure.log"
  if ! cmake --preset "$preset" "$@" >"$log" 2>&1; then
    cat "$log" >&2
    return 1
  fi
}

# compile PRESET [targets...]
compile() {
  local preset=$1
  shift
  echo "build: ${*:-everything} ($preset)"
  cmake --build --preset "$preset" --parallel "$jobs" ${1:+--target "$@"}
}

run_ctest() {
  ctest --preset "$1" --parallel "$jobs" "${@:2}"
}

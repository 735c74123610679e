#!/usr/bin/env bash
# Installs the packages of packages.txt that are missing. Does nothing, quickly, when all are there.
#
#   SKIP_PACKAGES=1   leave the system alone (CMake then fetches what it does not find, where it can)
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ "${SKIP_PACKAGES:-}" == 1 ]]; then
  echo "setup: SKIP_PACKAGES=1, system packages are left as they are"
  exit 0
fi
if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "setup: this is not Debian or Ubuntu, so nothing is installed; the build needs what packages.txt lists"
  exit 0
fi

stamp=build/.stamps/packages
if [[ -e "$stamp" && "$stamp" -nt packages.txt ]]; then exit 0; fi

installed() { [[ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]; }

missing=()
while read -r package; do
  installed "$package" || missing+=("$package")
done < <(sed 's/#.*//' packages.txt | tr -s '[:space:]' '\n' | grep .)

if (( ${#missing[@]} )); then
  echo "setup: missing packages: ${missing[*]}"
  if (( EUID == 0 )); then
    sudo=()
  elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
    sudo=(sudo)
  else
    cat >&2 <<MESSAGE
setup: these packages are missing and this user may not install them (not root, no usable sudo):
         ${missing[*]}
       Ask an administrator to run:
         apt-get update && apt-get install --no-install-recommends ${missing[*]}
       or go on without them, where the build can fetch or do without: SKIP_PACKAGES=1 make ...
MESSAGE
    exit 1
  fi
  "${sudo[@]}" apt-get update -q || echo "setup: the package lists could not be refreshed; trying with the old ones" >&2

  # What this release of the system does not carry is left to CMake, which fetches it.
  available=()
  for package in "${missing[@]}"; do
    if apt-cache show "$package" >/dev/null 2>&1; then
      available+=("$package")
    else
      echo "setup: $package does not exist on this system; left to CMake to fetch"
    fi
  done
  if (( ${#available[@]} )); then
    if ! "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${available[@]}"
    then
      echo "setup: apt-get could not install: ${available[*]}" >&2
      exit 1
    fi
  fi
fi

mkdir -p "$(dirname "$stamp")"
touch "$stamp"

#!/usr/bin/env bash
# Kernels and models, the plot, and the peers that pip can install. Numbers are kept in build/bench/.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh

out=build/bench
mkdir -p "$out"
build/release/deltanet bench kernels --json "$out/kernels.json"
build/release/deltanet bench model --json "$out/model.json" || echo "bench: a promise about models was missed"

if ! python_ready; then
  echo "bench: no .venv, so there is no plot and there are no peers"
  exit 0
fi
.venv/bin/python -m deltanet.plots kernels "$out/kernels.json"

stamp=.venv/bench.stamp
if ! cmp -s bench/requirements.txt "$stamp"; then
  echo "bench: installing the peers (bench/requirements.txt)"
  if ! pip_install bench/requirements.txt >"$out/pip.log" 2>&1; then
    echo "bench: the peers could not be installed (see $out/pip.log)" >&2
    [[ "${CI:-}" == true ]] && exit 1
    exit 0
  fi
  cp bench/requirements.txt "$stamp"
fi
status=0
.venv/bin/python bench/peers.py --json "$out/peers.json" || status=1
.venv/bin/python bench/train_peers.py --json "$out/train_peers.json" || status=1
exit $status

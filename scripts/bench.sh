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

if ! install_once bench/requirements.txt "$out/pip.log"; then
  [[ "${CI:-}" == true ]] && exit 1
  exit 0
fi
status=0
.venv/bin/python bench/peers.py --json "$out/peers.json" || status=1
.venv/bin/python bench/ops_peers.py --json "$out/ops_peers.json" || status=1
.venv/bin/python bench/train_peers.py --json "$out/train_peers.json" || status=1
exit $status

#!/usr/bin/env bash
# Builds build/release/deltanet and, where Python can be set up, makes `import deltanet` work in .venv.
# With --all also the tests.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh

scripts/setup.sh
require_cmake

targets=(deltanet_cli)
if with_python; then
  configure release -DDELTANET_BUILD_PYTHON=ON "-DPython_EXECUTABLE=$PWD/.venv/bin/python"
  targets+=(deltanet_python deltanet_python_stub)
else
  configure release -DDELTANET_BUILD_PYTHON=OFF
fi
if [[ "${1:-}" == --all ]]; then targets=(); fi
compile release "${targets[@]}"

if python_ready; then
  # A path file instead of an installation: changed Python files and a rebuilt module count at once.
  site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
  echo "$PWD/build/release/python" > "$site/deltanet.pth"
  .venv/bin/python -c 'import deltanet'
fi

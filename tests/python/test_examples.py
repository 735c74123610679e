"""The scripts of examples/ run with small settings and say what they promise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"

# Script: the module it needs, arguments, what it prints.
EXAMPLES = {
    "drop_in_operator.py": ("torch", ["--length", "96", "--heads", "2", "--dim", "32"], "times as fast"),
    "evaluate.py": ("lm_eval", ["--steps", "2", "--out", "tasks"], "capitals_written"),
    "plot_training.py": ("matplotlib", ["--steps", "3", "--out", "runs"], "wrote runs/losses.png"),
}
ELSEWHERE = {"accelerate_qwen3_next.py", "train_hf.py"}  # test_torch_examples.py


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name, tmp_path):
    module, arguments, promised = EXAMPLES[name]
    pytest.importorskip(module)
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, FOLDER / name, *arguments],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-3000:]
    assert promised in run.stdout


def test_every_example_is_tested_and_listed():
    names = {path.name for path in FOLDER.glob("*.py")}
    text = (FOLDER / "README.md").read_text()
    assert names == EXAMPLES.keys() | ELSEWHERE
    assert [name for name in sorted(names) if f"[{name}]({name})" not in text] == []

"""The scripts of examples/ run with small settings and say what they promise."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from test_cli import PROGRAM

FOLDER = Path(__file__).parents[2] / "examples"

# Script: the module it needs, arguments, what it prints.
EXAMPLES = {
    "drop_in_operator.py": ("torch", ["--length", "96", "--heads", "2", "--dim", "32"], "times as fast"),
    "evaluate_model.py": ("lm_eval", ["--steps", "2", "--out", "tasks"], "capitals_written"),
    "own_preconditioner.py": ("torch", ["--steps", "5", "--tokens", "32"], "Kronecker"),
    "plot_training.py": ("matplotlib", ["--steps", "3", "--out", "runs"], "wrote runs/losses.png"),
    "track_state.py": ("deltanet", ["--steps", "2", "--samples", "4", "--lengths", "8", "--out", "models"], "beta-below-2"),
}
WITH_NUMBERS = {"accelerate_qwen3_next.py", "train_hf.py"}  # functions of their own below


def run(name, arguments, folder):
    paths = {"PYTHONPATH": os.pathsep.join(sys.path), "DELTANET_PROGRAM": str(PROGRAM.absolute())}
    environment = os.environ | {"HF_HUB_OFFLINE": "1"} | paths
    process = subprocess.run(
        [sys.executable, FOLDER / name, *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr[-3000:]
    return process.stdout


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name, tmp_path):
    module, arguments, promised = EXAMPLES[name]
    pytest.importorskip(module)
    assert promised in run(name, arguments, tmp_path)


def test_train_hf(tmp_path):
    pytest.importorskip("transformers")
    import deltanet

    small = ["--steps", "5", "--length", "32", "--batch", "2", "--hidden-size", "64", "--layers", "1", "--out", "model"]
    out = run("train_hf.py", [FOLDER.parent / "README.md", *small], tmp_path)
    losses = [float(loss) for loss in re.findall(r"'loss': '?([\d.]+)", out)]
    assert len(losses) == 5 and losses[-1] < losses[0]
    assert deltanet.Model(tmp_path / "model").config["model_type"] == "precond_gated_deltanet"


def test_accelerate_qwen3_next(tmp_path):
    pytest.importorskip("transformers")
    small = ["--hidden-size", "128", "--tokens", "70", "--new-tokens", "3", "--repeats", "1"]
    out = run("accelerate_qwen3_next.py", small, tmp_path)
    differences = [float(value) for value in re.findall(r"(\S+) of the norm", out)]
    assert len(differences) == 2 and max(differences) < 1e-4
    assert "0 tokens" in out


def test_every_example_is_tested_and_listed():
    names = {path.name for path in FOLDER.glob("*.py")}
    text = (FOLDER / "README.md").read_text()
    assert names == EXAMPLES.keys() | WITH_NUMBERS
    assert [name for name in sorted(names) if f"[{name}]({name})" not in text] == []

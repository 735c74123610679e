"""The example scripts run, with small settings."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

ROOT = Path(__file__).parents[2]


def run(name, *arguments):
    command = [sys.executable, ROOT / "examples" / name, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_train_hf(tmp_path):
    import deltanet

    small = ("--steps", 5, "--length", 32, "--batch", 2, "--hidden-size", 64, "--layers", 1)
    out = run("train_hf.py", ROOT / "README.md", *small, "--out", tmp_path)
    losses = [float(loss) for loss in re.findall(r"'loss': '?([\d.]+)", out)]
    assert len(losses) == 5 and losses[-1] < losses[0]
    assert deltanet.Model(tmp_path).config["model_type"] == "precond_gated_deltanet"


def test_accelerate_qwen3_next():
    out = run("accelerate_qwen3_next.py", "--hidden-size", 128, "--tokens", 70, "--new-tokens", 3, "--repeats", 1)
    differences = [float(value) for value in re.findall(r"(\S+) of the norm", out)]
    assert len(differences) == 2 and max(differences) < 1e-4
    assert "0 tokens" in out

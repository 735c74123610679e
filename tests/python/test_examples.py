"""Every script of examples/ runs with small settings and says what it promises."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"

# Script: the modules it needs, arguments, what it prints.
EXAMPLES = {
    "accelerate_qwen3_next.py": (
        ["torch", "transformers"],
        ["--hidden-size", "64", "--tokens", "64", "--new-tokens", "2", "--repeats", "1"],
        "accelerated",
    ),
    "drop_in_operator.py": (["torch"], ["--length", "96", "--heads", "2", "--dim", "32"], "times as fast"),
    "evaluate.py": (["lm_eval"], ["--steps", "2", "--out", "tasks"], "capitals_written"),
    "plot_training.py": (["matplotlib"], ["--steps", "3", "--out", "runs"], "wrote runs/losses.png"),
    "train_hf.py": (
        ["torch", "transformers", "accelerate"],
        [FOLDER / "README.md", "--steps", "2", "--length", "64", "--hidden-size", "64", "--out", "model"],
        "saved in model",
    ),
}


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.py")))
def test_example(name, tmp_path):
    modules, arguments, promised = EXAMPLES[name]
    for module in modules:
        pytest.importorskip(module)
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, FOLDER / name, *arguments],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-3000:]
    assert promised in run.stdout


def test_the_readme_lists_every_example():
    text = (FOLDER / "README.md").read_text()
    assert [path.name for path in FOLDER.glob("*.py") if f"[{path.name}]({path.name})" not in text] == []

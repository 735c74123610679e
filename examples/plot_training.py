"""Trains small models side by side from Python and plots their losses.

    python examples/plot_training.py [--text FILE] [--rows gdn,pgdn] [--steps 150] [--out runs]

Each run writes RUN/metrics.jsonl in the form of `deltanet train`, so that `python -m deltanet.plots run` and this
script draw the same picture from it.
"""

import argparse
import json
from pathlib import Path

import numpy as np

import deltanet
from deltanet.plots import load_run, plot_runs

BATCH, LENGTH = 8, 128


def config_of(row):
    return {
        "model_type": "dgps", "row": row, "hidden_size": 128, "num_hidden_layers": 2, "num_heads": 2, "head_dim": 64,
        "expand_v": 1.0, "intermediate_size": 256, "vocab_size": 256,
    }  # fmt: skip


def batches(text, steps, seed=0):
    """The same pieces of text for every model."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        begins = rng.integers(0, len(text) - LENGTH, BATCH)
        yield np.stack([text[begin : begin + LENGTH] for begin in begins])


def train(row, text, steps, folder, lr=3e-3, warmup=20):
    model = deltanet.Model.from_config(config_of(row), seed=0)
    held_out = text[-(len(text) // 10) :][: 16 * LENGTH]
    held_out = held_out[: len(held_out) // LENGTH * LENGTH].reshape(-1, LENGTH)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "metrics.jsonl", "w", encoding="utf-8") as log:
        for step, batch in enumerate(batches(text[: -len(text) // 10], steps), 1):
            rate = lr * min(1.0, step / warmup)
            result = model.train_step(batch, lr=rate)
            entry = {"step": step, "loss": result.loss, "grad_norm": result.grad_norm, "lr": rate}
            if step % 25 == 0 or step == steps:
                entry["val_loss"] = model.loss(held_out)
            log.write(json.dumps(entry) + "\n")
    print(f"{row}: {model.parameter_count:,} parameters, loss {result.loss:.3f}, held out {entry['val_loss']:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", default=str(Path(__file__).parents[1] / "README.md"), help="any file of text")
    parser.add_argument("--rows", default="gdn,pgdn", help="rows of the table of recurrences (`deltanet rows`)")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--out", default="runs")
    options = parser.parse_args()

    text = np.frombuffer(Path(options.text).read_bytes(), np.uint8).astype(np.int32)
    if len(text) < 20 * LENGTH:
        raise SystemExit(f"{options.text}: has {len(text)} bytes; expected at least {20 * LENGTH}")
    folders = {row: Path(options.out) / row for row in options.rows.split(",")}
    for row, folder in folders.items():
        train(row, text, options.steps, folder)
    picture = Path(options.out) / "losses.png"
    plot_runs({row: load_run(folder) for row, folder in folders.items()}, picture)
    print(f"wrote {picture}")


if __name__ == "__main__":
    main()

"""Trains DeltaNet on a task that needs a state, with write factors below 1 and below 2, and evaluates both natively.

    python examples/track_state.py                          # parity, a minute
    python examples/track_state.py --task s3 --steps 3000

`deltanet eval --dump` writes the examples that a model is asked, with token ids and targets: another seed gives other
ones to train on. Below 1 the eigenvalues of a step lie in [0, 1] and its state cannot turn over with each one it reads;
below 2 they lie in [-1, 1] (Grazzi et al. 2024). Both models learn the lengths that they were trained on; beyond them
only the second goes on being right.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import deltanet

PROGRAM = os.environ.get("DELTANET_PROGRAM") or shutil.which("deltanet") or "build/release/deltanet"
CONFIG = {
    "model_type": "delta_net", "hidden_size": 32, "num_hidden_layers": 1, "num_heads": 2, "intermediate_size": 64,
    "vocab_size": 16, "initializer_range": 0.1, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip


def dump(directory, task, lengths, samples, seed):
    """Examples of a task as (ids, labels): labels[t] is what should be said after the ids before t."""
    file = Path(directory) / "examples.jsonl"
    subprocess.run(
        [PROGRAM, "eval", directory, "--tasks", task, "--lengths", ",".join(map(str, lengths)),
         "--samples", str(samples), "--seed", str(seed), "--dump", file],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    lines = map(json.loads, file.read_text().splitlines())
    # targets[t] is said after ids[t]; a label stands one place later, and the last one needs a place: id 0 behind all.
    return [([*line["ids"], 0], [-100, *line["targets"]]) for line in lines]


def train(directory, beta, args):
    model = deltanet.Model.from_config(CONFIG | {"vocab_size": args.vocabulary, "allow_neg_eigval": beta == 2}, seed=1)
    model.save(directory)
    examples = dump(directory, args.task, range(args.shortest, args.longest + 1), args.samples, seed=1)
    rng = random.Random(0)
    for step in range(args.steps):
        batch = rng.choices(examples, k=args.batch)
        lr = args.lr * min(1.0, (step + 1) / 50, (args.steps - step) / (0.3 * args.steps))
        done = model.train_step([ids for ids, _ in batch], [labels for _, labels in batch], lr=lr, weight_decay=0.0)
        if (step + 1) % max(1, args.steps // 10) == 0:
            print(f"{directory}: step {step + 1}, loss {done.loss:.4f}", flush=True)
    model.save(directory)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="parity", help="of `deltanet eval --list`, group state_tracking")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--shortest", type=int, default=3, help="length to train on")
    parser.add_argument("--longest", type=int, default=16)
    parser.add_argument("--samples", type=int, default=1000, help="examples of each length to train on")
    parser.add_argument("--lengths", default="16,32,64,128", help="to evaluate")
    parser.add_argument("--vocabulary", type=int, default=120, help="ids of the models; s5 has 120")
    parser.add_argument("--out", default="track_state")
    args = parser.parse_args()
    directories = []
    for beta in (1, 2):
        directories.append(Path(args.out) / f"beta-below-{beta}")
        directories[-1].mkdir(parents=True, exist_ok=True)
        train(directories[-1], beta, args)
    # Seed 0: none of these were trained on, except short ones, of which there are only so many.
    command = [PROGRAM, "eval", *directories, "--tasks", args.task, "--lengths", args.lengths, "--samples", "200"]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()

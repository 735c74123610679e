"""gdn of this library against transformers' chunk function, in one run.

    python bench/peers.py [--length 4096] [--threads 1,2] [--json FILE] [--quick]

The peer is torch_chunk_gated_delta_rule of transformers (Qwen3-Next), eager and under torch.compile; both sides get
the same numbers in float32, with the L2 norm of q and k inside. The results are compared first; then all candidates run
once per round, so that noise hits them alike, and the ratios are taken within a round. With one thread each ratio has a
floor; the exit status is 1 where one is missed, 2 where a result is wrong or something is not installed. The first run
takes some minutes, because torch.compile unrolls the loop over the chunks; later runs find its cache.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import platform
import statistics
import sys
import time
import warnings

FLOOR = 4.0  # times the speed of the peer, on one thread
TOLERANCE = 1e-4  # normwise; the peer accumulates more error than this library
PAUSE = 0.02  # seconds between two candidates: the idle threads of an OpenMP runtime spin for a while


def fail(message):
    print(f"peers: {message}", file=sys.stderr)
    sys.exit(2)


try:
    import numpy as np
    import torch
    import transformers
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule
except ImportError as error:
    fail(f"{error}; run: pip install -r bench/requirements.txt")
try:
    import deltanet
except ImportError as error:
    fail(f"{error}; run: make build")

# Newer versions wrap the function to look for GPU kernels first; what is compared is the function itself.
CHUNK_FUNCTION = inspect.unwrap(torch_chunk_gated_delta_rule)
ROW = {"row": "gdn", "l2norm": True}
NAMES = ("q", "k", "v", "g", "beta")


def draw(length, heads, key_dim, value_dim):
    """Inputs as a trained model has them: decays between 0.5 and 1, gains below 1; and the gradient of o."""
    rng = np.random.default_rng(1)
    inputs = {
        "q": rng.standard_normal((1, length, heads, key_dim)),
        "k": rng.standard_normal((1, length, heads, key_dim)),
        "v": rng.standard_normal((1, length, heads, value_dim)),
        "g": np.log(rng.uniform(0.5, 1, (1, length, heads))),
        "beta": rng.uniform(0.05, 0.95, (1, length, heads)),
    }
    upstream = rng.standard_normal((1, length, heads, value_dim))
    return {name: array.astype(np.float32) for name, array in inputs.items()}, upstream.astype(np.float32)


class Ours:
    name = "deltanet"

    def __init__(self, inputs, upstream, threads):
        self.inputs, self.upstream, self.threads = inputs, upstream, threads

    def forward(self):
        return deltanet.forward(ROW, self.inputs, threads=self.threads)["o"]

    def training(self):
        deltanet.forward(ROW, self.inputs, threads=self.threads)
        return deltanet.backward(ROW, self.inputs, {"do": self.upstream}, threads=self.threads)


class Peer:
    def __init__(self, name, function, inputs, upstream):
        self.name, self.function = name, function
        self.inputs = {name: torch.from_numpy(array) for name, array in inputs.items()}
        self.leaves = {name: tensor.clone().requires_grad_() for name, tensor in self.inputs.items()}
        self.upstream = torch.from_numpy(upstream)

    def call(self, tensors):
        return self.function(*(tensors[name] for name in NAMES), use_qk_l2norm_in_kernel=True)[0]

    def forward(self):
        with torch.no_grad():
            return self.call(self.inputs).numpy()

    def training(self):
        for leaf in self.leaves.values():
            leaf.grad = None
        self.call(self.leaves).backward(self.upstream)
        return {name: leaf.grad.numpy() for name, leaf in self.leaves.items()}


def relative_error(actual, expected):
    expected = expected.astype(np.float64)
    return float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))


def check(ours, peer):
    """Runs both in both directions, which also compiles and warms up; ends the program where they differ."""
    errors = {"o": relative_error(ours.forward(), peer.forward())}
    gradients, expected = ours.training(), peer.training()
    errors.update({f"d{name}": relative_error(gradients[name], expected[name]) for name in NAMES})
    wrong = {name: error for name, error in errors.items() if not error <= TOLERANCE}
    if wrong:
        fail(f"{peer.name} and deltanet differ, so nothing is timed: {wrong} (tolerance {TOLERANCE})")
    return max(errors.values())


def measure(candidates, rounds, clock, show):
    """Seconds by candidate and direction, one per round."""
    seconds = {(c.name, direction): [] for c in candidates for direction in ("forward", "training")}
    for round_ in range(rounds):
        for direction in ("forward", "training"):
            for candidate in candidates if round_ % 2 == 0 else reversed(candidates):
                show(f"round {round_ + 1} of {rounds}: {candidate.name}, {direction}")
                run = getattr(candidate, direction)
                time.sleep(PAUSE)
                start = clock()
                run()
                seconds[candidate.name, direction].append(clock() - start)
    return seconds


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def report(seconds, tokens, threads, floor):
    """Prints the table of one number of threads and returns its lines as dicts. The floor, if there is one, is that of
    the compiled and the eager peer alike."""
    lines = []
    print(f"\n{threads} thread{'s' if threads > 1 else ''}")
    print(f"  {'':24}{'ms':>8}  {'min–max':>14}  {'tokens/s':>9}  {'deltanet is':>12}")
    for direction, title in (("forward", "forward"), ("training", "forward+backward")):
        print(f"  {title}")
        ours = seconds["deltanet", direction]
        for (name, measured), values in seconds.items():
            if measured != direction:
                continue
            median = statistics.median(values)
            line = {
                "implementation": name,
                "direction": title,
                "threads": threads,
                "median_ms": median * 1e3,
                "min_ms": min(values) * 1e3,
                "max_ms": max(values) * 1e3,
                "repeats": len(values),
                "tokens_per_s": tokens / median,
            }
            verdict = ""
            if name != "deltanet":
                line["speedup"] = statistics.median(theirs / mine for theirs, mine in zip(values, ours))
                verdict = f"{line['speedup']:.2f}x faster"
                if floor:
                    line["floor"] = floor
                    line["pass"] = line["speedup"] >= floor
                    verdict += f"  (floor {floor:g}x: {'PASS' if line['pass'] else 'FAIL'})"
            spread = f"{min(values) * 1e3:.1f}–{max(values) * 1e3:.1f}"
            text = f"    {name:22}{median * 1e3:8.1f}  {spread:>14}  {tokens / median:9.0f}  {verdict}"
            print(text.rstrip())
            lines.append(line)
    return lines


def cpu_model():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown CPU"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=4096, help="tokens (default: %(default)s)")
    parser.add_argument("--heads", type=int, default=8, help="heads (default: %(default)s)")
    parser.add_argument("--key-dim", type=int, default=128, help="key dimension (default: %(default)s)")
    parser.add_argument("--value-dim", type=int, default=128, help="value dimension (default: %(default)s)")
    parser.add_argument("--threads", default="1,2", help="numbers of threads, with commas (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=9, help="rounds (default: %(default)s)")
    parser.add_argument("--target", help="SIMD target for deltanet (default: the best)")
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile")
    parser.add_argument("--cpu-time", action="store_true",
                        help="count the time of the thread, not of the clock: steadier on a busy machine")
    parser.add_argument("--quick", action="store_true", help="three rounds")
    parser.add_argument("--json", metavar="FILE", help="write the results to this file")
    args = parser.parse_args()
    try:
        args.threads = [int(count) for count in args.threads.split(",")]
    except ValueError:
        parser.error(f"--threads: given {args.threads!r}; expected numbers separated by commas")
    if min(args.threads) < 1 or min(args.length, args.heads, args.key_dim, args.value_dim, args.repeats) < 1:
        parser.error("all numbers must be positive")
    if args.cpu_time and args.threads != [1]:
        parser.error("--cpu-time: counts the time of one thread; give --threads 1 with it")
    if args.quick:
        args.repeats = 3
    return args


def main():
    args = arguments()
    warnings.filterwarnings("ignore", category=UserWarning)
    deltanet.set_simd_target(args.target)
    inputs, upstream = draw(args.length, args.heads, args.key_dim, args.value_dim)
    transformers.logging.set_verbosity_error()
    print(f"{cpu_model()}; deltanet {deltanet.__version__} (SIMD {deltanet.simd_target()}), torch {torch.__version__}, "
          f"transformers {transformers.__version__}")
    print(f"gdn, float32, B=1 T={args.length} H={args.heads} K={args.key_dim} V={args.value_dim}, L2 norm inside")

    lines, errors = [], []
    for threads in args.threads:
        torch.set_num_threads(threads)
        torch._dynamo.reset()  # compiled code is made for one number of threads
        ours = Ours(inputs, upstream, threads)
        peers = [Peer("transformers, eager", CHUNK_FUNCTION, inputs, upstream)]
        if not args.no_compile:
            compiled = torch.compile(CHUNK_FUNCTION)
            peers.append(Peer("transformers, compiled", compiled, inputs, upstream))
        for peer in peers:
            progress(f"checking {peer.name} with threads={threads}")
            errors.append(check(ours, peer))
        clock = time.thread_time if args.cpu_time else time.perf_counter
        seconds = measure([ours, *peers], args.repeats, clock, lambda text: progress(f"{threads} threads, {text}"))
        progress("")
        lines += report(seconds, args.length, threads, FLOOR if threads == 1 else None)
    print(f"\nThe results agree: the largest normwise difference of o and all gradients is {max(errors):.1e}.")

    if args.json:
        document = {
            "benchmark": "peers",
            "machine": {
                "cpu": cpu_model(),
                "cpus": os.cpu_count(),
                "simd_target": deltanet.simd_target(),
                "deltanet": deltanet.__version__,
                "torch": torch.__version__,
                "transformers": transformers.__version__,
            },
            "shape": {"B": 1, "T": args.length, "H": args.heads, "K": args.key_dim, "V": args.value_dim},
            "clock": "cpu" if args.cpu_time else "wall",
            "largest_difference": max(errors),
            "results": lines,
        }
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=2)
            file.write("\n")
    return 0 if all(line.get("pass", True) for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())

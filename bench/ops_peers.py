"""deltanet.ops.chunk_gated_delta_rule against transformers' function of the same name, in one run.

    python bench/ops_peers.py [--length 4096] [--threads 2] [--json FILE] [--quick]

What bench/peers.py does for NumPy arrays, here for tensors with autograd: the same numbers, compared first, then timed
in rounds, eager and under torch.compile. After that the cost of a call: one token with a state, against the same step
of the library called directly. The exit status is 1 where a floor is missed, 2 where a result is wrong.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings

import peers
import torch
import transformers

import deltanet
from deltanet import ops
from deltanet.ops import _library

FLOOR = 3.5  # times the speed of the compiled peer, with two threads
MOST_OVERHEAD = 30.0  # microseconds of a call with one token
STEPS_PER_ROUND = 200


def call_cost(heads, key_dim, value_dim, rounds):
    """Microseconds of a decoding step through deltanet.ops, of the same step in the library, and the difference within
    a round; with one thread, as the second would only add the noise of waking it."""
    torch.set_num_threads(1)
    arrays, _ = peers.draw(1, heads, key_dim, value_dim)
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    state = torch.randn(1, heads, key_dim, value_dim)
    results = (torch.empty(1, 1, heads, value_dim), torch.empty_like(state), None, None, None)
    given = tuple((tensors | {"S0": state}).get(name) for name in _library.INPUTS)
    spec = _library.variant_of("gdn", False, None, None, None).spec

    def step():
        ops.chunk_gated_delta_rule(**tensors, initial_state=state, output_final_state=True)

    def direct():
        deltanet._core.torch_forward(spec, given, None, results, True, 1)

    def timed(function):
        start = time.perf_counter()
        for _ in range(STEPS_PER_ROUND):
            function()
        return (time.perf_counter() - start) / STEPS_PER_ROUND * 1e6

    with torch.no_grad():
        timed(step), timed(direct)
        pairs = [(timed(step), timed(direct)) for _ in range(rounds)]
    overhead = statistics.median(whole - bare for whole, bare in pairs)
    whole, bare = (statistics.median(values) for values in zip(*pairs))
    return {"call_us": whole, "library_us": bare, "overhead_us": overhead, "pass": overhead <= MOST_OVERHEAD}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=4096, help="tokens (default: %(default)s)")
    parser.add_argument("--heads", type=int, default=8, help="heads (default: %(default)s)")
    parser.add_argument("--key-dim", type=int, default=128, help="key dimension (default: %(default)s)")
    parser.add_argument("--value-dim", type=int, default=128, help="value dimension (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="threads of both sides (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=9, help="rounds (default: %(default)s)")
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile")
    parser.add_argument("--quick", action="store_true", help="three rounds")
    parser.add_argument("--json", metavar="FILE", help="write the results to this file")
    args = parser.parse_args()
    if min(args.length, args.heads, args.key_dim, args.value_dim, args.threads, args.repeats) < 1:
        parser.error("all numbers must be positive")
    if args.quick:
        args.repeats = 3
    return args


def main():
    args = arguments()
    warnings.filterwarnings("ignore", category=UserWarning)
    transformers.logging.set_verbosity_error()
    inputs, upstream = peers.draw(args.length, args.heads, args.key_dim, args.value_dim)
    print(f"{peers.cpu_model()}; deltanet {deltanet.__version__} (SIMD {deltanet.simd_target()}), "
          f"torch {torch.__version__}, transformers {transformers.__version__}")
    print(f"chunk_gated_delta_rule, float32, B=1 T={args.length} H={args.heads} K={args.key_dim} V={args.value_dim}, "
          "L2 norm inside")

    torch.set_num_threads(args.threads)
    ours = peers.Peer("deltanet", ops.chunk_gated_delta_rule, inputs, upstream)
    others = [peers.Peer("transformers, eager", peers.CHUNK_FUNCTION, inputs, upstream)]
    if not args.no_compile:
        others.append(peers.Peer("transformers, compiled", torch.compile(peers.CHUNK_FUNCTION), inputs, upstream))
    errors = []
    for peer in others:
        peers.progress(f"checking {peer.name}")
        errors.append(peers.check(ours, peer))
    seconds = peers.measure([ours, *others], args.repeats, time.perf_counter, peers.progress)
    peers.progress("")
    lines = peers.report(seconds, args.length, args.threads, FLOOR)
    cost = call_cost(args.heads, args.key_dim, args.value_dim, args.repeats)
    print(f"\none token with a state, 1 thread: {cost['call_us']:.1f} us, of which the library takes "
          f"{cost['library_us']:.1f} us; the call itself costs {cost['overhead_us']:.1f} us  "
          f"(at most {MOST_OVERHEAD:g} us: {'PASS' if cost['pass'] else 'FAIL'})")
    print(f"The results agree: the largest normwise difference of o and all gradients is {max(errors):.1e}.")

    if args.json:
        document = {
            "benchmark": "ops_peers",
            "machine": {"cpu": peers.cpu_model(), "simd_target": deltanet.simd_target(), "threads": args.threads,
                        "deltanet": deltanet.__version__, "torch": torch.__version__,
                        "transformers": transformers.__version__},
            "shape": {"B": 1, "T": args.length, "H": args.heads, "K": args.key_dim, "V": args.value_dim},
            "largest_difference": max(errors),
            "results": lines,
            "one_token": cost,
        }
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=2)
            file.write("\n")
    return 0 if cost["pass"] and all(line.get("pass", True) for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())

"""A PyTorch operator of deltanet in place of a loop over the tokens: the same numbers, and how much faster.

    python examples/drop_in_operator.py [--length 256] [--heads 8] [--dim 128]

The names and arguments are those of flash-linear-attention, so that code written for it moves by changing an import:

    from fla.ops.gated_delta_rule import chunk_gated_delta_rule        # needs a GPU
    from deltanet.ops import chunk_gated_delta_rule                    # any CPU
"""

import argparse
import time

import torch

from deltanet.ops import chunk_gated_delta_rule


def loop(q, k, v, g, beta):
    """The gated delta rule token by token, [B,T,H,K] for q and k, [B,T,H,V] for v, [B,T,H] for g and beta."""
    state = torch.zeros(*q.shape[:1], *q.shape[2:], v.shape[-1])
    outputs = []
    for t in range(q.shape[1]):
        state = state * g[:, t, :, None, None].exp()
        said = torch.einsum("bhk,bhkv->bhv", k[:, t], state)  # what the state answers to this key
        correction = beta[:, t, :, None] * (v[:, t] - said)
        state = state + k[:, t, :, :, None] * correction[:, :, None, :]
        outputs.append(torch.einsum("bhk,bhkv->bhv", q[:, t], state) * q.shape[-1] ** -0.5)
    return torch.stack(outputs, dim=1)


def operator(*inputs):
    return chunk_gated_delta_rule(*inputs)[0]


def seconds(function, inputs, repeats=3):
    """The best of a few times, forward and backward."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function(*inputs).square().mean().backward()
        times.append(time.perf_counter() - start)
    return min(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--dim", type=int, default=128)
    options = parser.parse_args()

    torch.manual_seed(0)
    shape = (1, options.length, options.heads, options.dim)
    q, v = torch.randn(shape), torch.randn(shape)
    k = torch.nn.functional.normalize(torch.randn(shape), dim=-1)
    g, beta = -torch.rand(shape[:-1]), torch.rand(shape[:-1])
    inputs = [x.requires_grad_() for x in (q, k, v, g, beta)]

    # The numbers first: outputs and all gradients.
    results = {}
    for function in (loop, operator):
        output = function(*inputs)
        results[function] = [output, *torch.autograd.grad(output.square().mean(), inputs)]
    for name, expected, actual in zip(("o", "dq", "dk", "dv", "dg", "dbeta"), results[loop], results[operator]):
        error = ((actual - expected).norm() / expected.norm()).item()
        print(f"{name:6} differs by {error:.1e}")
        if error > 1e-4:
            raise SystemExit(f"{name}: the operator and the loop disagree")

    slow, fast = seconds(loop, inputs), seconds(operator, inputs)
    print(f"forward and backward of {options.length} tokens: loop {1e3 * slow:.1f} ms, operator {1e3 * fast:.1f} ms")
    print(f"{slow / fast:.0f} times as fast")


if __name__ == "__main__":
    main()

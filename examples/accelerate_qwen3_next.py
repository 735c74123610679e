"""A small random Qwen3-Next, with and without deltanet.accelerate_transformers(): times and differences of a prefill,
of decoding and of a training step.

    python examples/accelerate_qwen3_next.py --tokens 2048
"""

import argparse
import contextlib
import statistics
import time

import torch
from transformers import Qwen3NextConfig, Qwen3NextForCausalLM
from transformers.models.qwen3_next import modeling_qwen3_next
from transformers.utils import logging

import deltanet


def make_model(hidden_size, layers):
    """Three layers in four are Gated DeltaNet, as in the models of that name; no experts, so that the mixers show."""
    heads = max(1, hidden_size // 128)
    torch.manual_seed(0)
    return Qwen3NextForCausalLM(
        Qwen3NextConfig(
            vocab_size=4096,
            hidden_size=hidden_size,
            intermediate_size=2 * hidden_size,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            head_dim=128,
            linear_num_key_heads=heads,
            linear_num_value_heads=2 * heads,
            linear_key_head_dim=128,
            linear_value_head_dim=128,
            num_experts=0,
        )
    )


def use_torch_functions():
    """Where other packages are installed, transformers calls their kernels, which need a GPU; this undoes that."""
    for name, function in vars(modeling_qwen3_next).items():
        if name.startswith(("torch_", "causal_conv1d_")) and hasattr(function, "__wrapped__"):
            setattr(modeling_qwen3_next, name, function.__wrapped__)


def works(model, ids, new_tokens):
    """What is measured: functions that return logits, tokens and gradients."""

    def prefill():
        with torch.no_grad():
            return model(ids).logits

    def decode():
        return model.generate(
            ids[:, :16], min_new_tokens=new_tokens, max_new_tokens=new_tokens, do_sample=False, pad_token_id=0
        )

    def train():
        model.zero_grad()
        model(ids, labels=ids, use_cache=False).loss.backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    return prefill, decode, train


def measure(work, model, repeats):
    """The results of work() and the medians of its seconds, without and with acceleration, by turns."""
    results, seconds = [None, None], ([], [])
    for _ in range(repeats):
        for accelerated in (False, True):
            with deltanet.accelerate_transformers(model) if accelerated else contextlib.nullcontext():
                start = time.perf_counter()
                results[accelerated] = work()
                seconds[accelerated].append(time.perf_counter() - start)
    return results, [statistics.median(times) for times in seconds]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden-size", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()

    logging.set_verbosity_error()
    use_torch_functions()
    model = make_model(args.hidden_size, args.layers)
    ids = torch.randint(4096, (1, args.tokens), generator=torch.Generator().manual_seed(1))

    print(f"{'':16}{'transformers':>14}{'accelerated':>14}{'ratio':>8}   difference")
    for work, tokens in zip(works(model, ids, args.new_tokens), (args.tokens, args.new_tokens, args.tokens)):
        (expected, result), (baseline, seconds) = measure(work, model, args.repeats)
        if result.is_floating_point():
            difference = f"{float((result - expected).norm() / expected.norm()):.1e} of the norm"
        else:
            difference = f"{int((result != expected).sum())} tokens"
        name = f"{work.__name__} {tokens}"
        print(f"{name:16}{baseline:13.3f}s{seconds:13.3f}s{baseline / seconds:7.1f}x   {difference}")


if __name__ == "__main__":
    main()

"""Training tokens/s of a small Gated DeltaNet: this library against PyTorch, in one run.

    python bench/train_peers.py [--threads 2] [--rounds 9] [--json FILE] [--no-compile]

Both sides train the same model (256 wide, 4 layers, 2 heads of 128, MLP 768, vocabulary 8192, tied) on 8 x 256 tokens:
forward, backward, clipping, AdamW. PyTorch runs transformers' torch_chunk_gated_delta_rule, eager and under
torch.compile, in float32 and under bf16 autocast, with the fused AdamW. Each candidate does some steps per round, those
of one precision next to each other and in turned order every other round, because the speed of a machine drifts within
seconds; the ratios are those of a round. The exit status is 1 where a floor is missed.
"""

from __future__ import annotations

import argparse
import inspect
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

FLOOR = 1.7
D, LAYERS, HEADS, MLP, VOCAB, BATCH, LENGTH = 256, 4, 2, 768, 8192, 8, 256
STEPS = 4  # of a candidate in a round
PROGRAM = Path(__file__).parents[1] / "build" / "release" / "deltanet"

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule
except ImportError as error:
    print(f"train_peers: {error}; run: pip install -r bench/requirements.txt", file=sys.stderr)
    sys.exit(2)

CHUNK_FUNCTION = inspect.unwrap(torch_chunk_gated_delta_rule)


class RMSNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), 1e-6)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn_norm, self.mlp_norm, self.o_norm = RMSNorm(D), RMSNorm(D), RMSNorm(D // HEADS)
        self.qkv, self.o = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D, bias=False)
        self.gates = nn.Linear(D, 2 * HEADS, bias=False)
        self.conv = nn.Parameter(torch.randn(3 * D, 1, 4) * 0.02)
        self.A_log, self.dt_bias = nn.Parameter(torch.zeros(HEADS)), nn.Parameter(torch.full((HEADS,), -3.0))
        self.gate_up, self.down = nn.Linear(D, 2 * MLP, bias=False), nn.Linear(MLP, D, bias=False)

    def forward(self, h):
        x = self.attn_norm(h)
        qkv = F.conv1d(F.pad(self.qkv(x).transpose(1, 2), (3, 0)), self.conv.to(x.dtype), groups=3 * D)
        q, k, v = F.silu(qkv.transpose(1, 2)).unflatten(-1, (3 * HEADS, -1)).chunk(3, dim=2)
        beta, a = self.gates(x).chunk(2, dim=-1)
        g = -self.A_log.exp() * F.softplus(a.float() + self.dt_bias)
        out = CHUNK_FUNCTION(q, k, v, g=g, beta=beta.sigmoid(), use_qk_l2norm_in_kernel=True)
        h = h + self.o(self.o_norm(out[0]).flatten(2).to(x.dtype))
        gate, up = self.gate_up(self.mlp_norm(h)).chunk(2, dim=-1)
        return h + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(VOCAB, D), RMSNorm(D)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids, targets):
        h = self.embed(ids)
        for layer in self.layers:
            h = layer(h)
        return F.cross_entropy(F.linear(self.norm(h), self.embed.weight).flatten(0, 1).float(), targets.flatten())


class TorchTrainer:
    def __init__(self, compiled, bf16):
        torch.manual_seed(0)
        self.model, self.bf16 = Model(), bf16
        self.run = torch.compile(self.model) if compiled else self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
        self.ids = torch.randint(0, VOCAB, (BATCH, LENGTH))
        self.targets = self.ids.roll(-1, 1)

    def tokens_per_second(self, steps=STEPS):
        start = time.perf_counter()
        for _ in range(steps):
            with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
                loss = self.run(self.ids, self.targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        return steps * BATCH * LENGTH / (time.perf_counter() - start)


def ours(precision, threads):
    command = [PROGRAM, "bench", "train", "--small", "--rows", "gdn", "--precision", precision, "--json", "-"]
    out = subprocess.run(
        [*map(str, command), "--threads", str(threads), "--rounds", "1", "--steps", str(STEPS)],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    return json.loads(out)["rows"]["gdn"]["tokens_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", help="write the results to this file")
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile, which takes minutes")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    peers = {}
    for precision in ("f32", "bf16"):
        peers[f"torch {precision}"] = TorchTrainer(False, precision == "bf16")
        if not arguments.no_compile:
            peers[f"torch.compile {precision}"] = TorchTrainer(True, precision == "bf16")
    for name, peer in peers.items():
        print(f"warming up {name} ...", file=sys.stderr)
        peer.tokens_per_second(1)

    candidates = []
    for precision in ("f32", "bf16"):
        candidates += [(name, peer.tokens_per_second) for name, peer in peers.items() if name.endswith(precision)]
        candidates.append((f"deltanet {precision}", lambda precision=precision: ours(precision, arguments.threads)))
    rates = {name: [] for name, _ in candidates}
    for round_ in range(arguments.rounds):
        print(f"round {round_ + 1} of {arguments.rounds} ...", file=sys.stderr)
        for name, tokens_per_second in candidates if round_ % 2 == 0 else reversed(candidates):
            rates[name].append(tokens_per_second())

    print(f"training, {BATCH} x {LENGTH} tokens, {arguments.threads} threads\n")
    for name, values in rates.items():
        print(f"{name:20} {statistics.median(values):8.0f} tokens/s")
    print()
    results, holds = {}, True
    for precision in ("f32", "bf16"):
        mine = rates[f"deltanet {precision}"]
        names = [name for name in peers if name.endswith(precision)]
        best = [max(values) for values in zip(*(rates[name] for name in names))]
        ratio = statistics.median(a / b for a, b in zip(mine, best))
        results[precision] = ratio
        holds &= ratio >= FLOOR
        verdict = "PASS" if ratio >= FLOOR else "FAIL"
        print(f"{precision:5} {ratio:.2f}x the best of PyTorch   >= {FLOOR}   {verdict}")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"tokens_per_second": rates, "ratios": results}, indent=2) + "\n")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())

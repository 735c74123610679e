"""Softmax attention for hybrid models: RoPE, grouped heads, an optional window."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .cache import RecurrentCache, states_of
from .packing import pack, refuse_unknown, unpack


class Attention(nn.Module):
    """Takes the place of a mixer in some layers. window_size counts the tokens that a token sees, itself included.

    Sequences are treated one by one, each with its own positions, so padding and packing change nothing.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        qkv_bias: bool = False,
        window_size: int | None = None,
        rope_theta: float = 10000.0,
        layer_idx: int | None = None,
    ):
        super().__init__()
        num_kv_heads = num_kv_heads or num_heads
        if hidden_size % (2 * num_heads) != 0:
            raise ValueError(
                f"num_heads: given {num_heads}; expected hidden_size = {hidden_size} to be an even multiple of it"
            )
        if num_heads % num_kv_heads != 0:
            raise ValueError(f"num_kv_heads: given {num_kv_heads}; expected a divisor of num_heads = {num_heads}")
        self.head_dim, self.window_size, self.rope_theta = hidden_size // num_heads, window_size, rope_theta
        self.layer_idx = layer_idx
        kv_width = num_kv_heads * self.head_dim
        self.q_proj = nn.Linear(hidden_size, hidden_size, bias=qkv_bias)
        self.k_proj = nn.Linear(hidden_size, kv_width, bias=qkv_bias)
        self.v_proj = nn.Linear(hidden_size, kv_width, bias=qkv_bias)
        self.o_proj = nn.Linear(hidden_size, hidden_size, bias=False)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        past_key_values: RecurrentCache | None = None,
        use_cache: bool = False,
        output_attentions: bool | None = False,
        cu_seqlens: torch.Tensor | None = None,
        cu_seq_lens_q: torch.Tensor | None = None,
        seq_idx: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        **others,
    ):
        """As DeltaMixer.forward."""
        refuse_unknown(f"{type(self).__name__}.forward", {"output_attentions": output_attentions, **others})
        B, T = hidden_states.shape[:2]
        hidden_states, cu_seqlens, places = pack(
            hidden_states, attention_mask, cu_seqlens, cu_seq_lens_q, seq_idx, position_ids
        )
        count = B if cu_seqlens is None else len(cu_seqlens) - 1
        states = states_of(self, past_key_values, count)

        def heads(projection):
            tokens = projection(hidden_states).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)  # [B,heads,T,D]
            return tokens.split(1) if cu_seqlens is None else tokens.split(cu_seqlens.diff().tolist(), dim=2)

        kept = states.get("attention", [None] * count)
        sequences = zip(heads(self.q_proj), heads(self.k_proj), heads(self.v_proj), kept)
        results = [self._attend(*sequence) for sequence in sequences]
        if use_cache and past_key_values is not None:
            past_key_values[self.layer_idx] = {"attention": [state for _, state in results]}
        o = torch.cat([o for o, _ in results], dim=0 if cu_seqlens is None else 2)
        return unpack(self.o_proj(o.transpose(1, 2).flatten(2)), places, B, T), None, past_key_values

    def _attend(self, q, k, v, past):
        """One sequence: q [1,H,T,D], k and v [1,KV,T,D], and what it saw before: keys, values and their number."""
        T, seen = q.shape[2], 0
        q, k = (self._rotate(part, past[2] if past else 0) for part in (q, k))
        if past is not None:
            k, v, seen = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2), past[2]
        queries = torch.arange(k.shape[2] - T, k.shape[2])[:, None]
        distance = queries - torch.arange(k.shape[2])
        mask = distance >= 0
        if self.window_size is not None:
            mask &= distance < self.window_size
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        last = slice(None) if self.window_size is None else slice(-self.window_size, None)
        return o, (k[:, :, last], v[:, :, last], seen + T)

    def _rotate(self, x, first):
        """RoPE: dimension i of the first half turns with dimension i of the second."""
        half = self.head_dim // 2
        frequencies = self.rope_theta ** -(torch.arange(half, dtype=torch.float32) / half)
        angles = torch.outer(torch.arange(first, first + x.shape[2], dtype=torch.float32), frequencies)
        cos, sin = angles.cos(), angles.sin()
        a, b = x.float().split(half, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)

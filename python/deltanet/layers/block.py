"""x + mixer(norm(x)), then x + mlp(norm(x))."""

from __future__ import annotations

import torch
from torch import nn

from .modules import RMSNorm, SwiGLU


class Block(nn.Module):
    """A layer of the language models around any mixer or attention."""

    def __init__(self, mixer: nn.Module, hidden_size: int, intermediate_size: int, norm_eps: float = 1e-6):
        super().__init__()
        self.attn_norm = RMSNorm(hidden_size, norm_eps)
        self.attn = mixer
        self.mlp_norm = RMSNorm(hidden_size, norm_eps)
        self.mlp = SwiGLU(hidden_size, intermediate_size)

    def forward(self, hidden_states: torch.Tensor, **arguments) -> torch.Tensor:
        """arguments: those of the mixer; states are kept in past_key_values."""
        hidden_states = hidden_states + self.attn(self.attn_norm(hidden_states), **arguments)[0]
        return hidden_states + self.mlp(self.mlp_norm(hidden_states))

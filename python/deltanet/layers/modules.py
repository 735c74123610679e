"""The parts around a recurrence: norms, the short convolution and the MLP. Parameters have upstream's names."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .. import ops

_ACTIVATIONS = {"swish": F.silu, "silu": F.silu, "sigmoid": torch.sigmoid}


def initialize(parameter: torch.Tensor, values) -> None:
    """Sets a parameter to values(parameter), unless transformers has loaded it from a checkpoint."""
    if not getattr(parameter, "_is_hf_initialized", False):
        with torch.no_grad():
            parameter.copy_(values(parameter))


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, in float32 whatever the type of x."""

    def __init__(self, size: int, eps: float = 1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))

    def reset_parameters(self) -> None:
        initialize(self.weight, torch.ones_like)

    def normalized(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x.float(), self.weight.shape, self.weight.float(), self.eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.normalized(x).to(x.dtype)

    def extra_repr(self) -> str:
        return f"{tuple(self.weight.shape)}, eps={self.eps}"


class GatedRMSNorm(RMSNorm):
    """RMSNorm(x) * activation(gate): the norm of each head with the output gate behind it."""

    def __init__(self, size: int, eps: float = 1e-6, activation: str = "swish"):
        super().__init__(size, eps)
        if activation not in _ACTIVATIONS:
            raise ValueError(f"activation: given {activation!r}; expected one of {', '.join(_ACTIVATIONS)}")
        self.activation = activation

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        return (self.normalized(x) * _ACTIVATIONS[self.activation](gate.float())).to(x.dtype)


class ShortConvolution(nn.Conv1d):
    """y_t = silu(bias + sum_j weight_j x_{t-(W-1)+j}) for each channel; a Conv1d for its parameters, weight [C,1,W].

    x [B,T,C], state [N,W-1,C]: the inputs before the start, oldest first; None for zeros.
    """

    def __init__(self, channels: int, width: int, bias: bool = False):
        super().__init__(channels, channels, width, groups=channels, bias=bias)

    def forward(self, x, state=None, output_final_state=False, cu_seqlens=None):
        return ops.short_convolution(
            x,
            self.weight.squeeze(1),
            self.bias,
            activation="silu",
            initial_state=state,
            output_final_state=output_final_state,
            cu_seqlens=cu_seqlens,
        )


def mlp_width(hidden_size: int, hidden_ratio: float | None) -> int:
    """The width that gives about hidden_ratio * hidden_size^2 parameters, a multiple of 256."""
    width = int(hidden_size * (hidden_ratio or 4) * 2 / 3)
    return (width + 255) // 256 * 256


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x))"""

    def __init__(self, hidden_size: int, intermediate_size: int):
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))

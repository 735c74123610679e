"""What RWKV-7 does to the output of its recurrence."""

from __future__ import annotations

from torch import Tensor


def gate_output_correction(o: Tensor, r: Tensor, k: Tensor, r_k: Tensor, v: Tensor, g: Tensor) -> Tensor:
    """(o + (sum of r k r_k over the channels of a head) v) g: r, k, v [B,T,H,D], r_k [H,D], o and g [B,T,H*D]."""
    return (o + ((r * k * r_k).sum(-1, keepdim=True) * v).reshape(o.shape)) * g

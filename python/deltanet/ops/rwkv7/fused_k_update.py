"""RWKV-7's key as it is written: less of it where the gate a is small."""

from __future__ import annotations

from torch import Tensor


def fused_k_rwkv7(
    k: Tensor, a: Tensor, ka: Tensor, cu_seqlens: Tensor | None = None, cu_seqlens_cpu: Tensor | None = None
) -> Tensor:
    """k (1 + (a - 1) ka), token by token; cu_seqlens and cu_seqlens_cpu only concern a GPU."""
    return k.addcmul(k * (a - 1), ka)

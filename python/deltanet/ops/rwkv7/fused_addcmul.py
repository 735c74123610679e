"""RWKV-7's token shift: six mixtures of each token with the one before it."""

from __future__ import annotations

from torch import Tensor


def fused_addcmul_rwkv7(
    hidden_states: Tensor,
    delta: Tensor,
    xr: Tensor,
    xw: Tensor,
    xk: Tensor,
    xv: Tensor,
    xa: Tensor,
    xg: Tensor | None = None,
) -> tuple[Tensor | None, ...]:
    """hidden_states + delta x for every x: the inputs of r, w, k, v, a and, unless xg is None, g."""
    return tuple(None if x is None else hidden_states.addcmul(delta, x) for x in (xr, xw, xk, xv, xa, xg))

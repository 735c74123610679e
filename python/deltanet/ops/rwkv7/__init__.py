"""RWKV-7: the diagonal plus low rank rule under its own names, S = exp(w) S + b (a^T S) + k v^T."""

from __future__ import annotations

from torch import Tensor

from .._checks import check_rank
from .._options import check_chunk_size, check_packing
from .._recurrence import recurrence
from .._reverse import turned, turned_back
from ..generalized_delta_rule import fused_recurrent_dplr_delta_rule

_NAMES = {"S0": "initial_state", "q": "r", "g": "w"}


def chunk_rwkv7(
    r: Tensor,
    w: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    scale: float | None = 1.0,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    safe_gate: bool = False,
    chunk_size: int | None = None,
    disable_recompute: bool = False,
    cp_context: object | None = None,
    lower_bound: float | None = None,
) -> tuple[Tensor, Tensor | None]:
    """r, k, a, b [B,T,H,K], v [B,T,HV,V], w [B,T,HV,K] the log decay, initial_state [N,HV,K,V]. Returns o [B,T,HV,V]
    and the final state, or None. safe_gate, chunk_size, disable_recompute and lower_bound only concern a GPU."""
    check_packing(cu_seqlens, cu_seqlens_cpu, cp_context)
    check_chunk_size(chunk_size)
    return fused_recurrent_rwkv7(r, w, k, v, a, b, scale, initial_state, output_final_state, cu_seqlens)


def fused_recurrent_rwkv7(
    r: Tensor,
    w: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = True,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """As chunk_rwkv7, with other defaults: scale K^-1/2, and the final state is returned."""
    return fused_recurrent_dplr_delta_rule(
        r, k, v, a, b, w, scale, initial_state, output_final_state, cu_seqlens=cu_seqlens, names=_NAMES
    )


def fused_mul_recurrent_rwkv7(
    r: Tensor,
    w: Tensor,
    k: Tensor,
    v: Tensor,
    kk: Tensor,
    a: Tensor,
    scale: float | None = 1.0,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """As chunk_rwkv7 with the low-rank factors -kk and kk a; with reverse, tokens are read from the last to the
    first."""
    check_rank("r", r, "[B,T,H,K]")
    tensors, (S0,), offsets = turned(reverse, (r, w, k, v, kk, a), (initial_state,), cu_seqlens)
    r, w, k, v, kk, a = tensors
    o, final_state, _ = recurrence(
        "rwkv7",
        r,
        k,
        v,
        g=w,
        kk=kk,
        eta=a,
        S0=S0,
        cu_seqlens=offsets,
        scale=r.shape[-1] ** -0.5 if scale is None else scale,
        final_states=output_final_state,
        names={**_NAMES, "eta": "a"},
    )
    return turned_back(reverse, o, final_state, cu_seqlens)

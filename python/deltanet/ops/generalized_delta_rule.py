"""Transitions that are diagonal plus low rank, S = exp(gk) S + b (a^T S) + k v^T, or identity plus low rank: gk = 0."""

from __future__ import annotations

import torch
from torch import Tensor

from ._checks import check_query_key_value, check_tensor
from ._options import check_chunk_size, check_packing
from ._recurrence import recurrence
from ._reverse import turned, turned_back

NAMES = {"S0": "initial_state", "g": "gk"}


def chunk_dplr_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    gk: Tensor,
    scale: float | None = None,
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
    """q, k, a, b [B,T,H,K], v [B,T,HV,V], gk [B,T,HV,K], initial_state [N,HV,K,V]. Returns o [B,T,HV,V] and the final
    state, or None. safe_gate, chunk_size, disable_recompute and lower_bound only concern a GPU."""
    check_packing(cu_seqlens, cu_seqlens_cpu, cp_context)
    check_chunk_size(chunk_size)
    return fused_recurrent_dplr_delta_rule(
        q, k, v, a, b, gk, scale, initial_state, output_final_state, cu_seqlens=cu_seqlens
    )


def fused_recurrent_dplr_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    gk: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    names: dict[str, str] = NAMES,
) -> tuple[Tensor, Tensor | None]:
    """As chunk_dplr_delta_rule; with reverse, tokens are read from the last to the first."""
    check_tensor("a", a)
    a = -a  # the library subtracts b (a^T S)
    tensors, (S0,), offsets = turned(reverse, (q, k, v, a, b, gk), (initial_state,), cu_seqlens)
    q, k, v, a, b, gk = tensors
    o, final_state, _ = recurrence(
        "dplr",
        q,
        k,
        v,
        a=a,
        b=b,
        g=gk,
        S0=S0,
        cu_seqlens=offsets,
        scale=scale,
        final_states=output_final_state,
        names=names,
    )
    return turned_back(reverse, o, final_state, cu_seqlens)


def chunk_iplr_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    *,
    chunk_size: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """q, k, a, b [B,T,H,K], v [B,T,HV,V], initial_state [N,HV,K,V]. Returns o [B,T,HV,V] and the final state, or
    None."""
    check_packing(cu_seqlens, cu_seqlens_cpu)
    check_chunk_size(chunk_size)
    return fused_recurrent_iplr_delta_rule(q, k, v, a, b, scale, initial_state, output_final_state, cu_seqlens)


def fused_recurrent_iplr_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """As chunk_iplr_delta_rule."""
    check_query_key_value(q, k, v)
    undecayed = torch.zeros(1, dtype=torch.float32, device="cpu").expand(*v.shape[:3], k.shape[-1])
    return fused_recurrent_dplr_delta_rule(
        q, k, v, a, b, undecayed, scale, initial_state, output_final_state, cu_seqlens=cu_seqlens
    )

"""Retention: linear attention in which head h forgets at the fixed rate 1 - 2^(-5-h)."""

from __future__ import annotations

import torch
from torch import Tensor

from ._checks import check_rank
from ._options import check_chunk_size, check_packing, v_first
from .simple_gla import fused_recurrent_simple_gla, parallel_simple_gla


def chunk_retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    chunk_size: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """q, k [B,T,H,K], v [B,T,HV,V], initial_state [N,HV,K,V]. Returns o [B,T,HV,V] and the final state, or None."""
    check_packing(cu_seqlens, None)
    check_chunk_size(chunk_size)
    return fused_recurrent_retention(q, k, v, scale, initial_state, output_final_state, cu_seqlens=cu_seqlens)


def fused_recurrent_retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    transpose_state_layout: bool | None = None,
) -> tuple[Tensor, Tensor | None]:
    """As chunk_retention; with reverse, tokens are read from the last to the first."""
    return fused_recurrent_simple_gla(
        q,
        k,
        v,
        g_gamma=_log_decays(v),
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        reverse=reverse,
        state_v_first=v_first(state_v_first, transpose_state_layout),
        cu_seqlens=cu_seqlens,
    )


def fused_chunk_retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """As chunk_retention."""
    return fused_recurrent_retention(q, k, v, scale, initial_state, output_final_state, cu_seqlens=cu_seqlens)


def parallel_retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    output_attentions: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """As chunk_retention without states. Returns o and, with output_attentions, the weights [B,HV,T,T] of the values,
    without a gradient; otherwise None."""
    decays = _log_decays(v).expand(v.shape[:3])
    return parallel_simple_gla(q, k, v, decays, scale, output_attentions, cu_seqlens)


def _log_decays(v):
    check_rank("v", v, "[B,T,HV,V]")
    return torch.log1p(-torch.exp2(-5.0 - torch.arange(v.shape[2], dtype=torch.float32, device="cpu")))

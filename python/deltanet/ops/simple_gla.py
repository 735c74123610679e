"""Linear attention with a scalar decay for each head: S = exp(g + g_gamma) S + k v^T. Without decays it is linear
attention, with g_gamma alone it is retention."""

from __future__ import annotations

import torch
from torch import Tensor

from .._core import Error
from ._checks import check_query_key_value, check_rank, check_tensor, number
from ._options import check_chunk_size, check_packing, swap, swap_back, v_first
from ._recurrence import recurrence
from ._reverse import turned, turned_back


def chunk_simple_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    g_gamma: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    *,
    chunk_size: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """q, k [B,T,H,K], v [B,T,HV,V], g [B,T,HV], g_gamma [HV], initial_state [N,HV,K,V], or [N,HV,V,K] with
    state_v_first. Returns o [B,T,HV,V] and the final state, or None."""
    check_packing(cu_seqlens, cu_seqlens_cpu)
    check_chunk_size(chunk_size)
    return fused_recurrent_simple_gla(
        q,
        k,
        v,
        g,
        g_gamma,
        scale,
        initial_state,
        output_final_state,
        state_v_first=state_v_first,
        cu_seqlens=cu_seqlens,
    )


def fused_recurrent_simple_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    g_gamma: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    transpose_state_layout: bool | None = None,
) -> tuple[Tensor, Tensor | None]:
    """As chunk_simple_gla; with reverse, tokens are read from the last to the first."""
    state_v_first = v_first(state_v_first, transpose_state_layout)
    row, name = ("mamba2", "g") if g is not None else ("retnet", "g_gamma")
    if g is None and g_gamma is None:
        row = "linear_attn"
    if g is not None and g_gamma is not None:
        check_rank("v", v, "[B,T,HV,V]")
        check_tensor("g", g, v.shape[:3], "[B,T,HV]")
        check_tensor("g_gamma", g_gamma, v.shape[2:3], "[HV]")
        g = g.float() + g_gamma.float()
    (q, k, v, g), (initial_state,), offsets = turned(reverse, (q, k, v, g), (initial_state,), cu_seqlens)
    o, final_state, _ = recurrence(
        row,
        q,
        k,
        v,
        g=g_gamma if g is None else g,
        S0=swap(initial_state, state_v_first),
        cu_seqlens=offsets,
        scale=scale,
        final_states=output_final_state,
        names={"S0": "initial_state", "g": name},
    )
    o, final_state = turned_back(reverse, o, final_state, cu_seqlens)
    return o, swap_back(final_state, state_v_first)


def fused_chunk_simple_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    g_gamma: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """As chunk_simple_gla."""
    return fused_recurrent_simple_gla(
        q, k, v, g, g_gamma, scale, initial_state, output_final_state, cu_seqlens=cu_seqlens
    )


def parallel_simple_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    scale: float | None = None,
    output_attentions: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """As chunk_simple_gla without states. Returns o and, with output_attentions, the weights [B,HV,T,T] of the values,
    without a gradient, as upstream does; otherwise None."""
    check_packing(cu_seqlens, cu_seqlens_cpu)
    if output_attentions and cu_seqlens is not None:
        raise Error("output_attentions: given True together with cu_seqlens; expected one of them")
    o, _ = fused_recurrent_simple_gla(q, k, v, g, scale=scale, cu_seqlens=cu_seqlens)
    return o, attention_weights(q, k, v, g, scale) if output_attentions else None


@torch.no_grad()
def attention_weights(q, k, v, g, scale):
    """scale q_i.k_j exp(g_{j+1} + ... + g_i) for j <= i, in the type of q."""
    check_query_key_value(q, k, v)
    group = v.shape[2] // q.shape[2]
    queries, keys = (t.float().repeat_interleave(group, dim=2).transpose(1, 2) for t in (q, k))
    scale = number("scale", scale)
    weights = queries @ keys.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if g is not None:
        sums = g.double().cumsum(1).transpose(1, 2)  # differences of long sums
        weights *= (sums.unsqueeze(-1) - sums.unsqueeze(-2)).tril().exp()
    return weights.tril().to(q.dtype)

"""Gated linear attention: S = exp(g) S + k v^T with a decay for each key channel."""

from __future__ import annotations

from torch import Tensor

from ._options import check_packing, refuse, swap, swap_back, v_first
from ._recurrence import recurrence
from ._reverse import turned, turned_back


def chunk_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """q, k [B,T,H,K], v [B,T,HV,V], g [B,T,HV,K], initial_state [N,HV,K,V], or [N,HV,V,K] with state_v_first. Returns
    o [B,T,HV,V] and the final state, or None."""
    check_packing(cu_seqlens, cu_seqlens_cpu)
    o, final_state, _ = recurrence(
        "gla",
        q,
        k,
        v,
        g=g,
        S0=swap(initial_state, state_v_first),
        cu_seqlens=cu_seqlens,
        scale=scale,
        final_states=output_final_state,
        names={"S0": "initial_state"},
    )
    return o, swap_back(final_state, state_v_first)


def fused_recurrent_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gk: Tensor | None = None,
    gv: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    transpose_state_layout: bool | None = None,
) -> tuple[Tensor, Tensor | None]:
    """As chunk_gla; the decay gk may be absent, and with reverse, tokens are read from the last to the first."""
    refuse("no row of the table decays value channels", gv=gv)
    state_v_first = v_first(state_v_first, transpose_state_layout)
    (q, k, v, gk), (initial_state,), offsets = turned(reverse, (q, k, v, gk), (initial_state,), cu_seqlens)
    o, final_state, _ = recurrence(
        "linear_attn" if gk is None else "gla",
        q,
        k,
        v,
        g=gk,
        S0=swap(initial_state, state_v_first),
        cu_seqlens=offsets,
        scale=scale,
        final_states=output_final_state,
        names={"S0": "initial_state", "g": "gk"},
    )
    o, final_state = turned_back(reverse, o, final_state, cu_seqlens)
    return o, swap_back(final_state, state_v_first)

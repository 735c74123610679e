"""Gated DeltaNet: the delta rule on the decayed state exp(g) S."""

from __future__ import annotations

from torch import Tensor

from .._options import (
    beta_of,
    check_chunk_size,
    check_packing,
    joint_decay,
    refuse,
    scalar_gate,
    swap,
    swap_back,
    v_first,
)
from .._recurrence import recurrence

_NAMES = {"S0": "initial_state"}


def chunk_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    chunk_indices: Tensor | None = None,
    cp_context: object | None = None,
    *,
    use_gate_in_kernel: bool = False,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    chunk_size: int | None = None,
    transpose_state_layout: bool | None = None,
) -> tuple[Tensor, Tensor | None]:
    """q, k [B,T,H,K], v [B,T,HV,V], g and beta [B,T,HV], initial_state [N,HV,K,V], or [N,HV,V,K] with state_v_first.
    Returns o [B,T,HV,V] and the final state, or None.

    With use_gate_in_kernel the log decay is -exp(A_log) softplus(g + dt_bias); with use_beta_sigmoid_in_kernel the gain
    is sigmoid(beta), twice that with allow_neg_eigval. chunk_indices and chunk_size only concern a GPU.
    """
    check_packing(cu_seqlens, cu_seqlens_cpu, cp_context)
    check_chunk_size(chunk_size, 16, 32, 64)
    state_v_first = v_first(state_v_first, transpose_state_layout)
    o, final_state, _ = recurrence(
        "gdn",
        q,
        k,
        v,
        g=scalar_gate(g, use_gate_in_kernel, A_log, dt_bias),
        beta=beta_of(beta, v, use_beta_sigmoid_in_kernel, allow_neg_eigval),
        S0=swap(initial_state, state_v_first),
        cu_seqlens=cu_seqlens,
        l2norm=use_qk_l2norm_in_kernel,
        scale=scale,
        final_states=output_final_state,
        names=_NAMES,
    )
    return o, swap_back(final_state, state_v_first)


def fused_recurrent_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    gk: Tensor | None = None,
    gv: Tensor | None = None,
    beta: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    transpose_state_layout: bool | None = None,
) -> tuple[Tensor, Tensor | None]:
    """As chunk_gated_delta_rule, with a decay of each key channel in gk [B,T,HV,K]; g, gk and beta may be absent."""
    refuse("no row of the table decays value channels", gv=gv)
    state_v_first = v_first(state_v_first, transpose_state_layout)
    g = scalar_gate(g, use_gate_in_kernel, A_log, dt_bias)
    decay = joint_decay(g, gk)
    row = "delta_net" if decay is None else "gdn" if gk is None else "kda"
    o, final_state, _ = recurrence(
        row,
        q,
        k,
        v,
        g=decay,
        beta=beta_of(beta, v, use_beta_sigmoid_in_kernel, allow_neg_eigval),
        S0=swap(initial_state, state_v_first),
        cu_seqlens=cu_seqlens,
        l2norm=use_qk_l2norm_in_kernel,
        scale=scale,
        final_states=output_final_state,
        names=_NAMES if gk is None else {**_NAMES, "g": "gk"},
    )
    return o, swap_back(final_state, state_v_first)


chunk_gdn = chunk_gated_delta_rule
fused_recurrent_gdn = fused_recurrent_gated_delta_rule

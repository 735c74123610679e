"""Preconditioned KDA: KDA that writes with the preconditioned key (see precond_gated_delta_rule.py)."""

from __future__ import annotations

from torch import Tensor

from ._intermediate import check_intermediate, states_between
from ._options import (
    center_of,
    check_chunk_size,
    check_packing,
    check_safe_gate,
    diagonal_gate,
    swap,
    swap_back,
)
from ._recurrence import recurrence
from .precond_gated_delta_rule import NAMES


def chunk_precond_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    g_atk: Tensor | None,
    beta_atk: Tensor | None,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    initial_A_state: Tensor | None = None,
    output_final_state: bool = False,
    use_gate_in_kernel: bool = False,
    safe_gate: bool = False,
    lower_bound: float | None = None,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    chunk_indices: Tensor | None = None,
    cp_context: object | None = None,
    transpose_state_layout: bool = False,
    x: float = 1.5,
    eps: float = 1e-6,
    log_atk_scale: Tensor | float | None = None,
    solve_tril_precision: str | None = None,
    disable_recompute: bool = False,
    return_intermediate_states: bool = False,
    *,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    use_qk_l2norm_in_kernel: bool = True,
    chunk_size: int | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None] | tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
    """q, k [B,T,H,K], v [B,T,HV,V], g [B,T,HV,K], beta [B,T,HV], g_atk and beta_atk [B,T,H] (None: no decay, gain 1),
    log_atk_scale [H] (None: -0.2), initial_state [N,HV,K,V], or [N,HV,V,K] with transpose_state_layout, initial_A_state
    [N,H,K]. q and k are always normalized upstream; here use_qk_l2norm_in_kernel=False leaves them as they are. The
    gate options are those of chunk_kda. Returns o [B,T,HV,V] and the final states S and A, or None twice.

    safe_gate, chunk_indices, chunk_size, solve_tril_precision and disable_recompute only concern a GPU: here the
    triangular solve is always in float32. return_intermediate_states adds the states S of chunk_kda.
    """
    check_packing(cu_seqlens, cu_seqlens_cpu, cp_context)
    check_chunk_size(chunk_size)
    check_safe_gate(safe_gate, use_gate_in_kernel, lower_bound)
    o, final_state, final_A_state = recurrence(
        "pkda",
        q,
        k,
        v,
        g=diagonal_gate(g, use_gate_in_kernel, A_log, dt_bias, lower_bound),
        beta=beta,
        g_atk=g_atk,
        beta_atk=beta_atk,
        log_atk_scale=center_of(log_atk_scale, k),
        S0=swap(initial_state, transpose_state_layout),
        A0=initial_A_state,
        cu_seqlens=cu_seqlens,
        l2norm=use_qk_l2norm_in_kernel,
        scale=scale,
        x=x,
        eps=eps,
        final_states=output_final_state,
        names=NAMES,
    )
    final_state = swap_back(final_state, transpose_state_layout)
    if not return_intermediate_states:
        return o, final_state, final_A_state

    def step(tokens, states):
        return chunk_precond_kda(
            **tokens,
            initial_state=states[0],
            initial_A_state=states[1],
            output_final_state=True,
            use_gate_in_kernel=use_gate_in_kernel,
            lower_bound=lower_bound,
            transpose_state_layout=transpose_state_layout,
            x=x,
            eps=eps,
            log_atk_scale=log_atk_scale,
            A_log=A_log,
            dt_bias=dt_bias,
            use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
        )[1:]

    check_intermediate(disable_recompute)
    tokens = {"q": q, "k": k, "v": v, "g": g, "g_atk": g_atk, "beta_atk": beta_atk, "beta": beta}
    states = [initial_state, initial_A_state]
    return o, final_state, final_A_state, states_between(step, tokens, states, cu_seqlens, chunk_size or 64)


def fused_recurrent_precond_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    g_atk: Tensor | None,
    beta_atk: Tensor | None,
    beta: Tensor,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    initial_A_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = True,
    use_gate_in_kernel: bool = False,
    lower_bound: float | None = None,
    cu_seqlens: Tensor | None = None,
    transpose_state_layout: bool = False,
    x: float = 1.5,
    eps: float = 1e-6,
    log_atk_scale: Tensor | float | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """As chunk_precond_kda."""
    return chunk_precond_kda(
        q,
        k,
        v,
        g,
        g_atk,
        beta_atk,
        beta,
        scale,
        initial_state,
        initial_A_state,
        output_final_state,
        use_gate_in_kernel,
        lower_bound=lower_bound,
        cu_seqlens=cu_seqlens,
        transpose_state_layout=transpose_state_layout,
        x=x,
        eps=eps,
        log_atk_scale=log_atk_scale,
        A_log=A_log,
        dt_bias=dt_bias,
        use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
    )

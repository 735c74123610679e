"""Preconditioned Gated DeltaNet: the gated delta rule that writes with the preconditioned key B k, where
A = exp(g_atk) A + beta_atk k*k, r = log(A + eps) - log_atk_scale and B = x^(-r/(1+|r|)). Without g it is the
preconditioned DeltaNet of precond_delta_rule.py."""

from __future__ import annotations

from torch import Tensor

from ._options import beta_of, center_of, check_packing, joint_decay, refuse, swap, swap_back
from ._recurrence import recurrence

NAMES = {"S0": "initial_state", "A0": "initial_A_state"}


def chunk_precond_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g_atk: Tensor | None,
    g: Tensor,
    beta_atk: Tensor | None,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    initial_A_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = True,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    cp_context: object | None = None,
    transpose_state_layout: bool = False,
    x: float = 1.5,
    eps: float = 1e-6,
    log_atk_scale: Tensor | float | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """q, k [B,T,H,K], v [B,T,HV,V], g and beta [B,T,HV], g_atk and beta_atk [B,T,H] (None: no decay, gain 1),
    log_atk_scale [H] (None: -0.2), initial_state [N,HV,K,V], or [N,HV,V,K] with transpose_state_layout, initial_A_state
    [N,H,K]. Returns o [B,T,HV,V] and the final states S and A, or None twice."""
    check_packing(cu_seqlens, cu_seqlens_cpu, cp_context)
    o, final_state, final_A_state = recurrence(
        "pgdn",
        q,
        k,
        v,
        g=g,
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
    return o, swap_back(final_state, transpose_state_layout), final_A_state


def fused_recurrent_precond_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    gk: Tensor | None = None,
    gv: Tensor | None = None,
    beta: Tensor | None = None,
    g_atk: Tensor | None = None,
    beta_atk: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    initial_A_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = True,
    cu_seqlens: Tensor | None = None,
    transpose_state_layout: bool = False,
    x: float = 1.5,
    eps: float = 1e-6,
    log_atk_scale: Tensor | float | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """As chunk_precond_gated_delta_rule, with a decay of each key channel in gk [B,T,HV,K]; g, gk and beta may be
    absent."""
    refuse("no row of the table decays value channels", gv=gv)
    decay = joint_decay(g, gk)
    row = "pdn" if decay is None else "pgdn" if gk is None else "pkda"
    o, final_state, final_A_state = recurrence(
        row,
        q,
        k,
        v,
        g=decay,
        beta=beta_of(beta, v, False, False),
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
        names=NAMES if gk is None else {**NAMES, "g": "gk"},
    )
    return o, swap_back(final_state, transpose_state_layout), final_A_state

"""Linear attention with a preconditioned query: S = exp(g) S + k v^T is read by q / (A + ridge), where
A = exp(g_atk) A + beta_atk k*k. The decay g is absent (linear attention), scalar (simple GLA, Mamba-2) or diagonal
(GLA). These functions have no model upstream; the names follow upstream's."""

from __future__ import annotations

from torch import Tensor

from ._options import check_packing
from ._recurrence import recurrence
from .precond_gated_delta_rule import NAMES


def _precondition_query(
    row, q, k, v, g_atk, beta_atk, ridge, scale, initial_state, initial_A_state, output_final_state, l2norm,
    cu_seqlens, cu_seqlens_cpu, **gates,
):  # fmt: skip
    check_packing(cu_seqlens, cu_seqlens_cpu)
    return recurrence(
        row,
        q,
        k,
        v,
        g_atk=g_atk,
        beta_atk=beta_atk,
        ridge=ridge,
        S0=initial_state,
        A0=initial_A_state,
        cu_seqlens=cu_seqlens,
        l2norm=l2norm,
        scale=scale,
        final_states=output_final_state,
        names=NAMES,
        **gates,
    )


def chunk_precond_linear_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g_atk: Tensor | None,
    beta_atk: Tensor | None,
    ridge: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    initial_A_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """q, k [B,T,H,K], v [B,T,HV,V], g_atk and beta_atk [B,T,H] (None: no decay, gain 1), ridge [H,K], initial_state
    [N,HV,K,V], initial_A_state [N,H,K]. Returns o [B,T,HV,V] and the final states S and A, or None twice."""
    return _precondition_query(
        "pla", q, k, v, g_atk, beta_atk, ridge, scale, initial_state, initial_A_state, output_final_state,
        use_qk_l2norm_in_kernel, cu_seqlens, cu_seqlens_cpu,
    )  # fmt: skip


def chunk_precond_simple_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g_atk: Tensor | None,
    g: Tensor,
    beta_atk: Tensor | None,
    ridge: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    initial_A_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    *,
    beta: Tensor | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """As chunk_precond_linear_attn with a decay g [B,T,HV], and a gain beta [B,T,HV] of the writes if it is given."""
    row = "p_mamba2" if beta is None else "p_mamba2_gain"
    return _precondition_query(
        row, q, k, v, g_atk, beta_atk, ridge, scale, initial_state, initial_A_state, output_final_state,
        use_qk_l2norm_in_kernel, cu_seqlens, cu_seqlens_cpu, g=g, beta=beta,
    )  # fmt: skip


def chunk_precond_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g_atk: Tensor | None,
    g: Tensor,
    beta_atk: Tensor | None,
    ridge: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    initial_A_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """As chunk_precond_linear_attn with a decay g [B,T,HV,K]."""
    return _precondition_query(
        "pgla", q, k, v, g_atk, beta_atk, ridge, scale, initial_state, initial_A_state, output_final_state,
        use_qk_l2norm_in_kernel, cu_seqlens, cu_seqlens_cpu, g=g,
    )  # fmt: skip


fused_recurrent_precond_linear_attn = chunk_precond_linear_attn
fused_recurrent_precond_simple_gla = chunk_precond_simple_gla
fused_recurrent_precond_gla = chunk_precond_gla

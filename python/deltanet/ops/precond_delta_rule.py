"""Preconditioned DeltaNet: the delta rule that writes with the preconditioned key (see precond_gated_delta_rule.py)."""

from __future__ import annotations

from torch import Tensor

from ._options import check_packing
from .precond_gated_delta_rule import fused_recurrent_precond_gated_delta_rule


def chunk_precond_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g_atk: Tensor | None,
    beta_atk: Tensor | None,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    initial_A_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = True,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    transpose_state_layout: bool = False,
    x: float = 1.5,
    eps: float = 1e-6,
    log_atk_scale: Tensor | float | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The arguments of chunk_precond_gated_delta_rule without g."""
    check_packing(cu_seqlens, cu_seqlens_cpu)
    return fused_recurrent_precond_gated_delta_rule(
        q,
        k,
        v,
        beta=beta,
        g_atk=g_atk,
        beta_atk=beta_atk,
        scale=scale,
        initial_state=initial_state,
        initial_A_state=initial_A_state,
        output_final_state=output_final_state,
        use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
        cu_seqlens=cu_seqlens,
        transpose_state_layout=transpose_state_layout,
        x=x,
        eps=eps,
        log_atk_scale=log_atk_scale,
    )


fused_recurrent_precond_delta_rule = chunk_precond_delta_rule

"""DeltaNet: S = S - beta k (k^T S) + beta k v^T."""

from __future__ import annotations

from torch import Tensor

from ._options import beta_of, check_chunk_size, check_packing
from ._recurrence import recurrence

_NAMES = {"S0": "initial_state"}


def chunk_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    *,
    chunk_size: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """q, k [B,T,H,K], v [B,T,HV,V], beta [B,T,HV], initial_state [N,HV,K,V]. Returns o [B,T,HV,V] and the final state,
    or None."""
    check_packing(cu_seqlens, cu_seqlens_cpu)
    check_chunk_size(chunk_size, 16, 32, 64)
    return recurrence(
        "delta_net",
        q,
        k,
        v,
        beta=beta,
        S0=initial_state,
        cu_seqlens=cu_seqlens,
        l2norm=use_qk_l2norm_in_kernel,
        scale=scale,
        final_states=output_final_state,
        names=_NAMES,
    )[:2]


def fused_recurrent_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """As chunk_delta_rule; beta is 1 when absent."""
    return chunk_delta_rule(
        q,
        k,
        v,
        beta_of(beta, v, False, False),
        scale,
        initial_state,
        output_final_state,
        use_qk_l2norm_in_kernel,
        cu_seqlens,
    )

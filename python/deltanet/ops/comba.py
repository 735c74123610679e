"""Comba: the gated delta rule that erases with a key p of its own, S = S~ + beta k (v - S~^T p)^T with
the decayed state S~ = exp(g) S."""

from __future__ import annotations

import torch
from torch import Tensor

from ._checks import check_query_key_value, check_tensor
from ._options import beta_of, check_packing
from ._recurrence import recurrence

_NORM_EPS = 1e-6


def chunk_comba(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    p: Tensor | None,
    g: Tensor,
    beta: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """q, k, p [B,T,H,K] (p is k when None), v [B,T,HV,V], g and beta [B,T,HV] (beta is 1 when None), initial_state
    [N,HV,K,V]. use_qk_l2norm_in_kernel normalizes p as well. Returns o [B,T,HV,V] and the final state, or None."""
    check_packing(cu_seqlens, cu_seqlens_cpu)
    beta = beta_of(beta, v, False, False)
    options = dict(cu_seqlens=cu_seqlens, scale=scale, final_states=output_final_state)
    if p is None:
        names = {"S0": "initial_state"}
        return recurrence(
            "gdn", q, k, v, g=g, beta=beta, S0=initial_state, l2norm=use_qk_l2norm_in_kernel, names=names, **options
        )[:2]
    check_query_key_value(q, k, v)
    check_tensor("p", p, q.shape, "[B,T,H,K]")
    check_tensor("g", g, v.shape[:3], "[B,T,HV]")
    check_tensor("beta", beta, v.shape[:3], "[B,T,HV]")
    if use_qk_l2norm_in_kernel:
        q, k, p = _normalized(q), _normalized(k), _normalized(p)
    # The rule is diagonal minus low rank with factors a = exp(g) p and b = beta k, which is also the key written.
    group = v.shape[2] // q.shape[2]
    if group > 1:
        q, k, p = (t.repeat_interleave(group, dim=2) for t in (q, k, p))
    return recurrence(
        "dplr_b_eq_k",
        q,
        k.float() * beta.float().unsqueeze(-1),
        v,
        a=p.float() * g.float().exp().unsqueeze(-1),
        g=g.unsqueeze(-1).expand(*g.shape, k.shape[-1]),
        S0=initial_state,
        names={"S0": "initial_state", "a": "p"},
        **options,
    )[:2]


def fused_recurrent_comba(
    q: Tensor,
    k: Tensor,
    p: Tensor | None,
    v: Tensor,
    g: Tensor,
    beta: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """As chunk_comba; upstream, too, has p before v here."""
    return chunk_comba(
        q, k, v, p, g, beta, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel, cu_seqlens
    )


def _normalized(tensor):
    values = tensor.float()
    return (values * torch.rsqrt(values.square().sum(-1, keepdim=True) + _NORM_EPS)).to(tensor.dtype)

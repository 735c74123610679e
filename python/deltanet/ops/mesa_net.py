"""MesaNet: o = H_kv^T (H_kk + lamb)^-1 q, where H_kk = exp(g) H_kk + beta k k^T and H_kv = exp(g) H_kv + beta k v^T."""

from __future__ import annotations

import torch
from torch import Tensor

from .._core import Error
from ._checks import check_rank, check_tensor
from ._options import check_packing
from ._recurrence import recurrence

_NAMES = {"ridge": "lamb", "G0": "h_kk_init", "S0": "h_kv_init"}
_SMALLEST = 1e-5  # added to the divisors of a decoding step, as upstream does


def chunk_mesa_net(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    lamb: Tensor,
    h_kk_init: Tensor | None = None,
    h_kv_init: Tensor | None = None,
    output_final_state: bool = False,
    max_CG_iteration: int = 30,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """q, k, v [B,T,H,K], g and beta [B,T,H], lamb [H,K], h_kk_init and h_kv_init [N,H,K,K]. Returns o [B,T,H,K] and the
    final H_kk and H_kv, or None twice. The system is solved to the precision of float32, so max_CG_iteration, a limit
    that upstream's result depends on, only has to be positive."""
    check_packing(cu_seqlens, cu_seqlens_cpu)
    _check_iterations(max_CG_iteration)
    o, h_kv, h_kk = recurrence(
        "mesa",
        q,
        k,
        v,
        g=g,
        beta=beta,
        ridge=lamb,
        G0=h_kk_init,
        S0=h_kv_init,
        cu_seqlens=cu_seqlens,
        l2norm=use_qk_l2norm_in_kernel,
        final_states=output_final_state,
        names=_NAMES,
    )
    return o, h_kk, h_kv


def mesa_net_decoding_one_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    lamb: Tensor,
    beta: Tensor,
    prev_h_kk: Tensor,
    prev_h_kv: Tensor,
    max_CG_iteration: int = 30,
) -> tuple[Tensor, Tensor, Tensor]:
    """One token: q, k [B,H,K], v [B,H,V], g and beta [B,H]. Returns o [B,H,V] and the next H_kk and H_kv.

    Exactly max_CG_iteration steps of conjugate gradients are taken, from q / (diag H_kk + lamb): few of them give
    upstream's approximation.
    """
    _check_iterations(max_CG_iteration)
    _check_step(q, k, v, g, lamb, beta, prev_h_kk, prev_h_kv)
    dtype = q.dtype
    q, k, v, lamb = (t.float() for t in (q, k, v, lamb))
    decay, written = g.float().exp()[..., None, None], (k * beta.float().unsqueeze(-1)).unsqueeze(-1)
    h_kk = torch.addcmul(prev_h_kk.float() * decay, written, k.unsqueeze(-2))
    h_kv = torch.addcmul(prev_h_kv.float() * decay, written, v.unsqueeze(-2))

    def applied(x):
        return torch.addcmul((x.unsqueeze(-2) @ h_kk).squeeze(-2), lamb, x)

    x = q / (h_kk.diagonal(dim1=-2, dim2=-1) + lamb)
    residual = direction = q - applied(x)
    size = residual.square().sum(-1, keepdim=True)
    for _ in range(max_CG_iteration):
        image = applied(direction)
        step = size / ((direction * image).sum(-1, keepdim=True) + _SMALLEST)
        x, residual = torch.addcmul(x, step, direction), torch.addcmul(residual, step, image, value=-1)
        next_size = residual.square().sum(-1, keepdim=True)
        direction, size = torch.addcmul(residual, next_size / (size + _SMALLEST), direction), next_size
    return (x.unsqueeze(-2) @ h_kv).squeeze(-2).to(dtype), h_kk, h_kv


def _check_step(q, k, v, g, lamb, beta, prev_h_kk, prev_h_kv):
    check_rank("q", q, "[B,H,K]")
    check_rank("v", v, "[B,H,V]")
    B, H, K = q.shape
    V = v.shape[-1]
    for name, tensor, shape, axes in (
        ("k", k, (B, H, K), "[B,H,K]"),
        ("v", v, (B, H, V), "[B,H,V]"),
        ("g", g, (B, H), "[B,H]"),
        ("lamb", lamb, (H, K), "[H,K]"),
        ("beta", beta, (B, H), "[B,H]"),
        ("prev_h_kk", prev_h_kk, (B, H, K, K), "[B,H,K,K]"),
        ("prev_h_kv", prev_h_kv, (B, H, K, V), "[B,H,K,V]"),
    ):
        check_tensor(name, tensor, shape, axes)


def _check_iterations(max_CG_iteration):
    if not isinstance(max_CG_iteration, int) or max_CG_iteration < 1:
        raise Error(f"max_CG_iteration: given {max_CG_iteration!r}; expected a positive integer")

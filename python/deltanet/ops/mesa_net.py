"""MesaNet: o = H_kv^T (H_kk + lamb)^-1 q, where H_kk = exp(g) H_kk + beta k k^T and H_kv = exp(g) H_kv + beta k v^T."""

from __future__ import annotations

from torch import Tensor

from .._core import Error
from ._checks import check_tensor
from ._options import check_packing
from ._recurrence import recurrence

_NAMES = {"ridge": "lamb", "G0": "h_kk_init", "S0": "h_kv_init"}
_NAMES_OF_STEP = {"ridge": "lamb", "G0": "prev_h_kk", "S0": "prev_h_kv"}


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
    tensors = (q, k, v, g, beta, lamb, h_kk_init, h_kv_init)
    return _solve(*tensors, max_CG_iteration, output_final_state, use_qk_l2norm_in_kernel, cu_seqlens, _NAMES)


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
    """One token: q, k, v [B,H,K], g and beta [B,H]. Returns o [B,H,K] and the next H_kk and H_kv."""
    for name, tensor in (("q", q), ("k", k), ("v", v), ("g", g), ("beta", beta)):
        check_tensor(name, tensor)
    q, k, v, g, beta = (t.unsqueeze(1) for t in (q, k, v, g, beta))
    tensors = (q, k, v, g, beta, lamb, prev_h_kk, prev_h_kv)
    o, h_kk, h_kv = _solve(*tensors, max_CG_iteration, True, False, None, _NAMES_OF_STEP)
    return o.squeeze(1), h_kk, h_kv


def _solve(q, k, v, g, beta, lamb, h_kk, h_kv, max_CG_iteration, final_states, l2norm, cu_seqlens, names):
    if not isinstance(max_CG_iteration, int) or max_CG_iteration < 1:
        raise Error(f"max_CG_iteration: given {max_CG_iteration!r}; expected a positive integer")
    o, h_kv, h_kk = recurrence(
        "mesa",
        q,
        k,
        v,
        g=g,
        beta=beta,
        ridge=lamb,
        G0=h_kk,
        S0=h_kv,
        cu_seqlens=cu_seqlens,
        l2norm=l2norm,
        final_states=final_states,
        names=names,
    )
    return o, h_kk, h_kv

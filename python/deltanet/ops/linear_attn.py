"""Linear attention: S = S + k v^T, and the outputs divided by q^T (sum of the keys) if they are to be normalised."""

from __future__ import annotations

import torch
from torch import Tensor

from .._core import Error
from .simple_gla import fused_recurrent_simple_gla

_SMALLEST_SUM = 1e-10  # added to the divisor, as upstream does


def chunk_linear_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Tensor | tuple[Tensor, Tensor] | None = None,
    output_final_state: bool = False,
    normalize: bool = True,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | tuple[Tensor | None, Tensor] | None]:
    """q, k [B,T,H,K], v [B,T,HV,V], initial_state [N,HV,K,V]. Returns o [B,T,HV,V] and the final state, or None.

    With normalize the state is a pair: S and the sum of the keys, [N,1,H,K]; the sum is always returned.
    """
    return fused_recurrent_linear_attn(
        q, k, v, scale, initial_state, output_final_state, normalize=normalize, cu_seqlens=cu_seqlens
    )


def fused_recurrent_linear_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Tensor | tuple[Tensor, Tensor] | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    normalize: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | tuple[Tensor | None, Tensor] | None]:
    """As chunk_linear_attn, not normalised by default; with reverse, tokens are read from the last to the first."""
    key_sum = None
    if isinstance(initial_state, tuple):
        if not normalize:
            raise Error("initial_state: given a tuple; expected a tensor, as normalize is False")
        initial_state, key_sum = initial_state
    o, final_state = fused_recurrent_simple_gla(
        q,
        k,
        v,
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        reverse=reverse,
        cu_seqlens=cu_seqlens,
    )
    if not normalize:
        return o, final_state
    sums, last_sums = _key_sums(k, key_sum, reverse, cu_seqlens)
    scale = k.shape[-1] ** -0.5 if scale is None else scale
    divisor = (q * scale * sums).sum(-1, keepdim=True) + _SMALLEST_SUM
    divisor = divisor.repeat_interleave(v.shape[2] // q.shape[2], dim=2)
    return (o / divisor).to(v.dtype), (final_state, last_sums)


def _key_sums(k, first, reverse, cu_seqlens):
    """The sums of the keys read so far, at every token and at the end of every sequence [N,1,H,K]."""
    lengths = [k.shape[1]] if cu_seqlens is None else (cu_seqlens[1:] - cu_seqlens[:-1]).tolist()
    sums, last = [], []
    for index, part in enumerate(k.split(lengths, dim=1)):
        part = part.flip(1).cumsum(1).flip(1) if reverse else part.cumsum(1)
        if first is not None:
            part = part + (first if cu_seqlens is None else first[index : index + 1])
        sums.append(part)
        last.append(part[:, :1] if reverse else part[:, -1:])
    return torch.cat(sums, dim=1), torch.cat(last)

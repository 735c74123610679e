"""Linear attention: S = S + k v^T, and the outputs divided by q^T (sum of the keys) if they are to be normalized."""

from __future__ import annotations

import torch
from torch import Tensor

from .._core import Error
from ._checks import check_offsets, check_query_key_value, check_tensor
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


fused_chunk_linear_attn = chunk_linear_attn


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
    """As chunk_linear_attn, not normalized by default; with reverse, tokens are read from the last to the first."""
    options = {"scale": scale, "reverse": reverse, "cu_seqlens": cu_seqlens}
    if not normalize:
        if isinstance(initial_state, tuple):
            raise Error("initial_state: given a tuple; expected a tensor, as normalize is False")
        return fused_recurrent_simple_gla(
            q, k, v, initial_state=initial_state, output_final_state=output_final_state, **options
        )
    # Where the values are 1, the state is the sum of the keys and the output the divisor: one more column of both.
    check_query_key_value(q, k, v)
    values = torch.cat([v.float(), torch.ones(*v.shape[:3], 1, dtype=torch.float32, device="cpu")], dim=-1)
    state = _with_key_sum(initial_state, k, v, cu_seqlens)
    o, state = fused_recurrent_simple_gla(q, k, values, initial_state=state, output_final_state=True, **options)
    o = (o[..., :-1] / (o[..., -1:] + _SMALLEST_SUM)).to(v.dtype)
    key_sum = state[:, :: v.shape[2] // k.shape[2], :, -1].unsqueeze(1).to(k.dtype)
    return o, (state[..., :-1].contiguous() if output_final_state else None, key_sum.contiguous())


def _with_key_sum(initial_state, k, v, cu_seqlens):
    """The states with the sums of the keys as a last column; what is absent is zero."""
    if initial_state is None:
        return None
    state, key_sum = initial_state if isinstance(initial_state, tuple) else (initial_state, None)
    if cu_seqlens is not None:
        check_offsets(cu_seqlens)
    sequences = k.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    heads, width = k.shape[2:]
    if state is None:
        state = torch.zeros(sequences, v.shape[2], width, v.shape[3], dtype=torch.float32, device="cpu")
    check_tensor("initial_state", state, (sequences, v.shape[2], width, v.shape[3]), "[N,HV,K,V]")
    if key_sum is None:
        key_sum = torch.zeros(sequences, 1, heads, width, dtype=torch.float32, device="cpu")
    check_tensor("initial_state[1]", key_sum, (sequences, 1, heads, width), "[N,1,H,K]")
    column = key_sum.float().squeeze(1).repeat_interleave(v.shape[2] // heads, dim=1).unsqueeze(-1)
    return torch.cat([state.float(), column], dim=-1)

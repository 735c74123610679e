"""Reading a sequence from its last token to its first: turn everything around, run forward, turn the result back."""

from __future__ import annotations

from torch import Tensor


def turned(reverse: bool, tensors, states, cu_seqlens):
    """Tensors [B,T,...] with their tokens in the order of reading; packed sequences, and their states, turn as well."""
    if not reverse:
        return tensors, states, cu_seqlens
    tensors = [t.flip(1) if isinstance(t, Tensor) and t.dim() > 1 else t for t in tensors]
    if cu_seqlens is not None:
        states = [state.flip(0) if isinstance(state, Tensor) else state for state in states]
        cu_seqlens = (cu_seqlens[-1] - cu_seqlens).flip(0)
    return tensors, states, cu_seqlens


def turned_back(reverse: bool, o, state, cu_seqlens):
    if not reverse:
        return o, state
    return o.flip(1), state if cu_seqlens is None or state is None else state.flip(0)

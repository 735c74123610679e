"""The states at the starts of chunks, for those who keep them to go on from there."""

from __future__ import annotations

import torch

from .._core import Error


def check_intermediate(disable_recompute: bool) -> None:
    """What upstream demands of a caller who wants these states."""
    if torch.is_grad_enabled():
        raise Error("return_intermediate_states: given True; expected it inside torch.inference_mode()")
    if disable_recompute:
        raise Error("disable_recompute: given True together with return_intermediate_states; expected False")


def states_between(step, tokens, states, cu_seqlens, chunk_size):
    """S before every chunk of each sequence, [B,NT,...] in the type of k, where packed sequences follow one another.

    step(tokens, states) reads tokens, a dict of tensors [B,t,...] or None, and returns the states after them, S first.
    The arguments were checked by reading all of it before.
    """
    if cu_seqlens is None:
        return _starts(step, tokens, states, chunk_size)
    offsets = cu_seqlens.tolist()
    parts = [
        _starts(step, _cut(tokens, first, last), [_cut_state(state, n) for state in states], chunk_size)
        for n, (first, last) in enumerate(zip(offsets, offsets[1:]))
    ]
    return torch.cat(parts, dim=1)


def _starts(step, tokens, states, chunk_size):
    states = step(_cut(tokens, 0, 0), states)  # zeros where they were absent, and in float32
    starts = [states[0].new_empty(states[0].shape[0], 0, *states[0].shape[1:])]
    T = tokens["k"].shape[1]
    for first in range(0, T, chunk_size):
        starts.append(states[0].unsqueeze(1))
        if first + chunk_size < T:
            states = step(_cut(tokens, first, first + chunk_size), states)
    return torch.cat(starts, dim=1).to(tokens["k"].dtype)


def _cut(tokens, first, last):
    return {name: None if tensor is None else tensor[:, first:last] for name, tensor in tokens.items()}


def _cut_state(state, n):
    return None if state is None else state[n : n + 1]

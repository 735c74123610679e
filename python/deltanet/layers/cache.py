"""What decoding carries from token to token."""

from __future__ import annotations

import torch


class RecurrentCache:
    """The states of every layer, by its index.

    A recurrent layer keeps S [N,U,K,V], the statistics A [N,H,K] of a preconditioned row and the last inputs of its
    convolutions; an attention layer its keys and values. Recurrent states do not grow with the number of tokens.
    """

    is_compileable = False

    def __init__(self):
        self.layers: dict[int, dict] = {}
        self.seen_tokens = 0  # columns of the batch, padding included

    def __len__(self) -> int:
        return len(self.layers)

    def __contains__(self, layer_idx: int) -> bool:
        return layer_idx in self.layers

    def __getitem__(self, layer_idx: int) -> dict:
        return self.layers[layer_idx]

    def __setitem__(self, layer_idx: int, states: dict) -> None:
        self.layers[layer_idx] = states

    def get(self, layer_idx: int) -> dict:
        return self.layers.get(layer_idx, {})

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.seen_tokens

    def reset(self) -> None:
        """Forgets everything."""
        self.layers.clear()
        self.seen_tokens = 0

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Beam search: sequence n goes on from the states of sequence beam_idx[n]."""
        for idx, states in self.layers.items():
            self.layers[idx] = {name: _select(state, beam_idx) for name, state in states.items()}


def states_of(layer: torch.nn.Module, cache: RecurrentCache | None, sequences: int) -> dict:
    """What the cache holds for this layer; nothing, where there is no cache or where it is new."""
    if cache is None:
        return {}
    if layer.layer_idx is None:
        raise ValueError(f"layer_idx: given None; {type(layer).__name__} requires `layer_idx` when it is given a cache")
    check_cache(cache)
    states = cache.get(layer.layer_idx)
    if states:
        held = len(next(iter(states.values())))
        if held != sequences:
            raise ValueError(f"past_key_values: given the states of {held} sequences; expected those of {sequences}")
    return states


def check_cache(cache) -> None:
    if not isinstance(cache, RecurrentCache):
        raise ValueError(
            f"past_key_values: given {type(cache).__name__}; expected a deltanet.layers.RecurrentCache, because a "
            "recurrent state is not a list of keys and values"
        )


def _select(state, indices):
    if isinstance(state, list):  # of one entry per sequence
        return [state[int(n)] for n in indices]
    return state.index_select(0, indices)

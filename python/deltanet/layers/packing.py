"""Batches without their padding: the sequences one after the other, and where each of them starts.

The recurrences and the convolution know packed sequences, so a padded batch costs nothing for its padding, and a
padding token cannot reach a state. The result does not depend on the side or the amount of padding.
"""

from __future__ import annotations

import torch


def pack(hidden_states: torch.Tensor, attention_mask: torch.Tensor | None):
    """The tokens [1,N,D] of a batch [B,T,D] that the mask keeps, their offsets [B+1], and their places in the batch.

    attention_mask is [B,T] or longer, as while decoding; its last T columns count, and zero means padding. Without any
    padding the batch is returned as it is, with None for offsets and places.
    """
    if attention_mask is None:
        return hidden_states, None, None
    B, T = hidden_states.shape[:2]
    if attention_mask.ndim != 2 or attention_mask.shape[0] != B or attention_mask.shape[1] < T:
        raise ValueError(
            f"attention_mask: given shape {tuple(attention_mask.shape)}; expected [{B}, {T} or more], zero for padding"
        )
    kept = attention_mask[:, -T:] != 0
    if bool(kept.all()):
        return hidden_states, None, None
    places = kept.flatten().nonzero().flatten()
    offsets = torch.nn.functional.pad(kept.sum(1).cumsum(0), (1, 0))
    return hidden_states.flatten(0, 1).index_select(0, places).unsqueeze(0), offsets, places


def unpack(hidden_states: torch.Tensor, places: torch.Tensor | None, batch: int, tokens: int) -> torch.Tensor:
    """The inverse of pack; padding becomes zeros."""
    if places is None:
        return hidden_states
    padded = hidden_states.new_zeros(batch * tokens, hidden_states.shape[-1])
    return padded.index_copy(0, places, hidden_states.squeeze(0)).view(batch, tokens, -1)

"""Batches without their padding: the sequences one after the other, and where each of them starts.

The recurrences and the convolution know packed sequences, so a padded batch costs nothing for its padding, and a
padding token cannot reach a state. The result does not depend on the side or the amount of padding. The same offsets
keep sequences apart that the caller has packed, under any of the names that transformers has for their boundaries.
"""

from __future__ import annotations

import warnings

import torch

# What transformers passes beside the boundaries, and what cannot change a result: these layers have no positions to be
# told and no attention mask to be built.
_WITHOUT_EFFECT = ("cu_seq_lens_k", "max_length_q", "max_length_k", "cache_position", "token_type_ids")


def refuse_unknown(call: str, others: dict) -> None:
    """Raises for keywords that a call does not know and that ask for something: None and False do not."""
    if others.pop("output_attentions", None):
        warnings.warn(f"{call}: output_attentions is ignored: these layers have no attention weights", stacklevel=3)
    if others.pop("is_causal", None) is False:
        raise ValueError(f"{call}: is_causal: given False; expected True: a token sees those before it")
    for name, value in others.items():
        if name not in _WITHOUT_EFFECT and value is not None and value is not False:
            raise TypeError(f"{call}() got an unexpected keyword argument '{name}'")


def pack(
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    cu_seqlens: torch.Tensor | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    seq_idx: torch.Tensor | None = None,
    position_ids: torch.Tensor | None = None,
):
    """The tokens [1,M,D] of a batch [B,T,D] that the mask keeps, their offsets [N+1], and their places in the batch.

    attention_mask is [B,T] or longer, as while decoding; its last T columns count, and zero means padding. The rows are
    the sequences, N = B, unless a boundary says otherwise; the first of these that is given does:

    cu_seqlens, cu_seq_lens_q  [N+1] from 0 to B T: where each sequence starts in the rows one after the other
    seq_idx                    [B,T]: a number that changes where the next sequence of a row starts
    position_ids               [B,T]: positions that do not go up where the next sequence of a row starts

    A sequence may be empty, as a row of padding is. Without padding, places are None, and without boundaries inside
    rows either, the batch is returned as it is, with None for the offsets.
    """
    B, T = hidden_states.shape[:2]
    kept = _kept(attention_mask, B, T)
    name, offsets = ("cu_seqlens", cu_seqlens) if cu_seqlens is not None else ("cu_seq_lens_q", cu_seq_lens_q)
    if offsets is not None:
        _check_offsets(name, offsets, B * T)
    elif seq_idx is not None:
        offsets = _starts(_of_tokens("seq_idx", seq_idx, B, T), kept, torch.ne)
    elif position_ids is not None:
        offsets = _starts(_of_tokens("position_ids", position_ids, B, T), kept, _goes_back)
    if kept is None and offsets is None:
        return hidden_states, None, None
    if kept is None:
        return hidden_states.reshape(1, B * T, hidden_states.shape[-1]), offsets, None
    if offsets is None:
        offsets = torch.arange(0, B * T + 1, T)
    places = kept.flatten().nonzero().flatten()
    before = torch.nn.functional.pad(kept.flatten().cumsum(0), (1, 0))  # tokens that are kept before each place
    return hidden_states.flatten(0, 1).index_select(0, places).unsqueeze(0), before[offsets.long()], places


def unpack(hidden_states: torch.Tensor, places: torch.Tensor | None, batch: int, tokens: int) -> torch.Tensor:
    """The inverse of pack; padding becomes zeros."""
    if places is None:
        return hidden_states.view(batch, tokens, hidden_states.shape[-1])
    padded = hidden_states.new_zeros(batch * tokens, hidden_states.shape[-1])
    return padded.index_copy(0, places, hidden_states.squeeze(0)).view(batch, tokens, -1)


def _kept(attention_mask, B, T):
    """[B,T], true where there is a token; None if there is one everywhere."""
    if attention_mask is None:
        return None
    if attention_mask.ndim != 2 or attention_mask.shape[0] != B or attention_mask.shape[1] < T:
        raise ValueError(
            f"attention_mask: given shape {tuple(attention_mask.shape)}; expected [{B}, {T} or more], zero for padding"
        )
    kept = attention_mask[:, -T:] != 0
    return None if bool(kept.all()) else kept


def _check_offsets(name, offsets, tokens):
    if not isinstance(offsets, torch.Tensor) or offsets.ndim != 1 or offsets.is_floating_point() or len(offsets) < 2:
        given = f"shape {tuple(offsets.shape)}" if isinstance(offsets, torch.Tensor) else type(offsets).__name__
        raise ValueError(f"{name}: given {given}; expected a tensor [N+1] of integers, where N sequences start and end")
    first, last = int(offsets[0]), int(offsets[-1])
    if first != 0 or last != tokens or bool((offsets.diff() < 0).any()):
        raise ValueError(f"{name}: given offsets from {first} to {last}; expected them to go up from 0 to {tokens}")


def _of_tokens(name, numbers, B, T):
    if numbers.ndim != 2 or numbers.shape[0] not in (1, B) or numbers.shape[1] != T:
        raise ValueError(f"{name}: given shape {tuple(numbers.shape)}; expected [{B}, {T}], one for each token")
    return numbers.expand(B, T)


def _goes_back(position, before):
    if bool((position > before + 1).any()):
        raise ValueError("position_ids: given positions with a gap; expected each to follow the last or to start again")
    return position <= before


def _starts(numbers, kept, is_start):
    """Offsets of the sequences in numbers [B,T]: each row starts one, and so does a token for which
    is_start(number, that of the token before it in its row). None if the rows are the sequences."""
    B, T = numbers.shape
    if kept is None:
        inside = torch.nn.functional.pad(is_start(numbers[:, 1:], numbers[:, :-1]), (1, 0))
    else:  # the token before is the last that was not padding
        places = kept.flatten().nonzero().flatten()
        rows, tokens = places // T, numbers.flatten()[places]
        same_row = rows[1:] == rows[:-1]
        inside = torch.zeros(B * T, dtype=torch.bool)
        inside[places[1:][same_row]] = is_start(tokens[1:][same_row], tokens[:-1][same_row])
        inside = inside.view(B, T)
    if not bool(inside.any()):
        return None
    inside[:, 0] = True
    return torch.nn.functional.pad(inside.flatten().nonzero().flatten(), (0, 1), value=B * T)

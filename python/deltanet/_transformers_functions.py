"""The functions that accelerate_transformers puts into transformers, with the arguments that transformers passes.

Layers hand on whatever the model was called with, so every function takes more than it needs. Of that, cu_seq_lens_q
[N+1] and seq_idx [1,T] say which sequences share a row; both the convolution and the recurrence follow them.
"""

from __future__ import annotations

import torch

from . import ops

_RECURRENCE_ARGUMENTS = {
    *("query", "key", "value", "g", "beta", "chunk_size", "initial_state", "output_final_state"),
    "use_qk_l2norm_in_kernel",
}
# What transformers' own functions take, and ours know how to treat.
ARGUMENTS = {
    "gated_delta_rule": _RECURRENCE_ARGUMENTS,
    "kda": _RECURRENCE_ARGUMENTS,
    "causal_conv1d_fn": {"hidden_states", "weight", "bias", "activation"},
    "causal_conv1d_update": {"hidden_states", "conv_state", "weight", "bias", "activation"},
}


def _recurrence(operator):
    def run(
        query,
        key,
        value,
        g,
        beta,
        chunk_size=None,  # changes nothing but speed
        initial_state=None,
        output_final_state=False,
        use_qk_l2norm_in_kernel=False,
        cu_seqlens=None,
        cu_seq_lens_q=None,
        seq_idx=None,
        **_,
    ):
        o, state = operator(
            query,
            key,
            value,
            g=g,
            beta=beta,
            initial_state=initial_state,
            output_final_state=output_final_state,
            use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
            cu_seqlens=_offsets(cu_seq_lens_q if cu_seqlens is None else cu_seqlens, seq_idx),
        )
        return o.to(query.dtype), state

    return run


gated_delta_rule = _recurrence(ops.chunk_gated_delta_rule)
kda = _recurrence(ops.chunk_kda)


def causal_conv1d_fn(
    hidden_states=None,
    weight=None,
    bias=None,
    activation=None,
    cu_seq_lens_q=None,
    seq_idx=None,
    x=None,  # the name of hidden_states in version 4
    **_,
):
    """[B,C,T] to [B,C,T]"""
    tokens = (x if hidden_states is None else hidden_states).transpose(1, 2)
    offsets = _offsets(cu_seq_lens_q, seq_idx)
    if offsets is not None:  # a cache may have put tokens in front of those that the offsets count
        offsets = torch.cat([offsets[:1], offsets[1:] + (tokens.shape[1] - offsets[-1])])
    y, _ = ops.short_convolution(
        tokens,
        weight,
        bias,
        activation=activation if activation in ("silu", "swish") else None,
        cu_seqlens=offsets,
    )
    return _activated(y, activation).transpose(1, 2)


def causal_conv1d_update(hidden_states, conv_state, weight, bias=None, activation=None, **_):
    """Decoding: [B,C,T] to [B,C,T], mostly one token, and conv_state [B,C,W], the last inputs, is updated in place."""
    width, tokens = weight.shape[-1], hidden_states.shape[-1]
    if tokens == 1 and conv_state.shape[-1] == width:
        window = torch.cat([conv_state[..., 1:], hidden_states], dim=-1)
        conv_state.copy_(window)
        y = (window * weight).sum(-1, keepdim=True)
    else:  # a cache that records the past keeps more, or has not seen as much yet
        inputs = torch.cat([conv_state, hidden_states], dim=-1)
        conv_state.copy_(inputs[..., -conv_state.shape[-1] :])
        inputs = torch.nn.functional.pad(inputs, (max(0, width - 1 + tokens - inputs.shape[-1]), 0))
        windows = inputs[..., -(width - 1 + tokens) :].unfold(-1, width, 1)
        y = (windows * weight[:, None]).sum(-1)
    if bias is not None:
        y = y + bias[:, None]
    if activation in ("silu", "swish"):
        y = torch.nn.functional.silu(y)
    return _activated(y, activation).to(hidden_states.dtype)


def _activated(y, activation):
    if activation in (None, "silu", "swish"):
        return y
    from transformers.activations import ACT2FN

    return ACT2FN[activation](y)


def _offsets(cu_seqlens, seq_idx):
    """Where the sequences of a row start, and its end; None for one sequence in each row."""
    if cu_seqlens is None and seq_idx is not None:
        if seq_idx.shape[0] != 1:
            raise ValueError(f"seq_idx: given a batch of {seq_idx.shape[0]}; expected packed sequences in a batch of 1")
        starts = seq_idx[0].diff().nonzero().flatten() + 1
        cu_seqlens = torch.cat([starts.new_zeros(1), starts, starts.new_full((1,), seq_idx.shape[1])])
    return cu_seqlens

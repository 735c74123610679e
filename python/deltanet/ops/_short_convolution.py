"""The causal depthwise convolution in front of the recurrences: deltanet::short_conv and its gradient.

PyTorch's own conv1d of this shape takes longer on a CPU than the recurrence behind it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .. import _core
from ._checks import check_offsets, check_rank, check_tensor, is_simple, refuse_tangents, with_memory
from ._library import new_float32, no_second_gradient

_ACTIVATIONS = {None: False, "silu": True, "swish": True}


def short_convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """y_t = act(bias + sum_j weight_j x_{t-(W-1)+j}) for each channel, with gradients.

    x              [B,T,C] of float32, bfloat16 or float16, on the CPU
    weight, bias   [C,W] with W from 1 to 8, [C]
    activation     None, "silu" or "swish"
    initial_state  [N,W-1,C]: the inputs before the start, oldest first; None: zeros
    cu_seqlens     [N+1] offsets that pack N sequences into B = 1

    Returns y in the type of x, and the final state, shaped like the initial one, if asked for.
    """
    if activation not in _ACTIVATIONS:
        raise ValueError(f"activation: given {activation!r}; expected None, 'silu' or 'swish'")
    tensors = {"x": x, "weight": weight, "bias": bias, "initial_state": initial_state}
    if not torch.compiler.is_compiling():
        _check(tensors, cu_seqlens)
        refuse_tangents(tensors.values())
    forward = _forward if is_simple(tensors.values(), cu_seqlens) else _forward_op
    y, final = forward(*tensors.values(), cu_seqlens, _ACTIVATIONS[activation], output_final_state)
    return y, final if output_final_state else None


def _check(tensors, cu_seqlens):
    check_rank("x", tensors["x"], "[B,T,C]")
    check_rank("weight", tensors["weight"], "[C,W]")
    if cu_seqlens is not None:
        check_offsets(cu_seqlens)
    _, _, C, W, N = _shape(tensors["x"], tensors["weight"], cu_seqlens)
    for name, shape, axes in (
        ("weight", (C, W), "[C,W]"),
        ("bias", (C,), "[C]"),
        ("initial_state", (N, W - 1, C), "[N,W-1,C]"),
    ):
        if tensors[name] is not None:
            check_tensor(name, tensors[name], shape, axes)


# ---- kernels


_NAMES = "x", "weight", "bias", "initial_state"


def _dense(name, tensor):
    return None if tensor is None else with_memory(tensor, name).float().contiguous()


def _addresses(*tensors):
    return [0 if tensor is None else tensor.data_ptr() for tensor in tensors]


def _shape(x, weight, cu_seqlens):
    sequences = x.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    return [*x.shape, weight.shape[1], sequences]


def _state_shape(x, weight, cu_seqlens):
    B, T, C, W, N = _shape(x, weight, cu_seqlens)
    return N, W - 1, C


def _offsets(cu_seqlens):
    return [] if cu_seqlens is None else cu_seqlens.tolist()


def _forward(x, weight, bias, initial, cu_seqlens, silu, final_state):
    inputs = [_dense(name, tensor) for name, tensor in zip(_NAMES, (x, weight, bias, initial))]
    y = new_float32(x.shape)
    final = new_float32(_state_shape(x, weight, cu_seqlens) if final_state else (0,))
    _core.short_conv_forward(
        _addresses(*inputs),
        _addresses(y, final if final_state else None),
        _shape(x, weight, cu_seqlens),
        _offsets(cu_seqlens),
        silu,
        torch.get_num_threads(),
    )
    return y.to(x.dtype), final


def _backward(x, weight, bias, initial, cu_seqlens, silu, dy, dfinal):
    given = (x, weight, bias, initial)
    inputs = [_dense(name, tensor) for name, tensor in zip(_NAMES, given)]
    upstream = [_dense("dy", dy), _dense("dfinal", dfinal)]
    grads = [None if tensor is None else new_float32(tensor.shape) for tensor in given]
    _core.short_conv_backward(
        _addresses(*inputs),
        _addresses(*upstream),
        _addresses(*grads),
        _shape(x, weight, cu_seqlens),
        _offsets(cu_seqlens),
        silu,
        torch.get_num_threads(),
    )
    return [grad.to(tensor.dtype) for grad, tensor in zip(grads, given) if tensor is not None]


def _fake_forward(x, weight, bias, initial, cu_seqlens, silu, final_state):
    shape = _state_shape(x, weight, cu_seqlens) if final_state else 0
    return x.new_empty(x.shape), x.new_empty(shape, dtype=torch.float32)


def _fake_backward(x, weight, bias, initial, cu_seqlens, silu, dy, dfinal):
    return [tensor.new_empty(tensor.shape) for tensor in (x, weight, bias, initial) if tensor is not None]


def _keep(ctx, inputs, output):
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:5])
    ctx.silu, ctx.final_state = inputs[5:]


def _gradient(ctx, dy, dfinal):
    tensors = ctx.saved_tensors
    grads = iter(_backward_op(*tensors, ctx.silu, dy, dfinal if ctx.final_state else None))
    return (*[None if tensor is None else next(grads) for tensor in tensors[:4]], None, None, None)


_library = torch.library.Library("deltanet", "FRAGMENT")
_tensors = "Tensor x, Tensor weight, Tensor? bias, Tensor? initial, Tensor? cu_seqlens"
_tags = (torch.Tag.pt2_compliant_tag,)
_library.define(f"short_conv({_tensors}, bool silu, bool final_state) -> (Tensor, Tensor)", tags=_tags)
_library.define(f"short_conv_backward({_tensors}, bool silu, Tensor? dy, Tensor? dfinal) -> Tensor[]", tags=_tags)
_forward_op = torch.ops.deltanet.short_conv.default
_backward_op = torch.ops.deltanet.short_conv_backward.default
_library.impl("short_conv", _forward, "CPU")
_library.impl("short_conv_backward", _backward, "CPU")
torch.library.register_fake("deltanet::short_conv", _fake_forward, lib=_library)
torch.library.register_fake("deltanet::short_conv_backward", _fake_backward, lib=_library)
torch.library.register_autograd("deltanet::short_conv", _gradient, setup_context=_keep, lib=_library)
torch.library.register_autograd("deltanet::short_conv_backward", no_second_gradient, lib=_library)

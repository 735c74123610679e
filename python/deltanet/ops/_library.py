"""The two operators of torch.library that all functions of deltanet.ops call: deltanet::forward and deltanet::backward.

Both take every input that some row has, in the order of the table of the C++ library and None where it is absent, and
the choice of the row. They have kernels for CPU tensors, fake kernels for tracing, and forward has a gradient.
"""

from __future__ import annotations

import atexit
import functools

import torch

from .. import _core
from ._checks import with_memory

INPUTS = _core.INPUT_NAMES
UPSTREAM = [f"d{name}" for name in _core.OUTPUT_NAMES]
STATES = {"A_final": "A0", "P_final": "P0", "G_final": "G0"}  # what a row may carry besides S; never two of them

# Up to this many tokens the recurrent form is faster than the chunk form; both compute the same.
MOST_RECURRENT_TOKENS = 12

# Up to this many updates of an element of the state one thread does it all: the threads of torch, which belong to an
# OpenMP runtime of their own, may still be spinning where ours would run. Chosen by this argument, not measured.
MOST_UPDATES_OF_ONE_THREAD = 1 << 19


class Variant:
    """A row with its options, ready to run. What the row is beside its name is words of "key=value" after it."""

    def __init__(self, row: str, l2norm: bool, scale: float | None, x: float | None, eps: float | None):
        name, *choices = row.split(" ")
        self.spec = _core.Spec.of_row(name)
        self.spec.set_all([tuple(choice.partition("=")[::2]) for choice in choices])
        for key, value in (("scale", scale), ("x", x), ("eps", eps)):
            if value is not None:
                self.spec.set(key, repr(float(value)))
        if l2norm:
            self.spec.set("l2norm", "true")
        self.spec.validate()
        states = [name for name in self.spec.output_names if name in STATES]
        if len(states) > 1:
            raise _core.Error(
                f"row: carries {' and '.join(states)} beside S; expected at most one of them in PyTorch's operators "
                "(deltanet.forward has no such limit)"
            )
        self.state = states[0] if states else None
        self.state_rank = {None: 0, "A_final": 3, "P_final": 4, "G_final": 4}[self.state]


variant_of = functools.lru_cache(maxsize=256)(Variant)
atexit.register(variant_of.cache_clear)  # torch outlives this module and would keep what it has cached


def _state_shapes(variant, q, v, cu_seqlens):
    """Shapes of S_final and of the row's second state, or None."""
    B, _, H, K = q.shape
    _, _, HV, V = v.shape
    N = B if cu_seqlens is None else cu_seqlens.shape[0] - 1
    return (N, HV, K, V), (N, H, K, K)[: variant.state_rank] if variant.state else None


def _thread_count(q, v):
    updates = v.numel() * q.shape[-1]
    return 1 if updates <= MOST_UPDATES_OF_ONE_THREAD else torch.get_num_threads()


def _as_float32(names, tensors):
    return tuple(
        [t if t is None or t.dtype is torch.float32 else with_memory(t, n).float() for n, t in zip(names, tensors)]
    )


def _as_offsets(cu_seqlens):
    return None if cu_seqlens is None else cu_seqlens.to(torch.int64).contiguous()


def new_float32(shape):
    """What the kernels write to, whatever torch.set_default_dtype and set_default_device say."""
    return torch.empty(*shape, dtype=torch.float32, device="cpu")  # single numbers are read faster than a tuple


def run_forward(tensors, cu_seqlens, row, l2norm, scale, x, eps, final_states):
    """o and, if asked for, S_final and the row's second state; None for what there is not."""
    variant = variant_of(row, l2norm, scale, x, eps)
    q, v = tensors[0], tensors[2]
    S_final = second = None
    o = new_float32(v.shape)
    if final_states:
        shape, second_shape = _state_shapes(variant, q, v, cu_seqlens)
        S_final = new_float32(shape)
        second = new_float32(second_shape) if second_shape else None
    _core.torch_forward(
        variant.spec,
        _as_float32(INPUTS, tensors),
        _as_offsets(cu_seqlens),
        _outputs(variant, o, S_final, second),
        q.shape[1] <= MOST_RECURRENT_TOKENS,
        _thread_count(q, v),
    )
    return o if v.dtype is torch.float32 else o.to(v.dtype), S_final, second


def run_backward(tensors, cu_seqlens, row, l2norm, scale, x, eps, do, dS_final, dsecond, wanted):
    """Gradients of the inputs that are wanted, in their order."""
    variant = variant_of(row, l2norm, scale, x, eps)
    chosen = [t if want else None for t, want in zip(tensors, wanted)]
    grads = tuple([None if t is None else new_float32(t.shape) for t in chosen])
    _core.torch_backward(
        variant.spec,
        _as_float32(INPUTS, tensors),
        _as_offsets(cu_seqlens),
        _as_float32(UPSTREAM, _outputs(variant, do, dS_final, dsecond)),
        grads,
        _thread_count(tensors[0], tensors[2]),
    )
    return [grad.to(t.dtype) for grad, t in zip(grads, chosen) if t is not None]


def _outputs(variant, o, S_final, second):
    """The tensors in the order of the table of outputs."""
    return (o, S_final, *[second if name == variant.state else None for name in STATES])


# ---- registration

_TENSORS = ", ".join(f"Tensor{'' if name in ('q', 'k', 'v') else '?'} {name}" for name in (*INPUTS, "cu_seqlens"))
_OPTIONS = "str row, bool l2norm, float? scale, float? x, float? eps"
_INPUT_COUNT = len(INPUTS)
_OPTIONS_END = _INPUT_COUNT + 1 + 5

_library = torch.library.Library("deltanet", "DEF")
_tags = (torch.Tag.pt2_compliant_tag,)
_library.define(f"forward({_TENSORS}, {_OPTIONS}, bool final_states) -> (Tensor, Tensor, Tensor)", tags=_tags)
_library.define(
    f"backward({_TENSORS}, {_OPTIONS}, Tensor? do, Tensor? dS_final, Tensor? dsecond, bool[] wanted) -> Tensor[]",
    tags=_tags,
)
forward_op = torch.ops.deltanet.forward.default
_backward_op = torch.ops.deltanet.backward.default


def _nothing(like):
    """An operator has as many results as its schema says: what was not asked for has no elements."""
    return like.new_empty(0, dtype=torch.float32)


def _forward_kernel(*args):
    o, S_final, second = run_forward(args[:_INPUT_COUNT], *args[_INPUT_COUNT:])
    q = args[0]
    return o, _nothing(q) if S_final is None else S_final, _nothing(q) if second is None else second


def _backward_kernel(*args):
    return run_backward(args[:_INPUT_COUNT], *args[_INPUT_COUNT:])


def _fake_forward(*args):
    q, v, cu_seqlens, final_states = args[0], args[2], args[_INPUT_COUNT], args[-1]
    variant = variant_of(*args[_INPUT_COUNT + 1 : _OPTIONS_END])
    shape, second_shape = _state_shapes(variant, q, v, cu_seqlens) if final_states else (0, 0)
    return (
        v.new_empty(v.shape),
        q.new_empty(shape, dtype=torch.float32),
        q.new_empty(second_shape or 0, dtype=torch.float32),
    )


def _fake_backward(*args):
    return [t.new_empty(t.shape) for t, want in zip(args, args[-1]) if want]


def _keep(ctx, inputs, output):
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[: _INPUT_COUNT + 1])
    ctx.options = inputs[_INPUT_COUNT + 1 : _OPTIONS_END]
    ctx.final_states = inputs[-1]
    ctx.has_second = output[2].numel() > 0 if ctx.final_states else False


def _gradient(ctx, do, dS_final, dsecond):
    wanted = list(ctx.needs_input_grad[:_INPUT_COUNT])
    if not ctx.final_states:
        dS_final = None
    if not ctx.has_second:
        dsecond = None
    grads = iter(_backward_op(*ctx.saved_tensors, *ctx.options, do, dS_final, dsecond, wanted))
    return (*[next(grads) if want else None for want in wanted], *[None] * (1 + len(ctx.options) + 1))


def no_second_gradient(ctx, *_):
    raise NotImplementedError(
        "[backward] create_graph: gradients of gradients are not implemented; expected to differentiate once"
    )


_library.impl("forward", _forward_kernel, "CPU")
_library.impl("backward", _backward_kernel, "CPU")
torch.library.register_fake("deltanet::forward", _fake_forward, lib=_library)
torch.library.register_fake("deltanet::backward", _fake_backward, lib=_library)
torch.library.register_autograd("deltanet::forward", _gradient, setup_context=_keep, lib=_library)
torch.library.register_autograd("deltanet::backward", no_second_gradient, lib=_library)

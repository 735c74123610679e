"""What a tensor must be before its numbers are used. The sizes of a recurrence's inputs are checked in C++."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .._core import Error

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_INTEGERS = (torch.int64, torch.int32)
_PLAIN = (Tensor, torch.nn.Parameter)
_OWN = frozenset((float, type(None)))


def check_tensor(name: str, tensor: Tensor, shape: tuple[int, ...] | None = None, axes: str = "") -> None:
    """A tensor of a type that the operators take, on the CPU; with a shape, of this shape, which `axes` describes."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name}: given {type(tensor).__name__}; expected a tensor")
    if not tensor.is_cpu:
        raise ValueError(f"{name}: given a tensor on {tensor.device}; expected one on the CPU")
    if tensor.dtype not in _FLOATS:
        raise TypeError(f"{name}: given a tensor of {tensor.dtype}; expected float32, bfloat16 or float16")
    if tensor.layout is not torch.strided:
        raise ValueError(f"{name}: given a tensor of layout {tensor.layout}; expected a dense one")
    if shape is not None and tensor.shape != shape:
        raise Error(f"{name}: given shape {list(tensor.shape)}; expected {axes} = {list(shape)}")


def check_rank(name: str, tensor: Tensor, axes: str) -> None:
    check_tensor(name, tensor)
    if tensor.dim() != axes.count(",") + 1:
        raise Error(f"{name}: given shape {list(tensor.shape)}; expected {axes}")


def check_query_key_value(q: Tensor, k: Tensor, v: Tensor) -> None:
    """For functions that combine them before the recurrence sees them."""
    check_rank("q", q, "[B,T,H,K]")
    check_rank("v", v, "[B,T,HV,V]")
    check_tensor("k", k, q.shape, "[B,T,H,K]")
    if v.shape[:2] != q.shape[:2] or q.shape[2] == 0 or v.shape[2] % q.shape[2] != 0:
        raise Error(f"v: given shape {list(v.shape)}; expected [B,T,HV,V] for q of shape {list(q.shape)}")


def check_offsets(cu_seqlens: Tensor) -> None:
    if not isinstance(cu_seqlens, Tensor) or cu_seqlens.dtype not in _INTEGERS:
        given = f"a tensor of {cu_seqlens.dtype}" if isinstance(cu_seqlens, Tensor) else type(cu_seqlens).__name__
        raise TypeError(f"cu_seqlens: given {given}; expected a tensor of int64 or int32")
    if not cu_seqlens.is_cpu:
        raise ValueError(f"cu_seqlens: given a tensor on {cu_seqlens.device}; expected one on the CPU")
    if cu_seqlens.dim() != 1 or cu_seqlens.shape[0] < 2:
        raise Error(f"cu_seqlens: given shape {list(cu_seqlens.shape)}; expected [N+1] with at least one sequence")


def with_memory(tensor: Tensor, name: str) -> Tensor:
    """The tensor; an error where its storage was freed. PyTorch itself would read address 0."""
    if tensor.numel() > 0 and tensor.untyped_storage().data_ptr() == 0:
        raise Error(f"{name}: given a tensor without memory; expected an ordinary one")
    return tensor


def number(name: str, value) -> float | None:
    """A number that selects a kernel, however it was given: a tensor or an array would be known by its identity."""
    if type(value) in _OWN:
        return value
    if isinstance(value, Tensor) and (value.requires_grad or value.numel() != 1):
        what = "that requires a gradient" if value.requires_grad else f"of shape {list(value.shape)}"
        raise TypeError(f"{name}: given a tensor {what}; expected a number")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: given {type(value).__name__}; expected a number") from None


def refuse_tangents(tensors) -> None:
    """Forward-mode differentiation would lose its tangents in a kernel without a word."""
    if forward_ad._current_level < 0:
        return
    for tensor in tensors:
        if isinstance(tensor, Tensor) and forward_ad.unpack_dual(tensor).tangent is not None:
            raise NotImplementedError(
                "forward-mode differentiation (torch.func.jvp, torch.autograd.forward_ad) is not implemented; "
                "expected reverse mode: backward, torch.autograd.grad or torch.autograd.functional.vjp"
            )


def is_simple(tensors, cu_seqlens) -> bool:
    """The common case, found in one pass over the tensors that are not None: check_tensor would find nothing, no
    gradient is wanted, the memory holds the numbers, and nobody else wants to see an operator: no tracing, no mode, no
    functional transform. Then a kernel can be called without the dispatcher, at half the cost of a call."""
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None or forward_ad._current_level >= 0:
        return False
    if cu_seqlens is not None and type(cu_seqlens) not in _PLAIN:
        return False
    gradients = torch.is_grad_enabled()
    for tensor in tensors:
        if tensor is not None and (
            type(tensor) not in _PLAIN
            or tensor.dtype not in _FLOATS
            or not tensor.is_cpu
            or tensor.layout is not torch.strided
            or tensor.is_neg()
            or tensor._is_zerotensor()
            or gradients
            and tensor.requires_grad
        ):
            return False
    return torch._C._len_torch_dispatch_stack() == 0 and torch._C._functorch.peek_interpreter_stack() is None

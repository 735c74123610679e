"""What upstream's options mean on a CPU: gates before the recurrence, layouts of states, and refusals with a reason."""

from __future__ import annotations

import warnings

import torch
import torch.nn.functional as F

from .._core import Error


def refuse(reason: str, **options) -> None:
    """Raises for every option that was given."""
    for name, value in options.items():
        if value is not None and value is not False:
            given = "a tensor" if isinstance(value, torch.Tensor) else repr(value)
            raise Error(f"{name}: given {given}; expected {'False' if value is True else 'None'}: {reason}")


def check_packing(cu_seqlens, cu_seqlens_cpu, cp_context=None) -> None:
    """cu_seqlens_cpu spares a GPU a transfer: here it is only checked that it comes with what it is a copy of."""
    refuse("context parallelism spreads a sequence over GPUs", cp_context=cp_context)
    if cu_seqlens_cpu is not None and cu_seqlens is None:
        raise Error("cu_seqlens_cpu: given without cu_seqlens; expected both or none")


def check_chunk_size(chunk_size) -> None:
    """The size of a chunk never changes results; here the library chooses it."""
    if chunk_size is not None and (not isinstance(chunk_size, int) or chunk_size < 1):
        raise Error(f"chunk_size: given {chunk_size!r}; expected a positive integer or None")


def v_first(state_v_first: bool, transpose_state_layout: bool | None) -> bool:
    """The layout asked for, under its present or its deprecated name."""
    if transpose_state_layout is None:
        return state_v_first
    if state_v_first:
        raise Error("transpose_state_layout: given together with state_v_first; expected one of them")
    warnings.warn("transpose_state_layout is deprecated: use state_v_first", DeprecationWarning, stacklevel=3)
    return transpose_state_layout


def swap(state, state_v_first: bool):
    """[N,HV,K,V] from or to [N,HV,V,K]."""
    if not state_v_first or state is None:
        return state
    if state.dim() != 4:
        raise Error(f"initial_state: given shape {list(state.shape)}; expected [N,HV,V,K]")
    return state.transpose(-1, -2)


def swap_back(state, state_v_first: bool):
    return state.transpose(-1, -2).contiguous() if state_v_first and state is not None else state


def beta_of(beta, v, use_sigmoid: bool, allow_neg_eigval: bool):
    """The gain: 1 when absent, and from logits if asked for: sigmoid(beta), or twice that."""
    if allow_neg_eigval and not use_sigmoid:
        raise Error("allow_neg_eigval: given True; expected it only with use_beta_sigmoid_in_kernel=True")
    if not use_sigmoid:
        return v.new_ones(v.shape[:-1]) if beta is None and isinstance(v, torch.Tensor) else beta
    if not isinstance(beta, torch.Tensor):
        raise TypeError(f"beta: given {type(beta).__name__}; expected a tensor with use_beta_sigmoid_in_kernel=True")
    return beta.float().sigmoid() * (2.0 if allow_neg_eigval else 1.0)


def scalar_gate(g, use_gate: bool, A_log, dt_bias):
    """The log decay of each head: -exp(A_log) softplus(g + dt_bias) if asked for."""
    if not use_gate:
        return g
    _check_parameter("g", g, "[B,T,HV]", None)
    _check_parameter("A_log", A_log, "[HV]", g.shape[-1])
    if dt_bias is None:
        g = g.float()
    else:
        _check_parameter("dt_bias", dt_bias, "[HV]", g.shape[-1])
        g = g.float() + dt_bias.float()
    return -A_log.float().exp() * F.softplus(g)


def diagonal_gate(g, use_gate: bool, A_log, dt_bias, lower_bound):
    """The log decay of each key channel, if asked for: -exp(A_log) softplus(g + dt_bias), or with a lower bound
    lower_bound sigmoid(exp(A_log) (g + dt_bias)), in which A_log may be absent."""
    if not use_gate:
        return g
    _check_parameter("g", g, "[B,T,HV,K]", None)
    heads, width = g.shape[-2:]
    if A_log is not None or lower_bound is None:
        _check_parameter("A_log", A_log, "[HV]", heads)
    if dt_bias is None:
        g = g.float()
    else:
        _check_parameter("dt_bias", dt_bias, "[HV*K]", heads * width)
        g = g.float() + dt_bias.float().view(heads, width)
    rate = None if A_log is None else A_log.float().exp().view(heads, 1)
    if lower_bound is None:
        return -rate * F.softplus(g)
    return lower_bound * torch.sigmoid(g if rate is None else rate * g)


def _check_parameter(name, tensor, shape, count):
    if not isinstance(tensor, torch.Tensor):
        given = type(tensor).__name__
        raise TypeError(f"{name}: given {given}; expected a tensor {shape} with use_gate_in_kernel=True")
    if count is None and tensor.dim() < 2 or count is not None and tensor.numel() != count:
        raise Error(f"{name}: given shape {list(tensor.shape)}; expected {shape}")


def check_safe_gate(safe_gate: bool, use_gate: bool, lower_bound) -> None:
    """safe_gate promises gates that suit a faster GPU kernel; here every gate is exact, so only contradictions matter."""
    if safe_gate and use_gate and (lower_bound is None or not -5 <= lower_bound < 0):
        raise Error(f"lower_bound: given {lower_bound}; expected a number in [-5, 0) with safe_gate=True")


def center_of(log_atk_scale, k):
    """The centre of the squash, one number for each key head; -0.2 when absent."""
    if isinstance(log_atk_scale, torch.Tensor) or not isinstance(k, torch.Tensor) or k.dim() != 4:
        return log_atk_scale
    return torch.full((k.shape[2],), -0.2 if log_atk_scale is None else float(log_atk_scale))

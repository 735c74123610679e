"""What upstream's options mean on a CPU: gates before the recurrence, layouts of states, and refusals with a reason."""

from __future__ import annotations

import warnings

import torch
import torch.nn.functional as F

from .._core import Error
from ._checks import check_rank, check_tensor


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
    if use_sigmoid:
        check_tensor("beta", beta)
        return beta.float().sigmoid() * (2.0 if allow_neg_eigval else 1.0)
    if beta is None:
        check_rank("v", v, "[B,T,HV,V]")
        return v.new_ones(v.shape[:-1])
    return beta


def scalar_gate(g, use_gate: bool, A_log, dt_bias):
    """The log decay of each head: -exp(A_log) softplus(g + dt_bias) if asked for."""
    if not use_gate:
        refuse("use_gate_in_kernel is False", A_log=A_log, dt_bias=dt_bias)
        return g
    check_rank("g", g, "[B,T,HV]")
    check_tensor("A_log", A_log, g.shape[-1:], "[HV]")
    g = g.float()
    if dt_bias is not None:
        check_tensor("dt_bias", dt_bias, g.shape[-1:], "[HV]")
        g = g + dt_bias.float()
    return -A_log.float().exp() * F.softplus(g)


def diagonal_gate(g, use_gate: bool, A_log, dt_bias, lower_bound):
    """The log decay of each key channel, if asked for: -exp(A_log) softplus(g + dt_bias), or with a lower bound
    lower_bound sigmoid(exp(A_log) (g + dt_bias)), in which A_log may be absent."""
    if not use_gate:
        refuse("use_gate_in_kernel is False", A_log=A_log, dt_bias=dt_bias)
        return g
    check_rank("g", g, "[B,T,HV,K]")
    heads, width = g.shape[-2:]
    g = g.float()
    if dt_bias is not None:
        check_tensor("dt_bias", dt_bias)
        if dt_bias.numel() != heads * width:
            raise Error(f"dt_bias: given shape {list(dt_bias.shape)}; expected [HV*K] = [{heads * width}]")
        g = g + dt_bias.float().view(heads, width)
    rate = None
    if A_log is not None or lower_bound is None:
        check_tensor("A_log", A_log)
        if A_log.numel() != heads:
            raise Error(f"A_log: given shape {list(A_log.shape)}; expected [HV] = [{heads}]")
        rate = A_log.float().exp().view(heads, 1)
    if lower_bound is None:
        return -rate * F.softplus(g)
    return lower_bound * torch.sigmoid(g if rate is None else rate * g)


def joint_decay(g, gk):
    """The decay of a head and that of its key channels; either may be absent."""
    if g is None or gk is None:
        return g if gk is None else gk
    check_rank("gk", gk, "[B,T,HV,K]")
    check_tensor("g", g, gk.shape[:3], "[B,T,HV]")
    return gk.float() + g.float().unsqueeze(-1)


def check_safe_gate(safe_gate: bool, use_gate: bool, lower_bound) -> None:
    """safe_gate promises gates that suit a faster GPU kernel; here every gate does, so only contradictions matter."""
    if safe_gate and use_gate and (lower_bound is None or not -5 <= lower_bound < 0):
        raise Error(f"lower_bound: given {lower_bound}; expected a number in [-5, 0) with safe_gate=True")


def center_of(log_atk_scale, k):
    """The centre of the squash, one number for each key head; -0.2 when absent."""
    if log_atk_scale is None:
        log_atk_scale = -0.2
    if not isinstance(log_atk_scale, (int, float)):
        return log_atk_scale
    check_rank("k", k, "[B,T,H,K]")
    return torch.full((k.shape[2],), float(log_atk_scale))

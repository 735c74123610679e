"""What upstream's options mean on a CPU: gates before the recurrence, layouts of states, and refusals with a reason."""

from __future__ import annotations

import warnings

import torch

from .._core import Error
from ._checks import check_rank, check_tensor
from ._gates import fused_gdn_gate, fused_kda_gate


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


def check_chunk_size(chunk_size, *sizes: int) -> None:
    """The size of a chunk never changes results; here the library chooses it. What upstream's kernels do not take is
    refused as there: everything but `sizes`, or, without them, what is not a power of two."""
    if chunk_size is None:
        return
    is_power = isinstance(chunk_size, int) and chunk_size > 0 and chunk_size & (chunk_size - 1) == 0
    if not is_power or sizes and chunk_size not in sizes:
        expected = f"one of {', '.join(map(str, sizes))}" if sizes else "a power of two"
        raise Error(f"chunk_size: given {chunk_size!r}; expected {expected} or None")


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
    """The log decay of each head, computed from g if asked for."""
    if not use_gate:
        refuse("use_gate_in_kernel is False", A_log=A_log, dt_bias=dt_bias)
        return g
    check_rank("g", g, "[B,T,HV]")
    return fused_gdn_gate(g, A_log, dt_bias)


def diagonal_gate(g, use_gate: bool, A_log, dt_bias, lower_bound):
    """The log decay of each key channel, computed from g if asked for."""
    if not use_gate:
        refuse("use_gate_in_kernel is False", A_log=A_log, dt_bias=dt_bias)
        return g
    check_rank("g", g, "[B,T,HV,K]")
    return fused_kda_gate(g, A_log, dt_bias, lower_bound)


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
    """The center of the squash, one number for each key head; -0.2 when absent."""
    if log_atk_scale is None:
        log_atk_scale = -0.2
    if not isinstance(log_atk_scale, (int, float)):
        return log_atk_scale
    check_rank("k", k, "[B,T,H,K]")
    return torch.full((k.shape[2],), float(log_atk_scale), dtype=torch.float32, device="cpu")

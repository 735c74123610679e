"""Kimi Delta Attention: the delta rule on the state with a decay of its own for each key channel."""

from __future__ import annotations

from torch import Tensor

from .._intermediate import check_intermediate, states_between
from .._options import (
    beta_of,
    check_chunk_size,
    check_packing,
    check_safe_gate,
    diagonal_gate,
    swap,
    swap_back,
    v_first,
)
from .._recurrence import recurrence

_NAMES = {"S0": "initial_state"}


def chunk_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    safe_gate: bool = False,
    lower_bound: float | None = None,
    disable_recompute: bool = False,
    return_intermediate_states: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    cp_context: object | None = None,
    use_graph: bool = False,
    max_num_seqs: int | None = None,
    *,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    chunk_size: int | None = None,
    transpose_state_layout: bool | None = None,
) -> tuple[Tensor, Tensor | None] | tuple[Tensor, Tensor | None, Tensor]:
    """q, k [B,T,H,K], v [B,T,HV,V], g [B,T,HV,K], beta [B,T,HV], initial_state [N,HV,K,V], or [N,HV,V,K] with
    state_v_first. Returns o [B,T,HV,V] and the final state, or None.

    With use_gate_in_kernel the log decay is -exp(A_log) softplus(g + dt_bias), or with a lower bound
    lower_bound sigmoid(exp(A_log) (g + dt_bias)); with use_beta_sigmoid_in_kernel the gain is sigmoid(beta), twice that
    with allow_neg_eigval. safe_gate, disable_recompute, use_graph, max_num_seqs and chunk_size only concern a GPU.

    return_intermediate_states, in torch.inference_mode() alone, adds the states before every chunk_size-th token (every
    64th when None) in the type of k: [B,NT,HV,K,V], where NT counts the chunks of all packed sequences.
    """
    check_packing(cu_seqlens, cu_seqlens_cpu, cp_context)
    check_chunk_size(chunk_size, 32, 64)
    check_safe_gate(safe_gate, use_gate_in_kernel, lower_bound)
    state_v_first = v_first(state_v_first, transpose_state_layout)
    o, final_state, _ = recurrence(
        "kda",
        q,
        k,
        v,
        g=diagonal_gate(g, use_gate_in_kernel, A_log, dt_bias, lower_bound),
        beta=beta_of(beta, v, use_beta_sigmoid_in_kernel, allow_neg_eigval),
        S0=swap(initial_state, state_v_first),
        cu_seqlens=cu_seqlens,
        l2norm=use_qk_l2norm_in_kernel,
        scale=scale,
        final_states=output_final_state,
        names=_NAMES,
    )
    final_state = swap_back(final_state, state_v_first)
    if not return_intermediate_states:
        return o, final_state

    def step(tokens, states):
        return chunk_kda(
            **tokens,
            initial_state=states[0],
            output_final_state=True,
            use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
            use_gate_in_kernel=use_gate_in_kernel,
            use_beta_sigmoid_in_kernel=use_beta_sigmoid_in_kernel,
            allow_neg_eigval=allow_neg_eigval,
            lower_bound=lower_bound,
            state_v_first=state_v_first,
            A_log=A_log,
            dt_bias=dt_bias,
        )[1:]

    check_intermediate(disable_recompute)
    tokens = {"q": q, "k": k, "v": v, "g": g, "beta": beta}
    return o, final_state, states_between(step, tokens, [initial_state], cu_seqlens, chunk_size or 64)


def fused_recurrent_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    lower_bound: float | None = None,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    transpose_state_layout: bool | None = None,
) -> tuple[Tensor, Tensor | None]:
    """As chunk_kda."""
    return chunk_kda(
        q,
        k,
        v,
        g,
        beta,
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
        use_gate_in_kernel=use_gate_in_kernel,
        use_beta_sigmoid_in_kernel=use_beta_sigmoid_in_kernel,
        allow_neg_eigval=allow_neg_eigval,
        lower_bound=lower_bound,
        state_v_first=v_first(state_v_first, transpose_state_layout),
        cu_seqlens=cu_seqlens,
        A_log=A_log,
        dt_bias=dt_bias,
    )

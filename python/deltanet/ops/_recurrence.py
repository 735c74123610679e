"""One function for every row: checks what was given in the words of the caller, then runs the operator."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from .. import _option_text
from .._core import Error
from ._checks import check_offsets, check_rank, check_tensor, is_simple, number, refuse_tangents
from ._library import INPUTS, forward_op, run_forward, variant_of


def recurrence(
    row: str | Mapping,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    g: Tensor | None = None,
    beta: Tensor | None = None,
    beta_erase: Tensor | None = None,
    d: Tensor | None = None,
    g_atk: Tensor | None = None,
    beta_atk: Tensor | None = None,
    log_atk_scale: Tensor | None = None,
    ridge: Tensor | None = None,
    a: Tensor | None = None,
    b: Tensor | None = None,
    kk: Tensor | None = None,
    eta: Tensor | None = None,
    k_write: Tensor | None = None,
    k_erase: Tensor | None = None,
    S0: Tensor | None = None,
    A0: Tensor | None = None,
    P0: Tensor | None = None,
    G0: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    l2norm: bool = False,
    scale: float | None = None,
    x: float | None = None,
    eps: float | None = None,
    final_states: bool = False,
    names: Mapping[str, str] = {},  # noqa: B006
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Any row of :func:`deltanet.rows` on tensors of float32, bfloat16 or float16 on the CPU, with gradients.

    row is a name, or a dict of options as in :func:`deltanet.forward`: {"row": "pgdn", "query": "minus_dk"}.
    The inputs are those of :func:`deltanet.forward`, with any strides; what the row needs must be given. scale, x and
    eps are the row's own when None. Returns o in the type of v, and, in float32 with final_states (otherwise None),
    S_final and the row's second state: A_final, P_final or G_final (None for rows without one). `names` says how errors
    call an input, where the caller knows it by another name.

    As many threads run as torch.get_num_threads() says. Gradients can be taken once, in reverse mode, not of gradients.
    That of G0 takes every entry for a variable of its own, as differentiating a solve with any matrix does.
    """
    tensors = (
        *(q, k, v, g, beta, beta_erase, d, g_atk, beta_atk, log_atk_scale, ridge),
        *(a, b, kk, eta, k_write, k_erase, S0, A0, P0, G0),
    )
    if not isinstance(row, str):
        if not isinstance(row, Mapping) or not isinstance(row.get("row", ""), str):
            raise TypeError(f"row: given {row!r}; expected the name of a row or a dict of options such as {{'row': 'gdn'}}")
        row = " ".join([row.get("row", "delta_net"), *(f"{k}={_option_text(k, v)}" for k, v in row.items() if k != "row")])
    options = (row, l2norm, number("scale", scale), number("x", x), number("eps", eps))
    simple = is_simple(tensors, cu_seqlens) and q is not None and v is not None and q.dim() == v.dim() == 4
    if not simple:
        _check(tensors, names)
    if cu_seqlens is not None:
        check_offsets(cu_seqlens)
    if torch.compiler.is_compiling():
        results = forward_op(*tensors, cu_seqlens, *options, final_states)
        has_second = final_states and results[2].shape[0] > 0
        return results[0], results[1] if final_states else None, results[2] if has_second else None
    try:
        if simple:
            return run_forward(tensors, cu_seqlens, *options, final_states)  # spares the cost of the dispatcher
        o, S_final, second = forward_op(*tensors, cu_seqlens, *options, final_states)
    except Error as error:
        raise Error(_in_words_of_caller(str(error), names)) from None
    return o, S_final if final_states else None, second if final_states and variant_of(*options).state else None


def _check(tensors, names):
    for name, tensor in zip(INPUTS, tensors):
        if tensor is not None:
            check_tensor(names.get(name, name), tensor)
    check_rank(names.get("q", "q"), tensors[0], "[B,T,H,K]")  # the sizes of results come from q and v
    check_rank(names.get("v", "v"), tensors[2], "[B,T,HV,V]")
    if not torch.compiler.is_compiling():
        refuse_tangents(tensors)


def _in_words_of_caller(text, names):
    """Errors of the library begin with "[operation] argument:"; that argument may have another name here."""
    operation, bracket, rest = text.partition("] ")
    if bracket and operation.startswith("["):
        text = rest
    argument, colon, rest = text.partition(":")
    return names.get(argument, argument) + colon + rest

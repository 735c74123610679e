"""Delta-rule linear attention on CPUs, on NumPy arrays. Language models are in :class:`Model`.

>>> import deltanet, numpy as np
>>> rng = np.random.default_rng(0)
>>> q, k, v = rng.standard_normal((3, 1, 100, 2, 32), dtype=np.float32)   # each [B,T,H,K]
>>> g = -rng.random((1, 100, 2), dtype=np.float32)                        # log decay, never positive
>>> beta = rng.random((1, 100, 2), dtype=np.float32)
>>> inputs = dict(q=q, k=k, v=v, g=g, beta=beta)
>>> out = deltanet.forward({"row": "gdn", "l2norm": True}, inputs)
>>> out["o"].shape, out["S_final"].shape
((1, 100, 2, 32), (1, 2, 32, 32))
>>> grads = deltanet.backward({"row": "gdn", "l2norm": True}, inputs, {"do": np.ones_like(out["o"])})
>>> sorted(grads)
['beta', 'g', 'k', 'q', 'v']

Rows
----
A row of the table of recurrences is a choice of decay, gain, preconditioner and solve. ``row`` is its name (see
:func:`rows`), or a dict of options ("solve", "decay", "gain", "erase", "key", "query", "squash", "range", "tying",
"tie_gates", "block", "x", "eps", "l2norm", "l2norm_eps", "scale"; what is left out has its default, and a scale of None
means K**-0.5). A dict with the key "row" starts from that row instead: ``{"row": "pgdn", "x": 2.0}``.

Arrays
------
B batch, T tokens, H key heads, U value heads (a multiple of H), K key and V value dimension, N sequences (B, or the
number of packed sequences). Log decays g and g_atk are <= 0. A row takes some of these:

=====================  ===========================================================================
q, k                   [B,T,H,K]
v                      [B,T,U,V]
g                      log decay: scalar [B,T,U], diagonal [B,T,U,K], constant [U]
beta                   [B,T,U]
beta_erase, d          Comba: [B,T,U], [H]
g_atk, beta_atk        [B,T,H]; absent: no decay, gain 1
log_atk_scale          [H]
ridge                  [H,K]; RLS without P0: [H]
a, b, kk, eta          DPLR factors, [B,T,H,K]
k_write, k_erase       free keys [B,T,H,K], used as they are: l2norm is that of q and k
S0, A0, P0, G0         initial states [N,U,K,V], [N,H,K], [N,H,K,K] twice; absent: zero (P0: I/ridge)
cu_seqlens             [N+1] integers, 0 ... T: packs N sequences, some perhaps empty, into B = 1
=====================  ===========================================================================

Results are o [B,T,U,V] and the final states S_final, A_final, P_final, G_final that the row has.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from . import _core, _transformers_hook
from ._core import Error
from .accelerate import accelerate_transformers
from .model import Model, Session, Tokenizer, model_presets

__all__ = [
    "Error",
    "Model",
    "Session",
    "Tokenizer",
    "__version__",
    "accelerate_transformers",
    "backward",
    "default_threads",
    "forward",
    "model_presets",
    "rows",
    "set_simd_target",
    "simd_target",
    "simd_targets",
]

__version__ = _core.version()

_transformers_hook.install()


def rows() -> list[dict]:
    """The table of recurrences, in the paper's order.

    Returns a list of dicts: "name"; "paper", where the paper defines it; "summary"; "spec", the options that define it
    (a dict that forward and backward take as their row); "inputs" and "outputs", the names of its arrays.
    """
    return [
        {
            "name": name,
            "paper": paper,
            "summary": summary,
            "spec": {key: _option_value(key, text) for key, text in spec.options},
            "inputs": [*spec.input_names, "cu_seqlens"],
            "outputs": spec.output_names,
        }
        for name, paper, summary, spec in _core.rows()
    ]


def forward(
    row: str | Mapping,
    inputs: Mapping[str, ArrayLike | None],
    mode: str = "chunk",
    threads: int | None = None,
    check_values: bool = False,
) -> dict[str, np.ndarray]:
    """Outputs and final states of a row.

    row           name or dict of options (see the module's documentation)
    inputs        dict of arrays by name; None counts as absent. float32 arrays are used where they are, with any
                  strides; other real types are converted to float32 first (float64 in mode "reference")
    mode          "chunk": the fast form; "recurrent": token by token; "reference": token by token in float64
    threads       how many threads to use; None: the default of the machine. Not used by "reference"
    check_values  also reject NaN, infinities and positive log decays

    Returns a dict of new arrays: "o" [B,T,U,V], "S_final" [N,U,K,V] and, where the row has them, "A_final" [N,H,K],
    "P_final" and "G_final" [N,H,K,K]; float32, or float64 in mode "reference".

    Raises Error, a ValueError, that names the argument, what was given and what was expected; TypeError for a type that
    cannot be an array, a row or a number.
    """
    spec = _make_spec(row)
    mode = _choice("mode", mode, ("chunk", "recurrent", "reference"))
    threads = _thread_count(threads)
    inputs = _known(inputs, "inputs", [*spec.input_names, "cu_seqlens"])
    if mode == "reference":
        return _core.reference_forward(spec, _doubles(inputs, check_values))
    arrays, cu_seqlens = _floats(inputs)
    return _core.forward(spec, arrays, cu_seqlens, mode, threads, bool(check_values))


def backward(
    row: str | Mapping,
    inputs: Mapping[str, ArrayLike | None],
    grads: Mapping[str, ArrayLike | None],
    threads: int | None = None,
    mode: str = "chunk",
    check_values: bool = False,
) -> dict[str, np.ndarray]:
    """Gradients of sum(o * do) + sum(S_final * dS_final) + ... with respect to every array in inputs.

    row, inputs, threads, check_values   as in forward
    grads         dict of upstream gradients "do", "dS_final", "dA_final", "dP_final", "dG_final", shaped like the
                  results of forward; what is absent or None counts as zero
    mode          "chunk": the fast form; "reference": automatic differentiation of the float64 reference

    Returns a dict of new arrays: the gradient of each given input under the name and in the shape of that input.
    """
    spec = _make_spec(row)
    mode = _choice("mode", mode, ("chunk", "reference"))
    threads = _thread_count(threads)
    inputs = _known(inputs, "inputs", [*spec.input_names, "cu_seqlens"])
    grads = _known(grads, "grads", ["d" + name for name in spec.output_names])
    if mode == "reference":
        return _core.reference_backward(spec, _doubles(inputs, check_values), _doubles(grads, check_values))
    arrays, cu_seqlens = _floats(inputs)
    upstream, _ = _floats(grads)
    return _core.backward(spec, arrays, cu_seqlens, upstream, threads, bool(check_values))


def simd_targets() -> list[str]:
    """SIMD targets that this CPU supports, best first ("AVX3" is AVX-512)."""
    return _core.simd_targets()


def simd_target() -> str:
    """The SIMD target in use."""
    return _core.simd_target()


def set_simd_target(name: str | None = None) -> None:
    """Force one of simd_targets() for this process; None or "" restores the best one."""
    _core.set_simd_target(_string("name", name or ""))


def default_threads() -> int:
    """How many threads are used when threads is None."""
    return _core.default_threads()


# ---- from Python's types to those of _core


def _string(argument, value):
    if not isinstance(value, str):
        raise TypeError(f"{argument}: given {type(value).__name__}; expected str")
    return value


def _choice(argument, value, choices):
    if _string(argument, value) not in choices:
        raise Error(f"{argument}: given {value!r}; expected {', '.join(map(repr, choices))}")
    return value


def _thread_count(threads):
    if threads is None:
        return 0
    if isinstance(threads, (bool, np.bool_)) or not isinstance(threads, (int, np.integer)):
        raise TypeError(f"threads: given {type(threads).__name__}; expected int or None")
    if not 1 <= threads <= 4096:
        raise Error(f"threads: given {threads}; expected a number from 1 to 4096, or None")
    return int(threads)


def _make_spec(row):
    if isinstance(row, str):
        return _core.Spec.of_row(row)
    if not isinstance(row, Mapping):
        raise TypeError(f"row: given {type(row).__name__}; expected the name of a row or a dict of options")
    spec = _core.Spec.of_row(_string("row", row["row"])) if "row" in row else _core.Spec()
    spec.set_all([(_string("row: option name", k), _option_text(k, v)) for k, v in row.items() if k != "row"])
    spec.validate()
    return spec


def _option_text(key, value):
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    if isinstance(value, (int, float, np.integer, np.floating)):
        return repr(float(value))
    raise TypeError(f"row: option {key}: given {type(value).__name__}; expected str, number, bool or None")


def _option_value(key, text):
    if key == "scale" and text == "none":
        return None
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text)
    except ValueError:
        return text


def _known(arrays, argument, names):
    if not isinstance(arrays, Mapping):
        raise TypeError(f"{argument}: given {type(arrays).__name__}; expected a dict of arrays")
    for name in arrays:
        if name not in names:
            raise Error(f"{argument}: given {name!r}; this row takes {', '.join(names)}")
    return {name: value for name, value in arrays.items() if value is not None}


def _real_array(name, value):
    try:
        array = np.asarray(value)
    except ValueError as error:  # ragged lists
        raise TypeError(f"{name}: {error}") from None
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name}: given an array of {array.dtype}; expected real numbers")
    return array


def _offsets(value):
    array = _real_array("cu_seqlens", value)
    if array.dtype.kind not in "iu":
        raise TypeError(f"cu_seqlens: given an array of {array.dtype}; expected integers")
    if array.ndim != 1 or array.size < 2:
        raise Error(f"cu_seqlens: given shape {list(array.shape)}; expected [N+1] with at least one sequence")
    return array.astype(np.int64).tolist()


def _floats(values):
    """float32 arrays, not copied where they already are, and cu_seqlens."""
    arrays = {}
    for name, value in values.items():
        if name == "cu_seqlens":
            continue
        array = np.asarray(_real_array(name, value), dtype=np.float32)
        if not array.flags.aligned or any(step % 4 for step in array.strides):
            array = array.copy()
        arrays[name] = array
    return arrays, _offsets(values["cu_seqlens"]) if "cu_seqlens" in values else []


def _doubles(values, check_values):
    """Dense float64 arrays, cu_seqlens among them."""
    arrays = {}
    for name, value in values.items():
        if name == "cu_seqlens":
            value = _offsets(value)
        array = np.asarray(_real_array(name, value), dtype=np.float64, order="C")
        if check_values and not np.isfinite(array).all():
            raise Error(f"{name}: given NaN or infinity; expected finite values")
        if check_values and name in ("g", "g_atk") and (array > 0).any():
            raise Error(f"{name}: given {array.max()}; expected log decays <= 0")
        arrays[name] = array
    return arrays

"""Our kernels inside the models of transformers: Qwen3-Next, Qwen3.5, OLMo-Hybrid and Kimi-Linear on a CPU.

Their layers call functions that modules of transformers hold under fixed names. This file knows the names, what they
take, and puts ours in their place; _transformers_functions.py has ours. Nothing is imported until it is asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from dataclasses import dataclass, field

from ._core import Error

_KNOWN_VERSIONS = "4.57 and 5.17 to 5.22"
_FAMILIES = {
    "qwen3_next": "gated_delta_rule",
    "qwen3_5": "gated_delta_rule",
    "qwen3_5_moe": "gated_delta_rule",
    "olmo_hybrid": "gated_delta_rule",
    "kimi_linear": "kda",
}
_CONVOLUTIONS = {"causal_conv1d_fn": "causal_conv1d_fn", "causal_conv1d_update": "causal_conv1d_update"}

# Since version 5, forward calls these functions of its module: models that exist already follow.
_FUNCTIONS = {
    "gated_delta_rule": {
        "torch_chunk_gated_delta_rule": "gated_delta_rule",
        "torch_recurrent_gated_delta_rule": "gated_delta_rule",
        **_CONVOLUTIONS,
    },
    "kda": {"chunk_kimi_delta_attention": "kda", "recurrent_kimi_delta_attention": "kda", **_CONVOLUTIONS},
}
# In version 4, a layer keeps what the first of these names held when it was made, under the second: only new models
# follow, and an existing one is changed itself. The fused norm of another package would need a GPU.
_KEPT_FUNCTIONS = {
    "chunk_gated_delta_rule": ("chunk_gated_delta_rule", "gated_delta_rule"),
    "fused_recurrent_gated_delta_rule": ("recurrent_gated_delta_rule", "gated_delta_rule"),
    "causal_conv1d_fn": ("causal_conv1d_fn", "causal_conv1d_fn"),
    "causal_conv1d_update": ("causal_conv1d_update", "causal_conv1d_update"),
    "FusedRMSNormGated": (None, None),
}

# (module, name) -> what it was, and how many accelerations want ours there.
_replaced: dict[tuple, list] = {}


@dataclass
class Acceleration:
    """What accelerate_transformers has changed. undo(), or the end of a with block, changes it back."""

    families: list[str]
    _names: list[tuple] = field(default_factory=list, repr=False)
    _attributes: list[tuple] = field(default_factory=list, repr=False)

    def __enter__(self) -> Acceleration:
        return self

    def __exit__(self, *_) -> None:
        self.undo()

    def undo(self) -> None:
        """Puts transformers' own functions back. Where accelerations overlap, the last undo does."""
        for module, name in self._names:
            entry = _replaced[module, name]
            entry[1] -= 1
            if entry[1] == 0:
                setattr(module, name, entry[0])
                del _replaced[module, name]
        for layer, name, original in reversed(self._attributes):
            setattr(layer, name, original)
        self._names, self._attributes = [], []

    def _replace(self, module, name, function):
        entry = _replaced.setdefault((module, name), [getattr(module, name), 0])
        entry[1] += 1
        setattr(module, name, function)
        self._names.append((module, name))

    def _replace_in_layer(self, layer, name, function):
        self._attributes.append((layer, name, getattr(layer, name)))
        setattr(layer, name, function)


def accelerate_transformers(model=None) -> Acceleration:
    """Lets Qwen3-Next, Qwen3.5, OLMo-Hybrid and Kimi-Linear models of transformers run on our CPU kernels.

    Prefill, decoding and training give the same results, sooner. Packed sequences, which transformers refuses on a CPU,
    are kept apart where the call passes cu_seq_lens_q or seq_idx (with position_ids that start again, for the attention
    layers).

    model  None: all models of these families. A model: those of its families only; needed with transformers 4, where
           a model that exists already keeps its functions

    Returns an Acceleration, which undoes it::

        with deltanet.accelerate_transformers():
            model.generate(...)

    Raises Error, a ValueError, for a version of transformers that it does not know, and names what is missing.
    """
    if importlib.util.find_spec("transformers") is None or importlib.util.find_spec("torch") is None:
        raise ImportError(
            "accelerate_transformers needs PyTorch and transformers; run: pip install deltanet[transformers]"
        )
    modules = _modules_of(model) if model is not None else _installed_modules()
    # Everything is checked before anything is changed.
    kept = {family: "fused_recurrent_gated_delta_rule" in vars(module) for family, module in modules.items()}
    for family, module in modules.items():
        _check(family, module, kept[family])
    from . import _transformers_functions as ours

    acceleration = Acceleration(list(modules))
    for family, module in modules.items():
        if kept[family]:
            for name, (_, function) in _KEPT_FUNCTIONS.items():
                acceleration._replace(module, name, function and getattr(ours, function))
        else:
            for name, function in _FUNCTIONS[_FAMILIES[family]].items():
                acceleration._replace(module, name, getattr(ours, function))
    if model is not None:
        for layer in model.modules():
            if kept.get(_family_of(layer)) and hasattr(layer, "chunk_gated_delta_rule"):
                for attribute, function in _KEPT_FUNCTIONS.values():
                    if attribute:
                        acceleration._replace_in_layer(layer, attribute, getattr(ours, function))
    return acceleration


def _module_name(family):
    return f"transformers.models.{family}.modeling_{family}"


def _family_of(layer):
    return next((family for family in _FAMILIES if type(layer).__module__ == _module_name(family)), None)


def _installed_modules():
    import transformers

    present = [family for family in _FAMILIES if importlib.util.find_spec(f"transformers.models.{family}")]
    if not present:
        raise Error(
            f"transformers: given version {transformers.__version__}, without {', '.join(_FAMILIES)}; {_expected()}"
        )
    return {family: importlib.import_module(_module_name(family)) for family in present}


def _modules_of(model):
    if not callable(getattr(model, "modules", None)):
        raise TypeError(f"model: given {type(model).__name__}; expected a model of transformers or None")
    families = sorted({_family_of(layer) for layer in model.modules()} - {None})
    if not families:
        raise Error(f"model: given {type(model).__name__}; expected a model of {', '.join(_FAMILIES)}")
    return {family: importlib.import_module(_module_name(family)) for family in families}


def _expected():
    return f"expected one that is laid out like {_KNOWN_VERSIONS}"


def _check(family, module, kept):
    """That the module has the functions we replace, and that they take nothing that ours do not know."""
    import transformers

    from ._transformers_functions import ARGUMENTS

    names = _KEPT_FUNCTIONS if kept else _FUNCTIONS[_FAMILIES[family]]
    missing = [name for name in names if not hasattr(module, name)]
    given = f"transformers: given version {transformers.__version__}, where modeling_{family}"
    if missing:
        raise Error(f"{given} has no {', '.join(missing)}; {_expected()}")
    for name, function in names.items():
        if kept or not callable(getattr(module, name)):
            continue
        parameters = inspect.signature(getattr(module, name)).parameters.values()
        unknown = {p.name for p in parameters if p.kind is not p.VAR_KEYWORD} - ARGUMENTS[function]
        if unknown and (module, name) not in _replaced:
            raise Error(f"{given}.{name} takes {', '.join(sorted(unknown))}; {_expected()}")

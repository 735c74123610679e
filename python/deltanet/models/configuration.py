"""Configs with upstream's fields and defaults. Needs transformers, but not torch."""

from __future__ import annotations

import sys

from transformers import PretrainedConfig

from .. import _transformers_hook

# Fields of upstream that would change the result and that these models do not have: what they must be.
_UNSUPPORTED = {
    "hidden_act": ("swish", "silu"),
    "output_gate_activation": ("swish", "silu", "sigmoid"),
    "qk_activation": ("silu",),
    "qk_norm": ("l2",),
    "use_beta": (True,),
    "use_output_norm": (True,),
    "safe_gate": (False,),
    "conv_bias": (False,),
    "lower_bound": (None,),
    "attnres_block_size": (None,),
}
_ATTENTION_DEFAULTS = {"qkv_bias": False, "window_size": None, "rope_theta": 10000.0}

_COMMON = dict(
    attn_mode="chunk",
    use_short_conv=True,
    allow_neg_eigval=False,
    conv_size=4,
    max_position_embeddings=2048,
    hidden_ratio=4,
    intermediate_size=None,
    hidden_act="swish",
    hidden_size=2048,
    num_hidden_layers=24,
    norm_eps=1e-6,
    attn=None,
    use_cache=True,
    initializer_range=0.02,
    fuse_norm=True,
    fuse_swiglu=True,
    fuse_cross_entropy=True,
    use_l2warp=False,
    vocab_size=32000,
    attnres_block_size=None,
)
# Upstream's constructors take their arguments in this order, each those it has.
_ORDER = (
    *("attn_mode", "hidden_size", "expand_k", "expand_v", "use_gate", "use_short_conv", "allow_neg_eigval"),
    *("safe_gate", "lower_bound", "conv_size", "use_beta", "use_output_norm", "head_dim", "num_heads", "num_v_heads"),
    *("qk_norm", "qk_activation", "max_position_embeddings", "hidden_ratio", "intermediate_size", "hidden_act"),
    *("num_hidden_layers", "norm_eps", "attn", "use_cache"),
)
_HEADS_OF_256 = dict(
    expand_v=2.0,
    use_gate=True,
    output_gate_activation="swish",
    head_dim=256,
    num_heads=6,
    num_v_heads=None,
    num_hidden_layers=21,
)
_HEADS_OF_128 = dict(expand_v=1.0, head_dim=128, num_heads=16, num_v_heads=None, safe_gate=False, lower_bound=None)
_PRECONDITIONER = dict(squash_x=1.5, squash_eps=1e-6, log_atk_scale_init=-0.2)


class DeltaConfig(PretrainedConfig):
    """What the six configs share: `fields` are upstream's, with upstream's defaults.

    transformers 5 would write a constructor for a class without one, so each of the six names this one.
    """

    keys_to_ignore_at_inference = ["past_key_values"]
    fields = {}

    def __init__(
        self, *values, bos_token_id=1, eos_token_id=2, pad_token_id=None, tie_word_embeddings=False, **options
    ):
        fields = {**_COMMON, **self.fields}
        order = [name for name in _ORDER if name in fields]
        if len(values) > len(order):
            raise TypeError(f"{type(self).__name__}: given {len(values)} values; expected names from use_cache on")
        for name, value in zip(order, values):
            if name in options:
                raise TypeError(f"{type(self).__name__}: given {name} twice")
            options[name] = value
        for name, default in fields.items():
            setattr(self, name, options.pop(name, default))
        super().__init__(
            bos_token_id=bos_token_id,
            eos_token_id=eos_token_id,
            pad_token_id=pad_token_id,
            tie_word_embeddings=tie_word_embeddings,
            **options,
        )

    def __setattr__(self, name, value):
        """Fields are checked whenever they are set: from_pretrained sets those that it is given after construction."""
        accepted = _UNSUPPORTED.get(name)
        if accepted is not None and value not in accepted:
            expected = " or ".join(map(repr, accepted))
            raise ValueError(f"{name}: given {value!r}; expected {expected}, all that {self.model_type} has")
        if name == "attn":
            value = _checked_attention(value, self.num_hidden_layers)
        super().__setattr__(name, value)

    def attention_of(self, layer_idx: int) -> dict | None:
        """The options of layer layer_idx if it is softmax attention."""
        groups = [self.attn] if isinstance(self.attn, dict) else self.attn or []
        return next((group for group in groups if layer_idx in group["layers"]), None)


def _checked_attention(attn, num_hidden_layers):
    """`attn`: None, or a dict or a list of dicts that say which layers are softmax attention, and of which form."""
    if attn is None:
        return None
    if not isinstance(attn, (dict, list, tuple)):
        raise ValueError(f"attn: given {attn!r}; expected a dict with layers and num_heads, or a list of them")
    groups = [_checked_group(group, num_hidden_layers) for group in ([attn] if isinstance(attn, dict) else attn)]
    named = [layer for group in groups for layer in group["layers"]]
    for layer in named:
        if named.count(layer) > 1:
            raise ValueError(f"attn.layers: given layer {layer} twice; expected each layer at most once")
    return groups[0] if isinstance(attn, dict) else groups


def _checked_group(group, num_hidden_layers):
    """A copy with every field that upstream's has."""
    if not isinstance(group, dict) or not {"layers", "num_heads"} <= group.keys():
        raise ValueError(f"attn: given {group!r}; expected a dict with layers and num_heads")
    group = {**_ATTENTION_DEFAULTS, **group}
    if group.get("num_kv_heads") is None:
        group["num_kv_heads"] = group["num_heads"]
    theta, window = group["rope_theta"], group["window_size"]
    is_number = isinstance(theta, (int, float)) and not isinstance(theta, bool)
    for name, good, expected in (
        ("layers", isinstance(group["layers"], (list, tuple)), "a list of layers"),
        ("num_heads", _is_integer(group["num_heads"], 1), "a positive integer"),
        ("num_kv_heads", _is_integer(group["num_kv_heads"], 1), "a positive integer"),
        ("qkv_bias", isinstance(group["qkv_bias"], bool), "True or False"),
        ("window_size", window is None or _is_integer(window, 1), "a positive integer or None"),
        ("rope_theta", is_number and 0 < theta <= sys.float_info.max, "a positive number"),
    ):
        if not good:
            raise ValueError(f"attn.{name}: given {group[name]!r}; expected {expected}")
    for layer in group["layers"]:
        if not _is_integer(layer, 0) or layer >= num_hidden_layers:
            raise ValueError(f"attn.layers: given {layer!r}; expected layers from 0 to {num_hidden_layers - 1}")
    group["layers"] = list(group["layers"])
    return group


def _is_integer(value, least):
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


class DeltaNetConfig(DeltaConfig):
    model_type = "delta_net"
    __init__ = DeltaConfig.__init__
    fields = dict(
        expand_k=1.0,
        expand_v=1.0,
        use_gate=False,
        num_heads=16,
        use_beta=True,
        use_output_norm=True,
        qk_norm="l2",
        qk_activation="silu",
    )


class GatedDeltaNetConfig(DeltaConfig):
    model_type = "gated_deltanet"
    __init__ = DeltaConfig.__init__
    fields = _HEADS_OF_256


class KDAConfig(DeltaConfig):
    model_type = "kda"
    __init__ = DeltaConfig.__init__
    fields = _HEADS_OF_128


class PrecondDeltaNetConfig(DeltaConfig):
    model_type = "precond_deltanet"
    __init__ = DeltaConfig.__init__
    fields = dict(**_HEADS_OF_256, **_PRECONDITIONER, a_log_init_lower=0)


class PrecondGatedDeltaNetConfig(DeltaConfig):
    model_type = "precond_gated_deltanet"
    __init__ = DeltaConfig.__init__
    fields = dict(**_HEADS_OF_256, **_PRECONDITIONER, a_log_init_lower=0)


class PrecondKDAConfig(DeltaConfig):
    model_type = "precond_kda"
    __init__ = DeltaConfig.__init__
    fields = dict(**_HEADS_OF_128, **_PRECONDITIONER, a_log_init_lower=1)


CONFIGS = (
    DeltaNetConfig,
    GatedDeltaNetConfig,
    KDAConfig,
    PrecondDeltaNetConfig,
    PrecondGatedDeltaNetConfig,
    PrecondKDAConfig,
)

_transformers_hook.register()

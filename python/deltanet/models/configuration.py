"""Configs with upstream's fields and defaults. Needs transformers, but not torch."""

from __future__ import annotations

from transformers import PretrainedConfig

# Fields of upstream that would change the result and that these models do not have: what they must be.
_UNSUPPORTED = {
    "hidden_act": ("swish", "silu"),
    "qk_activation": ("silu",),
    "qk_norm": ("l2",),
    "use_beta": (True,),
    "use_output_norm": (True,),
    "use_l2warp": (False,),
    "safe_gate": (False,),
    "conv_bias": (False,),
    "lower_bound": (None,),
    "attnres_block_size": (None,),
}
_ATTENTION_DEFAULTS = {"num_kv_heads": None, "qkv_bias": False, "window_size": None, "rope_theta": 10000.0}

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

    def __init__(self, bos_token_id=1, eos_token_id=2, pad_token_id=None, tie_word_embeddings=False, **options):
        for name, default in {**_COMMON, **self.fields}.items():
            setattr(self, name, options.pop(name, default))
        for name, accepted in _UNSUPPORTED.items():
            value = options.get(name, getattr(self, name, accepted[0]))
            if value not in accepted:
                expected = " or ".join(map(repr, accepted))
                raise ValueError(f"{name}: given {value!r}; expected {expected}, all that {self.model_type} has")
        self.attn = _checked_attention(self.attn, self.num_hidden_layers)
        super().__init__(
            bos_token_id=bos_token_id,
            eos_token_id=eos_token_id,
            pad_token_id=pad_token_id,
            tie_word_embeddings=tie_word_embeddings,
            **options,
        )

    def attention_of(self, layer_idx: int) -> dict | None:
        """The options of layer layer_idx if it is softmax attention."""
        groups = [self.attn] if isinstance(self.attn, dict) else self.attn or []
        return next((group for group in groups if layer_idx in group["layers"]), None)


def _checked_attention(attn, num_hidden_layers):
    """`attn`: None, or a dict or a list of dicts that say which layers are softmax attention, and of which form."""
    if attn is None:
        return None
    if isinstance(attn, (list, tuple)):
        return [_checked_attention(group, num_hidden_layers) for group in attn]
    if not isinstance(attn, dict) or not {"layers", "num_heads"} <= attn.keys():
        raise ValueError(f"attn: given {attn!r}; expected a dict with layers and num_heads")
    for layer in attn["layers"]:
        if not 0 <= layer < num_hidden_layers:
            raise ValueError(f"attn.layers: given {layer}; expected layers from 0 to {num_hidden_layers - 1}")
    return {**_ATTENTION_DEFAULTS, "num_kv_heads": attn["num_heads"], **attn}


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

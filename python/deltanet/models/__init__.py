"""The six language models as transformers' PreTrainedModels. Configs need transformers, models also torch.

After ``import deltanet``, transformers' AutoConfig, AutoModel and AutoModelForCausalLM know them:

>>> import deltanet
>>> from transformers import AutoModelForCausalLM
>>> model = AutoModelForCausalLM.from_pretrained("a/checkpoint/of/flash-linear-attention")
"""

from .configuration import (
    DeltaConfig,
    DeltaNetConfig,
    GatedDeltaNetConfig,
    KDAConfig,
    PrecondDeltaNetConfig,
    PrecondGatedDeltaNetConfig,
    PrecondKDAConfig,
)

_NAMES = ("DeltaNet", "GatedDeltaNet", "KDA", "PrecondDeltaNet", "PrecondGatedDeltaNet", "PrecondKDA")
_MODELS = (*(name + "Model" for name in _NAMES), *(name + "ForCausalLM" for name in _NAMES))

__all__ = [
    "DeltaConfig",
    "DeltaNetConfig",
    "GatedDeltaNetConfig",
    "KDAConfig",
    "PrecondDeltaNetConfig",
    "PrecondGatedDeltaNetConfig",
    "PrecondKDAConfig",
    *_MODELS,
    "register",
]


def __getattr__(name):
    if name not in _MODELS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import modeling  # torch is imported when a model is wanted, not for a config

    return getattr(modeling, name)


def register() -> None:
    """Makes transformers' Auto classes use these models, also where another package has registered the same types.

    ``import deltanet`` registers them where nobody else has.
    """
    from . import registration

    registration.register_configs(replace=True)
    registration.register_models(replace=True)

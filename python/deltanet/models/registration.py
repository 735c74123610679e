"""Our model types in the tables of transformers' Auto classes."""

from __future__ import annotations

from .configuration import CONFIGS


def register_configs(replace: bool = False) -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING, AutoConfig

    for config in CONFIGS:
        if replace or config.model_type not in CONFIG_MAPPING:
            AutoConfig.register(config.model_type, config, exist_ok=True)


def register_models(replace: bool = False) -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import AutoModel, AutoModelForCausalLM

    from .modeling import MODELS

    register_configs(replace)
    for model, causal_lm in MODELS:
        if CONFIG_MAPPING[model.config_class.model_type] is model.config_class:
            AutoModel.register(model.config_class, model, exist_ok=True)
            AutoModelForCausalLM.register(causal_lm.config_class, causal_lm, exist_ok=True)

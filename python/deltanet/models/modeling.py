"""The six language models for transformers, one implementation: embedding, blocks, norm, head."""

from __future__ import annotations

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from .. import _transformers_hook, layers
from ..layers.cache import check_cache
from ..layers.modules import initialize, mlp_width
from ..layers.packing import pack, refuse_unknown, unpack
from . import configuration
from .l2warp import l2_warp

_MIXERS = {
    "delta_net": layers.DeltaNet,
    "gated_deltanet": layers.GatedDeltaNet,
    "kda": layers.KimiDeltaAttention,
    "precond_deltanet": layers.PrecondDeltaNet,
    "precond_gated_deltanet": layers.PrecondGatedDeltaNet,
    "precond_kda": layers.PrecondKDA,
}
# Fields of a config that are arguments of its mixer.
_MIXER_FIELDS = (
    *("hidden_size", "expand_k", "expand_v", "head_dim", "num_heads", "num_v_heads", "use_gate", "use_short_conv"),
    *("conv_size", "allow_neg_eigval", "norm_eps", "output_gate_activation", "squash_x", "squash_eps"),
    *("log_atk_scale_init", "a_log_init_lower"),
)
_LOSS_OPTIONS = ("num_items_in_batch", "ignore_index", "shift_labels")


def _wants_dict(config, return_dict):
    return config.return_dict if return_dict is None else return_dict


def _make_mixer(config, layer_idx):
    attention = config.attention_of(layer_idx)
    if attention is not None:
        options = {
            key: attention[key] for key in ("num_heads", "num_kv_heads", "qkv_bias", "window_size", "rope_theta")
        }
        return layers.Attention(config.hidden_size, **options, layer_idx=layer_idx)
    options = {name: getattr(config, name) for name in _MIXER_FIELDS if hasattr(config, name)}
    return _MIXERS[config.model_type](**options, mode=config.attn_mode, layer_idx=layer_idx)


class DeltaBlock(GradientCheckpointingLayer, layers.Block):
    def __init__(self, config, layer_idx: int):
        width = config.intermediate_size or mlp_width(config.hidden_size, config.hidden_ratio)
        super().__init__(_make_mixer(config, layer_idx), config.hidden_size, width, config.norm_eps)


class DeltaPreTrainedModel(PreTrainedModel):
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["DeltaBlock"]
    _is_stateful = True  # no way back to an earlier token, which assisted decoding would need

    def _init_weights(self, module):
        def normal(parameter):
            return torch.empty_like(parameter).normal_(std=self.config.initializer_range)

        if isinstance(module, (nn.Linear, nn.Conv1d, nn.Embedding)):
            initialize(module.weight, normal)
            if getattr(module, "bias", None) is not None:
                initialize(module.bias, torch.zeros_like)
        elif isinstance(module, (layers.RMSNorm, layers.DeltaMixer)):
            module.reset_parameters()


class DeltaModel(DeltaPreTrainedModel):
    """Token ids to the normalized output of the last block."""

    _input_embed_layer = "embeddings"

    def __init__(self, config):
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size, config.pad_token_id)
        self.layers = nn.ModuleList(DeltaBlock(config, layer_idx) for layer_idx in range(config.num_hidden_layers))
        self.norm = layers.RMSNorm(config.hidden_size, config.norm_eps)
        self.gradient_checkpointing = False
        self.post_init()

    def get_input_embeddings(self):
        return self.embeddings

    def set_input_embeddings(self, embeddings):
        self.embeddings = embeddings

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        past_key_values: layers.RecurrentCache | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        output_attentions: bool | None = None,
        cu_seqlens: torch.Tensor | None = None,
        cu_seq_lens_q: torch.Tensor | None = None,
        seq_idx: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        **others,
    ):
        """input_ids [B,T]; attention_mask [B,T], zero for padding on any side.

        Sequences that are packed into a row are kept apart where one of these says so: cu_seqlens or cu_seq_lens_q
        [N+1], offsets; seq_idx [B,T], a number for each sequence; position_ids [B,T] that start again. Positions have
        no other effect. Padding tokens are left out of everything; their outputs are zero.
        """
        refuse_unknown(f"{type(self).__name__}.forward", {"output_attentions": output_attentions, **others})
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("input_ids: expected either input_ids or inputs_embeds")
        hidden_states = self.embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        B, T = hidden_states.shape[:2]
        if T == 0:
            raise ValueError(f"input_ids: given {B} sequences without a token; expected at least one")
        if use_cache is None:
            use_cache = self.config.use_cache and not self.training
        if use_cache and past_key_values is None:
            past_key_values = layers.RecurrentCache()
        if past_key_values is not None:
            check_cache(past_key_values)
        hidden_states, cu_seqlens, places = pack(
            hidden_states, attention_mask, cu_seqlens, cu_seq_lens_q, seq_idx, position_ids
        )

        all_hidden_states = []
        for block in self.layers:
            all_hidden_states.append(hidden_states)
            hidden_states = block(
                hidden_states, past_key_values=past_key_values, use_cache=use_cache, cu_seqlens=cu_seqlens
            )
        hidden_states = self.norm(hidden_states)
        all_hidden_states.append(hidden_states)
        if use_cache:
            past_key_values.seen_tokens += T

        wants_all = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        outputs = BaseModelOutputWithPast(
            last_hidden_state=unpack(hidden_states, places, B, T),
            past_key_values=past_key_values if use_cache else None,
            hidden_states=tuple(unpack(h, places, B, T) for h in all_hidden_states) if wants_all else None,
        )
        return outputs if _wants_dict(self.config, return_dict) else outputs.to_tuple()


class DeltaForCausalLM(DeltaPreTrainedModel, GenerationMixin):
    """The language model: DeltaModel and a head, tied to the embeddings where the config says so."""

    _tied_weights_keys = {"lm_head.weight": "model.embeddings.weight"}
    accepts_loss_kwargs = True  # num_items_in_batch

    def __init__(self, config):
        super().__init__(config)
        self.model = DeltaModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self):
        return self.model.embeddings

    def set_input_embeddings(self, embeddings):
        self.model.embeddings = embeddings

    def get_output_embeddings(self):
        return self.lm_head

    def set_output_embeddings(self, head):
        self.lm_head = head

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # forward makes a RecurrentCache

    def prepare_inputs_for_generation(
        self,
        input_ids,
        next_sequence_length=None,
        past_key_values=None,
        attention_mask=None,
        inputs_embeds=None,
        is_first_iteration=None,
        use_cache=True,
        **options,
    ):
        """Only the tokens that the cache has not seen: the last next_sequence_length, where transformers says so."""
        for name in ("cu_seq_lens_q", "seq_idx"):
            if options.get(name) is not None:
                raise ValueError(f"{name}: given to generate; expected a batch with padding, which has a next token")
        seen = past_key_values.get_seq_length() if past_key_values is not None else 0
        from_embeds = inputs_embeds is not None and (seen == 0 if is_first_iteration is None else is_first_iteration)
        if from_embeds:
            name, tokens, unseen = "inputs_embeds", inputs_embeds, inputs_embeds.shape[1] - seen
        else:
            # A prompt given as embeddings is not in input_ids. Nor are virtual tokens, which adapters put in front of a
            # prompt: the cache has then seen more than there is, but never the last token.
            prompt = inputs_embeds.shape[1] if inputs_embeds is not None else 0
            name, tokens, unseen = "input_ids", input_ids, max(prompt + input_ids.shape[1] - seen, 1)
        if next_sequence_length is None:  # with is_first_iteration, which came with it: everything
            next_sequence_length = tokens.shape[1] if is_first_iteration is not None else min(unseen, tokens.shape[1])
        tokens = tokens[:, tokens.shape[1] - next_sequence_length :].contiguous()
        inputs = {name: tokens, "attention_mask": attention_mask, "past_key_values": past_key_values}
        if options.get("position_ids") is not None:
            inputs["position_ids"] = options["position_ids"][:, -tokens.shape[1] :]
        if "logits_to_keep" in options:
            inputs["logits_to_keep"] = options["logits_to_keep"]
        return {**inputs, "use_cache": use_cache}

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        past_key_values: layers.RecurrentCache | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        logits_to_keep: int | torch.Tensor | None = 0,
        output_attentions: bool | None = None,
        cu_seqlens: torch.Tensor | None = None,
        cu_seq_lens_q: torch.Tensor | None = None,
        seq_idx: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        **others,
    ):
        """As DeltaModel. labels [B,T] are the input ids, -100 where a token does not count; logits_to_keep: how many
        of the last tokens get logits, 0 for all. As transformers' loss does, this takes num_items_in_batch, by which
        the sum of the losses is divided instead of their number; ignore_index; shift_labels, the tokens that follow.
        """
        # Not in the signature: the Trainer would take all of labels' names there for columns that a batch must have.
        loss_options = {name: others.pop(name) for name in _LOSS_OPTIONS if others.get(name) is not None}
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            past_key_values=past_key_values,
            use_cache=use_cache,
            output_hidden_states=output_hidden_states,
            output_attentions=output_attentions,
            cu_seqlens=cu_seqlens,
            cu_seq_lens_q=cu_seq_lens_q,
            seq_idx=seq_idx,
            position_ids=position_ids,
            return_dict=True,
            **others,
        )
        kept = slice(-(logits_to_keep or 0), None) if not torch.is_tensor(logits_to_keep) else logits_to_keep
        logits = self.lm_head(outputs.last_hidden_state[:, kept])
        loss = None
        if labels is not None or "shift_labels" in loss_options:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **loss_options)
            if self.config.use_l2warp:
                loss = l2_warp(loss, logits, loss_options.get("num_items_in_batch"))
        result = CausalLMOutputWithPast(
            loss=loss, logits=logits, past_key_values=outputs.past_key_values, hidden_states=outputs.hidden_states
        )
        return result if _wants_dict(self.config, return_dict) else result.to_tuple()


def _models_of(name, config_class):
    """The classes of one model type. They differ in nothing but their name and config."""
    body = {"config_class": config_class, "__module__": __name__, "__doc__": f"{name}: see docs/models.md."}
    return type(name + "Model", (DeltaModel,), dict(body)), type(name + "ForCausalLM", (DeltaForCausalLM,), dict(body))


DeltaNetModel, DeltaNetForCausalLM = _models_of("DeltaNet", configuration.DeltaNetConfig)
GatedDeltaNetModel, GatedDeltaNetForCausalLM = _models_of("GatedDeltaNet", configuration.GatedDeltaNetConfig)
KDAModel, KDAForCausalLM = _models_of("KDA", configuration.KDAConfig)
PrecondDeltaNetModel, PrecondDeltaNetForCausalLM = _models_of("PrecondDeltaNet", configuration.PrecondDeltaNetConfig)
PrecondGatedDeltaNetModel, PrecondGatedDeltaNetForCausalLM = _models_of(
    "PrecondGatedDeltaNet", configuration.PrecondGatedDeltaNetConfig
)
PrecondKDAModel, PrecondKDAForCausalLM = _models_of("PrecondKDA", configuration.PrecondKDAConfig)

MODELS = (
    (DeltaNetModel, DeltaNetForCausalLM),
    (GatedDeltaNetModel, GatedDeltaNetForCausalLM),
    (KDAModel, KDAForCausalLM),
    (PrecondDeltaNetModel, PrecondDeltaNetForCausalLM),
    (PrecondGatedDeltaNetModel, PrecondGatedDeltaNetForCausalLM),
    (PrecondKDAModel, PrecondKDAForCausalLM),
)

_transformers_hook.register()

"""Golden and random models for the tests of deltanet.layers and deltanet.models."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from conftest import normwise_error
from deltanet import models

GOLDEN = Path(__file__).parents[1] / "golden" / "models"
NAMES = sorted(path.name for path in GOLDEN.iterdir())
KINDS = ("pgdn_grouped_gated", "pkda_grouped", "delta_net_gated")  # one of each kind of cache and gate
CONFIGS = {config.model_type: config for config in models.configuration.CONFIGS}


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """These models are so small that more threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def load(name, **options):
    return transformers.AutoModelForCausalLM.from_pretrained(GOLDEN / name, **options).eval()


def small_config(model_type, **options):
    sizes = dict(hidden_size=64, num_heads=2, num_hidden_layers=2, vocab_size=64, intermediate_size=64)
    if model_type != "delta_net":
        sizes.update(head_dim=16, expand_v=1.5)
    return CONFIGS[model_type](**{**sizes, **options})


def small_model(model_type="precond_gated_deltanet", **options):
    """Random weights far from the start, where mixers hardly matter."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(small_config(model_type, **options)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def hybrid(**options):
    """The second of two layers is softmax attention."""
    attention = dict(layers=[1], num_heads=4, num_kv_heads=2, qkv_bias=True)
    return small_model(attn={**attention, **options})


def tensor(array):
    return torch.tensor(np.asarray(array))


def random_ids(model, *shape):
    return tensor(np.random.default_rng(0).integers(3, model.config.vocab_size, shape))


def error(actual, expected):
    if isinstance(expected, torch.Tensor):
        expected = expected.detach().numpy()
    return normwise_error(actual.detach().numpy(), expected)


def gradients(model, loss):
    """Of all parameters, in one vector."""
    model.zero_grad()
    loss.backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def padded(ids, lengths, side):
    """ids with some tokens of each row masked out, and the mask; the padding is a token that would be noticed."""
    T = ids.shape[1]
    columns = torch.arange(T).expand_as(ids)
    lengths = torch.tensor(lengths)[:, None]
    mask = (columns >= T - lengths if side == "left" else columns < lengths).long()
    return torch.where(mask == 1, ids, 2), mask

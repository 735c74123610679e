"""deltanet.accelerate_transformers: the models of transformers give the same results with and without it."""

import importlib
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import deltanet
from conftest import normwise_error

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from deltanet import accelerate  # noqa: E402
from torch_models import one_thread as one_thread  # noqa: E402

SMALL = dict(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    num_attention_heads=2,
    num_key_value_heads=2,
    head_dim=16,
    pad_token_id=0,
    bos_token_id=None,
    eos_token_id=None,
)
MOE = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=16)
GATED = dict(linear_key_head_dim=16, linear_value_head_dim=24, linear_num_key_heads=2, linear_num_value_heads=4)
MIXED = ["linear_attention", "full_attention", "linear_attention"]
LATENT = dict(kv_lora_rank=16, q_lora_rank=None, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16)


@pytest.fixture(autouse=True)
def torch_functions(monkeypatch):
    """transformers' own functions, also where another package would take their place and need a GPU."""
    for family in accelerate._FAMILIES:
        module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
        for name in accelerate._FUNCTIONS[accelerate._FAMILIES[family]]:
            monkeypatch.setattr(module, name, getattr(module, name).__wrapped__)


def make(name, config_name, **options):
    torch.manual_seed(0)
    config = getattr(transformers, config_name)(**{**SMALL, **options})
    model = getattr(transformers, name)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # far from the start, where mixers hardly matter
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


FAMILIES = {
    "qwen3_next": lambda: make(
        "Qwen3NextForCausalLM", "Qwen3NextConfig", num_hidden_layers=3, layer_types=MIXED, **GATED, **MOE
    ),
    "qwen3_5": lambda: make("Qwen3_5ForCausalLM", "Qwen3_5TextConfig", num_hidden_layers=3, layer_types=MIXED, **GATED),
    "qwen3_5_moe": lambda: make(
        "Qwen3_5MoeForCausalLM", "Qwen3_5MoeTextConfig", num_hidden_layers=3, layer_types=MIXED, **GATED, **MOE
    ),
    "olmo_hybrid": lambda: make(
        "OlmoHybridForCausalLM", "OlmoHybridConfig", num_hidden_layers=3, layer_types=MIXED, **GATED
    ),
    "kimi_linear": lambda: make(
        "KimiLinearForCausalLM",
        "KimiLinearConfig",
        num_hidden_layers=3,
        layer_types=MIXED,
        linear_head_dim=16,
        linear_num_heads=4,
        num_local_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        **LATENT,
    ),
}


@pytest.fixture(params=FAMILIES)
def model(request):
    return FAMILIES[request.param]()


@pytest.fixture
def ids():
    return torch.from_numpy(np.random.default_rng(0).integers(1, 64, (2, 70)))


def error(actual, expected):
    return normwise_error(actual.detach().numpy(), expected.detach().numpy())


def gradients(model, *args, **options):
    model.zero_grad()
    model(*args, use_cache=False, **options).loss.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@torch.no_grad()
def test_prefill(model, ids):
    expected = model(ids).logits
    with deltanet.accelerate_transformers():
        assert error(model(ids).logits, expected) <= 1e-5


@torch.no_grad()
def test_left_padding(model, ids):
    mask = torch.ones_like(ids)
    mask[0, :30] = 0
    expected = model(ids, attention_mask=mask).logits
    with deltanet.accelerate_transformers():
        assert error(model(ids, attention_mask=mask).logits[mask == 1], expected[mask == 1]) <= 1e-5


def test_training(model, ids):
    expected = gradients(model, ids, labels=ids)
    with deltanet.accelerate_transformers():
        assert error(gradients(model, ids, labels=ids), expected) <= 1e-4


def test_decoding(model, ids):
    options = dict(max_new_tokens=12, do_sample=False, output_logits=True, return_dict_in_generate=True)
    expected = model.generate(ids, **options)
    with deltanet.accelerate_transformers():
        given = model.generate(ids, **options)
    assert error(torch.stack(given.logits), torch.stack(expected.logits)) <= 1e-5
    assert torch.equal(given.sequences, expected.sequences)


@pytest.mark.parametrize("how", ["cu_seq_lens", "seq_idx"])
def test_packed_sequences_are_apart(model, ids, how):
    first, second = ids[:1, :33], ids[1:, :37]
    packed = torch.cat([first, second], dim=1)
    positions = torch.cat([torch.arange(33), torch.arange(37)])[None]
    if how == "seq_idx":
        apart = dict(seq_idx=torch.tensor([[0] * 33 + [1] * 37], dtype=torch.int32))
    else:
        offsets = torch.tensor([0, 33, 70], dtype=torch.int32)
        apart = dict(cu_seq_lens_q=offsets, cu_seq_lens_k=offsets, max_length_q=37, max_length_k=37)
    with torch.no_grad():
        expected = torch.cat([model(part, use_cache=False).logits for part in (first, second)], dim=1)
        with deltanet.accelerate_transformers(model):
            logits = model(packed, position_ids=positions, use_cache=False, **apart).logits
    assert error(logits, expected) <= 1e-5


def test_bfloat16(ids):
    model = FAMILIES["qwen3_next"]().to(torch.bfloat16)
    expected = model(ids).logits
    with deltanet.accelerate_transformers(model):
        logits = model(ids).logits
    assert logits.dtype == torch.bfloat16 and error(logits.float(), expected.float()) < 3e-2


def test_it_is_used_and_undone(monkeypatch):
    module = importlib.import_module("transformers.models.qwen3_next.modeling_qwen3_next")
    before = module.torch_chunk_gated_delta_rule
    outer = deltanet.accelerate_transformers()
    ours = module.torch_chunk_gated_delta_rule
    assert ours is not before and "qwen3_next" in outer.families
    with deltanet.accelerate_transformers():
        assert module.torch_chunk_gated_delta_rule is ours
    assert module.torch_chunk_gated_delta_rule is ours
    outer.undo()
    outer.undo()
    assert module.torch_chunk_gated_delta_rule is before


def test_only_the_families_of_a_model():
    kimi = importlib.import_module("transformers.models.kimi_linear.modeling_kimi_linear")
    before = kimi.chunk_kimi_delta_attention
    with deltanet.accelerate_transformers(FAMILIES["qwen3_next"]()) as acceleration:
        assert acceleration.families == ["qwen3_next"] and kimi.chunk_kimi_delta_attention is before


def test_unknown_versions_are_named(monkeypatch):
    module = importlib.import_module("transformers.models.kimi_linear.modeling_kimi_linear")
    first = importlib.import_module("transformers.models.qwen3_next.modeling_qwen3_next")
    before = first.causal_conv1d_fn
    with monkeypatch.context() as patch:
        patch.delattr(module, "causal_conv1d_update")
        with pytest.raises(ValueError, match=r"modeling_kimi_linear has no causal_conv1d_update; expected"):
            deltanet.accelerate_transformers()
    with monkeypatch.context() as patch:
        patch.setattr(module, "causal_conv1d_fn", lambda hidden_states, weight, dilation: None)
        with pytest.raises(ValueError, match=r"causal_conv1d_fn takes dilation; expected"):
            deltanet.accelerate_transformers()
    assert first.causal_conv1d_fn is before


def test_layers_that_keep_their_functions(monkeypatch):
    """The layout of version 4: a layer keeps what its module held when it was made."""
    name = "transformers.models.qwen3_next.modeling_qwen3_next"
    module = ModuleType(name)
    theirs = {key: (lambda: None) for key in accelerate._KEPT_FUNCTIONS}
    vars(module).update(theirs)
    monkeypatch.setitem(sys.modules, name, module)

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.chunk_gated_delta_rule = module.chunk_gated_delta_rule
            self.recurrent_gated_delta_rule = module.fused_recurrent_gated_delta_rule
            self.causal_conv1d_fn = module.causal_conv1d_fn
            self.causal_conv1d_update = module.causal_conv1d_update

    Layer.__module__ = name
    old = Layer()
    kept = {key: value for key, value in vars(old).items() if callable(value)}
    with deltanet.accelerate_transformers(torch.nn.Sequential(old)):
        new = Layer()
        for key in kept:
            assert getattr(old, key) is getattr(new, key) is not kept[key]
        assert module.FusedRMSNormGated is None
    assert all(getattr(old, key) is kept[key] for key in kept)
    assert all(getattr(module, key) is theirs[key] for key in theirs)


def test_other_models_are_refused():
    with pytest.raises(ValueError, match="model: given Linear"):
        deltanet.accelerate_transformers(torch.nn.Linear(2, 2))
    with pytest.raises(TypeError, match="model: given SimpleNamespace"):
        deltanet.accelerate_transformers(SimpleNamespace())


def convolved(x, weight, bias):
    """The causal convolution of one sequence, [1,C,T]."""
    x = torch.nn.functional.pad(x, (weight.shape[-1] - 1, 0))
    return torch.nn.functional.conv1d(x, weight[:, None], bias, groups=len(weight))


@pytest.mark.parametrize("how", ["cu_seq_lens_q", "seq_idx"])
@pytest.mark.parametrize("activation", [None, "silu", "gelu"])
@pytest.mark.parametrize("name", ["hidden_states", "x"])
def test_convolution_of_packed_sequences(how, activation, name):
    from deltanet._transformers_functions import causal_conv1d_fn

    x, weight, bias = torch.randn(1, 5, 20), torch.randn(5, 4), torch.randn(5)
    if how == "seq_idx":
        apart = torch.tensor([[7] * 6 + [2] + [7] * 13], dtype=torch.int32)
    else:
        apart = torch.tensor([0, 6, 7, 20], dtype=torch.int32)
    actual = causal_conv1d_fn(**{name: x}, weight=weight, bias=bias, activation=activation, **{how: apart})
    expected = torch.cat([convolved(part, weight, bias) for part in x.split([6, 1, 13], dim=-1)], dim=-1)
    act = {None: lambda y: y, "silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu}[activation]
    torch.testing.assert_close(actual, act(expected))


def test_convolution_of_packed_sequences_behind_a_cache():
    """transformers puts what the cache holds in front of the tokens, where the offsets do not count it: it belongs to
    the first sequence, and what follows from it alone is cut off afterwards."""
    from deltanet._transformers_functions import causal_conv1d_fn

    x, weight = torch.randn(1, 5, 3 + 20), torch.randn(5, 4)
    actual = causal_conv1d_fn(x, weight, cu_seq_lens_q=torch.tensor([0, 6, 7, 20], dtype=torch.int32))
    expected = torch.cat([convolved(part, weight, None) for part in x.split([3 + 6, 1, 13], dim=-1)], dim=-1)
    torch.testing.assert_close(actual, expected)


def test_seq_idx_of_a_batch_is_refused():
    from deltanet._transformers_functions import causal_conv1d_fn

    with pytest.raises(ValueError, match="seq_idx: given a batch of 2; expected packed sequences in a batch of 1"):
        causal_conv1d_fn(torch.randn(2, 5, 4), torch.randn(5, 4), seq_idx=torch.zeros(2, 4, dtype=torch.int32))


@pytest.mark.parametrize("width, kept, tokens", [(4, 4, 1), (4, 7, 1), (4, 2, 1), (4, 1, 1), (4, 4, 3)])
def test_convolution_of_a_step(width, kept, tokens):
    """Caches usually keep as many inputs as the convolution is wide; some keep more, or have not seen as many."""
    from deltanet._transformers_functions import causal_conv1d_update

    state, x, weight, bias = torch.randn(2, 5, kept), torch.randn(2, 5, tokens), torch.randn(5, width), torch.randn(5)
    inputs = torch.cat([torch.zeros(2, 5, width), state, x], dim=-1)
    expected = torch.nn.functional.conv1d(inputs, weight[:, None], bias, groups=5)[..., -tokens:]
    actual = causal_conv1d_update(x, state, weight, bias, "silu")
    torch.testing.assert_close(actual, torch.nn.functional.silu(expected))
    assert torch.equal(state, inputs[..., -kept:])

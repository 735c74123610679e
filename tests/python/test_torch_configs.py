"""deltanet.models.configuration, its fields in the models and in the engine, and the registration with transformers."""

import json
import subprocess
import sys

import pytest

import deltanet

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from deltanet import models  # noqa: E402
from torch_models import CONFIGS, GOLDEN, error, hybrid, random_ids, small_config, small_model  # noqa: E402
from torch_models import one_thread as one_thread  # noqa: E402

ATTENTION = dict(layers=[1], num_heads=4)
WHOLE_ATTENTION = dict(ATTENTION, num_kv_heads=4, qkv_bias=False, window_size=None, rope_theta=10000.0)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_attention_is_normalized_however_it_is_set(config, tmp_path):
    given = dict(ATTENTION, extension="kept")
    whole = dict(WHOLE_ATTENTION, extension="kept")
    assert config(num_hidden_layers=3).attn is None
    assert config(num_hidden_layers=3, attn=given).attn == whole
    assert config.from_dict({"num_hidden_layers": 3}, attn=[given]).attn == [whole]
    assert config(num_hidden_layers=3, attn=dict(given, layers=(1,), num_kv_heads=None)).attn == whole
    later = config(num_hidden_layers=3)
    later.attn = given
    assert later.attn == whole and given == dict(ATTENTION, extension="kept")
    later.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["attn"] == whole
    assert config.from_pretrained(tmp_path).attn == whole
    assert config.from_pretrained(tmp_path, attn=[given]).attn == [whole]
    later.attn = None
    assert later.attn is None


@pytest.mark.parametrize(
    "attn, message",
    [
        (5, "attn: given 5"),
        ([5], "attn: given 5"),
        ({"num_heads": 2}, "attn: given"),
        ({"layers": [1]}, "attn: given"),
        ({"layers": 1}, "attn.layers: given 1; expected a list"),
        ({"layers": [-1]}, "attn.layers: given -1"),
        ({"layers": [2]}, "attn.layers: given 2; expected layers from 0 to 1"),
        ({"layers": [True]}, "attn.layers: given True"),
        ({"layers": [1.0]}, "attn.layers: given 1.0"),
        ({"layers": [1, 1]}, "attn.layers: given layer 1 twice"),
        ([dict(ATTENTION), dict(ATTENTION)], "attn.layers: given layer 1 twice"),
        *(({"num_heads": value}, "attn.num_heads: given") for value in (0, True, 1.5)),
        *(({"num_kv_heads": value}, "attn.num_kv_heads: given") for value in (0, True, 1.5)),
        ({"num_heads": None}, "attn.num_heads: given None"),
        *(({"window_size": value}, "attn.window_size: given") for value in (0, -1, True, 1.5)),
        *(({"rope_theta": value}, "attn.rope_theta: given") for value in (0, -1.0, True, "1", float("nan"), 10**400)),
        ({"qkv_bias": 1}, "attn.qkv_bias: given 1"),
    ],
)
def test_attention_that_does_not_fit_is_refused(attn, message):
    if isinstance(attn, dict) and not attn.keys() & {"layers", "num_heads"}:
        attn = {**ATTENTION, **attn}
    elif isinstance(attn, dict) and "num_heads" not in attn and message != "attn: given":
        attn = {**attn, "num_heads": 2}
    elif isinstance(attn, dict) and "layers" not in attn and message != "attn: given":
        attn = {**attn, "layers": [1]}
    with pytest.raises(ValueError, match=message):
        models.KDAConfig(num_hidden_layers=2, attn=attn)
    config = models.KDAConfig(num_hidden_layers=2)
    with pytest.raises(ValueError, match=message):
        config.attn = attn
    assert config.attn is None


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(hidden_act="relu"), "hidden_act: given 'relu'; expected 'swish' or 'silu', all that kda has"),
        (dict(lower_bound=-5.0), "lower_bound"),
        (dict(attnres_block_size=2), "attnres_block_size: given 2; expected None"),
        (dict(conv_bias=True), "conv_bias"),
    ],
)
def test_configs_refuse_what_is_not_there(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        models.KDAConfig(**options)
    models.KDAConfig().save_pretrained(tmp_path)
    if options.keys() <= vars(models.KDAConfig()).keys():  # others are handed to the model's constructor
        with pytest.raises(ValueError, match=message):
            models.KDAConfig.from_pretrained(tmp_path, **options)


WIDE_HEADS = dict(expand_v=2.0, use_gate=True, head_dim=256, num_heads=6, num_v_heads=None, num_hidden_layers=21)
NARROW_HEADS = dict(expand_v=1.0, head_dim=128, num_heads=16, num_v_heads=None, num_hidden_layers=24)
PRECONDITIONER = dict(squash_x=1.5, squash_eps=1e-6, log_atk_scale_init=-0.2)
DEFAULTS = {
    "delta_net": dict(expand_k=1.0, expand_v=1.0, use_gate=False, num_heads=16, num_hidden_layers=24),
    "gated_deltanet": WIDE_HEADS,
    "kda": NARROW_HEADS,
    "precond_deltanet": {**WIDE_HEADS, **PRECONDITIONER, "a_log_init_lower": 0},
    "precond_gated_deltanet": {**WIDE_HEADS, **PRECONDITIONER, "a_log_init_lower": 0},
    "precond_kda": {**NARROW_HEADS, **PRECONDITIONER, "a_log_init_lower": 1},
}


@pytest.mark.parametrize("kind, fields", DEFAULTS.items(), ids=DEFAULTS)
def test_sizes_that_nobody_gives_are_upstreams(kind, fields):
    """A config.json that leaves a field out means upstream's default."""
    config = CONFIGS[kind]()
    common = dict(
        hidden_size=2048, vocab_size=32000, conv_size=4, use_short_conv=True, allow_neg_eigval=False, hidden_ratio=4,
        intermediate_size=None, norm_eps=1e-6, max_position_embeddings=2048, initializer_range=0.02, attn=None,
        bos_token_id=1, eos_token_id=2, pad_token_id=None, tie_word_embeddings=False, attn_mode="chunk",
    )  # fmt: skip
    assert {name: getattr(config, name) for name in {**common, **fields}} == {**common, **fields}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_defaults_that_every_config_has(config):
    config = config()
    assert config.attnres_block_size is None and config.use_l2warp is False and config.use_cache is True


def test_values_in_upstreams_order():
    """As upstream's constructors take them, positions included."""
    values = ("chunk", 128, 1.0, True, True, False, 4, 32, 2, 2, 512, 2, 256, "swish", 2, 1e-5, dict(ATTENTION), False)
    config = models.GatedDeltaNetConfig(*values, bos_token_id=5)
    assert (config.attn_mode, config.hidden_size, config.expand_v, config.use_gate) == values[:4]
    assert (config.head_dim, config.num_heads, config.num_v_heads, config.max_position_embeddings) == values[7:11]
    assert (config.intermediate_size, config.num_hidden_layers, config.norm_eps) == (256, 2, 1e-5)
    assert config.attn == WHOLE_ATTENTION and config.use_cache is False and config.bos_token_id == 5
    config = models.DeltaNetConfig("chunk", 64, 0.5, 2.0, True, True, True, 3, True, True, 8, "l2", "silu")
    assert (config.expand_k, config.expand_v, config.allow_neg_eigval, config.conv_size) == (0.5, 2.0, True, 3)
    assert (config.num_heads, config.qk_norm, config.qk_activation) == (8, "l2", "silu")
    config = models.KDAConfig("chunk", 64, 1.0, True, False, False, None, 4, 32, 2)
    assert (config.safe_gate, config.lower_bound, config.head_dim, config.num_heads) == (False, None, 32, 2)
    with pytest.raises(TypeError, match="given hidden_size twice"):
        models.KDAConfig("chunk", 64, hidden_size=64)
    with pytest.raises(TypeError, match="GatedDeltaNetConfig: given 19 values"):
        models.GatedDeltaNetConfig(*values, None)


# ---- fields mean what they mean to the engine


FIELDS = [
    *((kind, dict(allow_neg_eigval=True)) for kind in CONFIGS),
    ("gated_deltanet", dict(output_gate_activation="sigmoid")),
    ("gated_deltanet", dict(use_gate=False, use_short_conv=False)),
    ("precond_gated_deltanet", dict(use_short_conv=False, num_v_heads=4)),
    ("precond_gated_deltanet", dict(squash_x=1.1, squash_eps=0.1)),
    ("precond_kda", dict(num_v_heads=4, squash_x=1.9, conv_size=2)),
    ("precond_deltanet", dict(conv_size=3, norm_eps=0.1)),
    ("delta_net", dict(expand_k=0.5, expand_v=1.5, use_gate=True)),
    ("kda", dict(num_v_heads=4, hidden_ratio=2, intermediate_size=None)),
    ("gated_deltanet", dict(tie_word_embeddings=True)),
    ("kda", dict(attn=[dict(layers=[0], num_heads=2, rope_theta=50.0), dict(ATTENTION, num_kv_heads=1)])),
    ("kda", dict(attn=dict(ATTENTION, window_size=3))),
]


@torch.no_grad()
@pytest.mark.parametrize("kind, fields", FIELDS, ids=str)
def test_fields_are_the_engines(kind, fields, tmp_path):
    model = small_model(kind, **fields)
    model.save_pretrained(tmp_path)
    ids = random_ids(model, 2, 35)
    expected = deltanet.Model(tmp_path).logits(ids.numpy())
    assert error(model(ids).logits, expected) <= 1e-5
    steps, cache = [], None
    for token in ids.split(1, dim=1):
        output = model(token, past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        steps.append(output.logits)
    assert error(torch.cat(steps, dim=1), expected) <= 1e-5


@torch.no_grad()
@pytest.mark.parametrize("kind", CONFIGS)
def test_forms_of_the_recurrence_are_equal(kind):
    """attn_mode is a choice of speed."""
    chunk, recurrent = (small_model(kind, attn_mode=mode) for mode in ("chunk", "fused_recurrent"))
    ids = random_ids(chunk, 2, 35)
    assert recurrent.model.layers[0].attn.mode == "fused_recurrent"
    assert error(recurrent(ids).logits, chunk(ids).logits) <= 1e-5


# ---- use_l2warp


def pulled(logits):
    """Whose gradient use_l2warp adds: 1e-4 times the largest logit of each token, in the mean over all tokens."""
    return 0.5e-4 * logits.float().max(-1).values.square().mean()


def flat_gradients(model):
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("options", [{}, {"num_items_in_batch": 4}, {"num_items_in_batch": torch.tensor(50)}], ids=str)
def test_l2warp_pulls_the_largest_logits(options):
    model = hybrid()
    ids = random_ids(model, 2, 25)
    output = model(ids, labels=ids, **options)
    items = float(options.get("num_items_in_batch", 1))
    torch.autograd.backward([1e3 * output.loss, 1e3 / items * pulled(output.logits)])
    expected = flat_gradients(model)
    model.zero_grad()
    model.config.use_l2warp = True
    warped = model(ids, labels=ids, **options)
    assert warped.loss.item() == output.loss.item()
    (1e3 * warped.loss).backward()
    for name, gradient in flat_gradients(model).items():
        assert error(gradient, expected[name]) <= 1e-6, name


def test_l2warp_is_upstreams():
    upstream = pytest.importorskip("fla.modules.l2warp")
    from deltanet.models.l2warp import l2_warp

    for dtype in (torch.float32, torch.bfloat16):
        sides = []
        for warp in (l2_warp, upstream.l2_warp):
            logits = (3 * torch.randn(2, 7, 30, generator=torch.Generator().manual_seed(0))).to(dtype).requires_grad_()
            (7 * warp(logits.float().logsumexp(-1).mean(), logits)).backward()
            sides.append(logits.grad)
        assert torch.equal(*sides) and sides[0].dtype == dtype


def test_l2warp_trains_in_the_engine(tmp_path):
    """What it adds to each gradient is small: it is compared by itself. Tokens without a label are pulled too."""
    model = hybrid()
    ids = random_ids(model, 2, 25)
    labels = ids.clone()
    labels[:, 5:20] = -100
    torch.autograd.backward(pulled(model(ids, labels=labels).logits))
    expected = flat_gradients(model)
    grads = {}
    for use in (False, True):
        model.config.use_l2warp = use
        model.save_pretrained(tmp_path / str(use))
        engine = deltanet.Model(tmp_path / str(use))
        engine.save(tmp_path / "again")
        assert json.loads((tmp_path / "again" / "config.json").read_text())["use_l2warp"] is use
        loss, grads[use] = engine.loss_and_grads(ids.numpy(), labels.numpy())
        assert loss == pytest.approx(model(ids, labels=labels).loss.item(), rel=1e-5)
    added = {name: torch.from_numpy(grads[True][name] - grads[False][name]) for name in expected}
    assert error(added["lm_head.weight"], expected["lm_head.weight"]) <= 1e-3
    together = [torch.cat([gradient.flatten() for gradient in side.values()]) for side in (added, expected)]
    assert error(*together) <= 0.02


# ---- registration


# The ways into transformers differ in which of its modules, and of ours, is half imported when the tables are ready.
WAYS = {
    "tables": "import transformers.models.auto.modeling_auto",
    "layers": "import transformers.modeling_layers",
    "our models": "from deltanet.models import PrecondDeltaNetForCausalLM",
    "our configs": "from deltanet.models import PrecondDeltaNetConfig",
    "our module": "import deltanet.models.modeling",
    "both": "import transformers; from deltanet.models import PrecondDeltaNetForCausalLM",
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_import_is_light_and_registers_later(way):
    code = f"""
import sys, warnings, deltanet
assert not {{"torch", "transformers"}} & sys.modules.keys()
warnings.simplefilter("error", RuntimeWarning)
{way}
from transformers import AutoConfig, AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained({str(GOLDEN / "pdn_untied")!r})
assert type(model).__name__ == "PrecondDeltaNetForCausalLM"
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_configs_need_no_torch():
    code = """
import sys
sys.modules["torch"] = None
import deltanet
from deltanet.models import KDAConfig
from transformers import AutoConfig
assert type(AutoConfig.for_model("kda")) is KDAConfig
"""
    subprocess.run([sys.executable, "-c", code], check=True)

"""deltanet.layers and deltanet.models: upstream's checkpoints, logits and gradients; padding, caches, the Trainer."""

from pathlib import Path

import numpy as np
import pytest

import deltanet
from conftest import read_safetensors

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from deltanet import layers, models  # noqa: E402
from torch_models import GOLDEN, KINDS, NAMES, error, gradients, hybrid, load, padded  # noqa: E402
from torch_models import random_ids, small_config, tensor  # noqa: E402
from torch_models import one_thread as one_thread  # noqa: E402


@pytest.fixture(scope="module", params=NAMES)
def checkpoint(request):
    return load(request.param), read_safetensors(GOLDEN / request.param / "fixture.safetensors")[0]


@pytest.fixture(scope="module", params=KINDS)
def model(request):
    return load(request.param)


@pytest.fixture
def ids(model):
    return random_ids(model, 3, 41)


# ---- upstream's numbers


@torch.no_grad()
def test_logits_are_upstreams(checkpoint):
    model, fixture = checkpoint
    logits = model(tensor(fixture["input_ids"])).logits
    assert error(logits, fixture["logits"]) <= 1e-4


def test_loss_and_gradients_are_upstreams(checkpoint):
    model, fixture = checkpoint
    ids = tensor(fixture["input_ids"])
    model.zero_grad()
    loss = model(ids, labels=ids, use_cache=False).loss
    loss.backward()
    assert loss.item() == pytest.approx(float(fixture["loss"][0]), rel=1e-5)
    grads = dict(model.named_parameters())
    assert sorted(grads) == sorted(name[5:] for name in fixture if name.startswith("grad."))
    for name, parameter in grads.items():
        assert error(parameter.grad, fixture["grad." + name]) <= 1e-4, name


def test_greedy_tokens_are_upstreams(checkpoint):
    model, fixture = checkpoint
    prompt, greedy = fixture["prompt"], fixture["greedy"]
    ids = tensor(prompt)
    options = dict(max_new_tokens=greedy.shape[1], do_sample=False, pad_token_id=0)
    out = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
    assert np.array_equal(out.numpy(), np.concatenate([prompt, greedy], axis=1))


# ---- caches, padding and packing


@torch.no_grad()
@pytest.mark.parametrize("split", [[1] * 41, [40, 1], [2, 20, 19]], ids=["steps", "prefill", "pieces"])
def test_pieces_with_a_cache_equal_the_whole(model, ids, split):
    whole = model(ids, use_cache=False).logits
    cache, pieces = layers.RecurrentCache(), []
    for piece in ids.split(split, dim=1):
        pieces.append(model(piece, past_key_values=cache, use_cache=True).logits)
    assert cache.get_seq_length() == 41 and len(cache) == model.config.num_hidden_layers
    assert error(torch.cat(pieces, dim=1), whole) <= 1e-5


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(model, ids, side):
    lengths = [41, 5, 30]
    batch, mask = padded(ids, lengths, side)
    logits = model(batch, attention_mask=mask).logits
    for n, length in enumerate(lengths):
        kept = slice(41 - length, None) if side == "left" else slice(length)
        alone = model(ids[n : n + 1, kept]).logits[0]
        assert error(logits[n, kept], alone) <= 1e-5
        assert torch.equal(logits[n][mask[n] == 0], torch.zeros_like(logits[n][mask[n] == 0]))


def test_padding_changes_no_gradient(model, ids):
    batch, mask = padded(ids, [41, 5, 30], "left")

    def gradient(parts, **options):
        return gradients(model, sum(model(part, **options).logits.square().sum() for part in parts))

    alone = gradient([ids[:1], ids[1:2, -5:], ids[2:, -30:]])
    assert error(gradient([batch], attention_mask=mask), alone) <= 1e-5


# ---- files and names


def test_a_saved_model_is_the_engines_and_upstreams(checkpoint, tmp_path):
    model, fixture = checkpoint
    model.save_pretrained(tmp_path)
    engine = deltanet.Model(tmp_path)
    assert error(model(tensor(fixture["input_ids"])).logits, engine.logits(fixture["input_ids"])) <= 1e-5
    saved, _ = read_safetensors(tmp_path / "model.safetensors")
    original, _ = read_safetensors(Path(model.config._name_or_path) / "model.safetensors")
    assert saved.keys() == original.keys()
    assert all(np.array_equal(saved[name], original[name]) for name in saved)


def test_what_a_checkpoint_lacks_is_initialized_and_nothing_else(tmp_path):
    model = load("pgdn")
    lacking = "model.layers.0.attn.log_atk_scale"
    model.save_pretrained(tmp_path, state_dict={k: v for k, v in model.state_dict().items() if k != lacking})
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
    for name, value in model.state_dict().items():
        expected = torch.full_like(value, -0.2) if name == lacking else value
        assert torch.equal(loaded[name], expected), name


@pytest.mark.parametrize("window", [None, 7])
def test_hybrid_attention_is_the_engines(tmp_path, window):
    model = hybrid(window_size=window)
    model.save_pretrained(tmp_path)
    ids = np.random.default_rng(0).integers(0, 64, (2, 40))
    expected = deltanet.Model(tmp_path).logits(ids)
    ids = tensor(ids)
    assert error(model(ids).logits, expected) <= 1e-5
    batch, mask = padded(ids, [40, 22], "left")
    cache = layers.RecurrentCache()
    first = model(batch[:, :30], attention_mask=mask[:, :30], past_key_values=cache, use_cache=True).logits
    rest = model(batch[:, 30:], attention_mask=mask, past_key_values=cache, use_cache=True).logits
    assert error(torch.cat([first, rest], dim=1)[0], expected[0]) <= 1e-5
    assert error(rest[1], model(ids[1:, -22:]).logits[0, -10:]) <= 1e-5


@pytest.mark.parametrize("config", models.configuration.CONFIGS, ids=lambda config: config.model_type)
def test_initial_values(config):
    torch.manual_seed(0)
    sizes = dict(num_hidden_layers=1, initializer_range=0.03)
    model = transformers.AutoModelForCausalLM.from_config(small_config(config.model_type, **sizes))
    assert model.model.layers[0].attn.q_proj.weight.std().item() == pytest.approx(0.03, rel=0.1)
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())
    values = dict(model.named_parameters())
    for name in values:
        if "norm.weight" in name:
            assert bool((values[name] == 1).all())


@pytest.mark.parametrize("kind", ["gated_deltanet", "kda", "precond_gated_deltanet", "precond_kda"])
def test_decays_start_as_upstreams(kind):
    """A uniform up to 16, from 1 with a diagonal decay; softplus(dt_bias) log-uniform in [0.001, 0.1]."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(
        small_config(kind, num_hidden_layers=1, num_heads=400, head_dim=2, expand_v=1.0)
    )

    def is_uniform(values, low, high):
        error = 5 * (high - low) / np.sqrt(12 * values.numel())  # five standard deviations of the mean
        assert low - 1e-3 <= values.min() and values.max() <= high + 1e-3
        assert values.mean().item() == pytest.approx((low + high) / 2, abs=error)

    names = [name for name, _ in model.named_parameters() if "A_log" in name]
    assert len(names) == (2 if "precond" in kind else 1)
    parameters = dict(model.named_parameters())
    for name in names:
        is_uniform(parameters[name].double().exp(), 1.0 if "kda" in kind else 0.0, 16.0)
        dt = torch.nn.functional.softplus(parameters[name.replace("A_log", "dt_bias")].double())
        is_uniform(dt.log(), np.log(1e-3), np.log(0.1))
    if "precond" in kind:
        (scale,) = (values for name, values in parameters.items() if "log_atk_scale" in name)
        assert torch.allclose(scale, torch.tensor(-0.2))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: layers.GatedDeltaNet(64, num_heads=4, num_v_heads=6, head_dim=16), "num_v_heads"),
        (lambda: layers.GatedDeltaNet(64, num_heads=4, head_dim=15, expand_v=1.5), "expand_v"),
        (lambda: layers.GatedDeltaNet(64, num_heads=4, head_dim=16, mode="naive"), "mode"),
        (lambda: layers.DeltaNet(64, num_heads=3), "expand_k"),
        (lambda: layers.Attention(64, num_heads=3), "num_heads"),
        (lambda: layers.GatedRMSNorm(8, activation="tanh"), "activation"),
    ],
)
def test_layers_refuse_what_does_not_fit(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_attributes_have_upstreams_names():
    layer = layers.GatedDeltaNet(64, expand_v=1.5, head_dim=16, num_heads=2, num_v_heads=4)
    assert (layer.key_dim, layer.value_dim, layer.output_gate_activation) == (32, 96, "swish")
    assert layers.DeltaNet(hidden_size=100, expand_k=0.58, expand_v=0.5, num_heads=1).key_dim == 58  # 57.999...
    model = load("pgdn")
    assert model.get_decoder() is model.model and model.get_input_embeddings() is model.model.embeddings


@torch.no_grad()
def test_results_are_what_is_asked_for(checkpoint):
    model, fixture = checkpoint
    ids = tensor(fixture["input_ids"])
    whole = model(ids, labels=ids, output_hidden_states=True)
    assert len(whole.hidden_states) == model.config.num_hidden_layers + 1
    assert torch.equal(whole.hidden_states[0], model.model.embeddings(ids))
    assert torch.equal(model.lm_head(whole.hidden_states[-1]), whole.logits)
    base = model.model(ids, use_cache=False)
    assert torch.equal(base.last_hidden_state, whole.hidden_states[-1])
    assert base.past_key_values is None and base.hidden_states is None
    model.train()  # nobody goes on from a step of training
    try:
        assert model(ids).past_key_values is None and model(ids, use_cache=True).past_key_values is not None
    finally:
        model.eval()
    assert model(ids).past_key_values.get_seq_length() == ids.shape[1]
    for keep in (0, None, 3, torch.tensor([1, 4])):
        kept = keep if torch.is_tensor(keep) else slice(-(keep or 0), None)
        torch.testing.assert_close(model(ids, logits_to_keep=keep).logits, whole.logits[:, kept])
    shifted = torch.cat([ids[:, 1:], torch.full_like(ids[:, :1], -100)], dim=1)
    assert model(ids, shift_labels=shifted).loss == whole.loss
    assert model(ids, labels=ids, ignore_index=int(ids[0, 1])).loss != whole.loss
    loss, logits = model(ids, labels=ids, use_cache=False, return_dict=False)
    assert loss == whole.loss and torch.equal(logits, whole.logits)
    model.config.return_dict = False
    try:
        assert type(model(ids)) is type(model.model(ids)) is tuple
        assert not isinstance(model(ids, return_dict=True), tuple)
    finally:
        model.config.return_dict = True


# ---- training


def test_trainer(tmp_path):
    config = models.PrecondGatedDeltaNetConfig(
        hidden_size=32, num_heads=2, head_dim=16, num_hidden_layers=2, vocab_size=32, intermediate_size=32
    )
    model = models.PrecondGatedDeltaNetForCausalLM(config)
    row = list(range(32))
    data = [{"input_ids": row, "labels": row}] * 32
    options = transformers.TrainingArguments(
        str(tmp_path), max_steps=12, per_device_train_batch_size=4, learning_rate=1e-2, report_to=[], use_cpu=True,
        logging_steps=1, gradient_checkpointing=True, save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    trainer = transformers.Trainer(model=model, args=options, train_dataset=data, eval_dataset=data[:2])
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0] - 1 and trainer.evaluate()["eval_loss"] < losses[0] - 1


def test_bfloat16(checkpoint):
    model, fixture = checkpoint
    narrow = load(Path(model.config._name_or_path).name).to(torch.bfloat16)
    ids = tensor(fixture["input_ids"])
    output = narrow(ids, labels=ids)
    output.loss.backward()
    assert output.logits.dtype == torch.bfloat16 and error(output.logits.float(), fixture["logits"]) < 5e-2

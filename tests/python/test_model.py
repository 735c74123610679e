"""deltanet.Model: the golden checkpoints from Python, and what it refuses."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import deltanet
from conftest import read_safetensors

GOLDEN = Path(__file__).parents[1] / "golden" / "models"
NAMES = sorted(path.name for path in GOLDEN.iterdir())


def error(a, b):
    return np.linalg.norm(np.asarray(a, np.float64) - b) / np.linalg.norm(b)


@pytest.fixture(scope="module", params=NAMES)
def checkpoint(request):
    return deltanet.Model(GOLDEN / request.param), read_safetensors(GOLDEN / request.param / "fixture.safetensors")[0]


@pytest.fixture
def model():
    return deltanet.Model(GOLDEN / "pdn_untied")


def test_logits(checkpoint):
    model, fixture = checkpoint
    logits = model.logits(fixture["input_ids"])
    assert logits.dtype == np.float32 and logits.shape == fixture["logits"].shape
    assert error(logits, fixture["logits"]) <= 1e-4


def test_loss_and_grads(checkpoint):
    model, fixture = checkpoint
    loss, grads = model.loss_and_grads(fixture["input_ids"], fixture["input_ids"])
    assert loss == pytest.approx(float(fixture["loss"][0]), rel=1e-5)
    assert sorted(grads) == sorted(name[5:] for name in fixture if name.startswith("grad."))
    for name, grad in grads.items():
        assert grad.shape == fixture["grad." + name].shape
        assert error(grad, fixture["grad." + name]) <= 1e-4, name


def test_greedy(checkpoint):
    model, fixture = checkpoint
    count = fixture["greedy"].shape[1]
    ids = model.generate(fixture["prompt"], max_new_tokens=count)
    assert np.array_equal(ids, np.concatenate([fixture["prompt"], fixture["greedy"]], axis=1))


def test_shapes_of_ids(model):
    one, batch = model.logits([1, 2, 3]), model.logits([[1, 2, 3], [4, 5, 6]])
    ragged = model.logits([[1, 2, 3], [4, 5]])
    assert one.shape == (3, 64) and batch.shape == (2, 3, 64) and [row.shape for row in ragged] == [(3, 64), (2, 64)]
    assert error(one, batch[0]) < 1e-6 and error(ragged[1], batch[1][:2]) < 1e-6


def test_labels_of_minus_100_are_left_out(model):
    ids = np.arange(10)
    labels = ids.copy()
    labels[5:] = -100
    values, greedy = model.log_probs(ids)
    assert values[0] == 0 and values.shape == greedy.shape == (10,)
    assert model.loss(ids, labels) == pytest.approx(-values[1:5].mean(), rel=1e-6)
    logits = model.logits(ids).astype(np.float64)
    expected = logits[3, 4] - np.log(np.exp(logits[3]).sum())
    assert values[4] == pytest.approx(expected, abs=1e-5) and greedy[4] == (logits[3].argmax() == 4)


def test_session_goes_on_and_survives_a_file(model, tmp_path):
    whole = model.generate([[1, 2, 3]], max_new_tokens=12)
    session = model.session()
    first = session.generate([[1, 2, 3]], max_new_tokens=5)[0]
    session.save(tmp_path / "state")
    rest = model.load_session(tmp_path / "state").generate(max_new_tokens=7)[0]
    assert np.array_equal(np.concatenate([[1, 2, 3], first, rest]), whole[0])
    other = deltanet.Model(GOLDEN / "pgdn_grouped_gated")
    with pytest.raises(ValueError, match="another model"):
        other.load_session(tmp_path / "state")


def test_sampling_follows_the_seed(model):
    def draw(seed):
        return model.generate([1, 2], max_new_tokens=20, temperature=1.0, top_p=0.9, seed=seed).tolist()

    assert draw(1) == draw(1) != draw(2)


def test_every_option_of_sampling_reaches_the_sampler():
    model = deltanet.Model(GOLDEN / "pgdn")

    def draw(**options):
        return model.generate([1, 2], max_new_tokens=30, **options).tolist()

    greedy = draw()
    wild = draw(temperature=2.0, seed=3)
    assert wild != greedy
    # Each of these leaves one token to choose from, whatever the others allow.
    assert greedy == draw(temperature=2.0, seed=3, top_k=1) == draw(temperature=2.0, seed=3, top_p=0.0)
    assert greedy == draw(temperature=2.0, seed=3, min_p=1.0) == draw(temperature=1e-4, seed=3)
    # And each of these changes what is drawn, but less.
    for change in (dict(top_k=3), dict(top_p=0.3), dict(min_p=0.3), dict(temperature=1.0), dict(seed=4)):
        assert draw(**{**dict(temperature=2.0, seed=3), **change}) not in (greedy, wild), change
    unseen = draw(repetition_penalty=1e9)[2:]
    assert len(set(unseen)) == len(unseen) and not {1, 2} & set(unseen)
    assert draw(eos_token_id=greedy[4])[:5] == greedy[:5] and len(draw(eos_token_id=greedy[4])) == 5


def test_on_token_sees_and_ends(model):
    seen = []
    out = model.generate([[1], [2]], max_new_tokens=9, on_token=lambda n, i: seen.append((n, i)) or len(seen) < 6)
    assert len(seen) < 18 and out.shape[0] == 2

    def fail(sequence, token):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        model.generate([1], on_token=fail)


def test_save_gives_the_same_bytes(tmp_path):
    model = deltanet.Model(GOLDEN / "pgdn")
    model.save(tmp_path, checksums=False)
    assert (tmp_path / "model.safetensors").read_bytes() == (GOLDEN / "pgdn" / "model.safetensors").read_bytes()
    model.save(tmp_path)  # the same values, with checksums in the header
    values, metadata = read_safetensors(tmp_path / "model.safetensors")
    expected, _ = read_safetensors(GOLDEN / "pgdn" / "model.safetensors")
    assert all((values[name] == expected[name]).all() for name in expected) and values.keys() == expected.keys()
    assert metadata.pop("format") == "pt" and metadata.keys() == {f"checksum.{name}" for name in expected}


@pytest.mark.parametrize("weights, bound", [("bf16", 3e-2), ("int8", 6e-2)])
def test_narrow_weights_are_close(weights, bound):
    fixture, _ = read_safetensors(GOLDEN / "pgdn" / "fixture.safetensors")
    logits = deltanet.Model(GOLDEN / "pgdn", weights=weights).logits(fixture["input_ids"])
    assert 1e-6 < error(logits, fixture["logits"]) < bound


def test_parameters_can_be_read_and_set(model):
    name = model.parameter_names[0]
    before = model.loss([1, 2, 3])
    model.set_parameter(name, model.parameter(name) * 1.5)
    assert model.loss([1, 2, 3]) != before
    with pytest.raises(ValueError, match="shape"):
        model.set_parameter(name, np.zeros(3))


def test_presets_and_configs():
    assert "pgdn-340m" in deltanet.model_presets()
    config = deltanet.Model(GOLDEN / "pdn_untied").config
    a, b, c = (deltanet.Model.from_config(config, seed=seed) for seed in (1, 1, 2))
    name = a.parameter_names[0]
    assert np.array_equal(a.parameter(name), b.parameter(name))
    assert not np.array_equal(a.parameter(name), c.parameter(name))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda m: m.logits([64]), "0 to 63"),
        (lambda m: m.logits([-1]), "0 to 63"),
        (lambda m: m.logits([2**31]), "32 bits"),
        (lambda m: m.logits([2**31 - 1]), "given 2147483647; expected 0 to 63"),
        (lambda m: m.logits([-(2**31) - 1]), "32 bits"),
        (lambda m: m.logits([]), "empty"),
        (lambda m: m.logits([[[1]]]), "shape"),
        (lambda m: m.logits([1.5]), "integers"),
        (lambda m: m.loss([1, 2], [1]), "lengths"),
        (lambda m: m.loss_and_grads([1, 2], [-100, -100]), "-100"),
        (lambda m: m.generate([1], temperature=-1.0), "temperature"),
        (lambda m: m.generate([1], max_new_tokens=-1), "max_tokens"),
        (lambda m: m.save("/dev/null/x"), "/dev/null"),
        (lambda m: m.parameter("no such"), "no such"),
        (lambda m: deltanet.Model("/no/such/directory"), "no/such"),
        (lambda m: deltanet.Model.from_preset("pgdn-7t"), "pgdn-7t"),
        (lambda m: deltanet.Model.from_config({"model_type": "gpt2"}), "gpt2"),
        (lambda m: deltanet.Model(GOLDEN / "pgdn", weights="f8"), "f8"),
    ],
)
def test_wrong_input_is_named(model, call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(model)


def test_tokenizer():
    tokenizer = deltanet.Tokenizer(GOLDEN.parent / "tokenizers" / "gpt2.json")
    ids = tokenizer.encode("Grüße, мир!")
    assert tokenizer.decode(ids) == "Grüße, мир!" and max(ids) < tokenizer.vocab_size
    assert deltanet.Tokenizer.bytes().encode(b"\xff\x00a") == [255, 0, 97]


# Hugging Face's tokenizers refuse such text, too.
def test_halves_of_surrogate_pairs_are_refused():
    for tokenizer in (deltanet.Tokenizer.bytes(), deltanet.Tokenizer(GOLDEN.parent / "tokenizers" / "gpt2.json")):
        with pytest.raises(ValueError, match="character 2 is half of a surrogate pair.*or bytes"):
            tokenizer.encode("ab\udc80")
        assert tokenizer.encode("ab\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16")) == tokenizer.encode("ab😀")
        with pytest.raises(TypeError, match="expected str or bytes"):
            tokenizer.encode(5)


@pytest.mark.parametrize("name_of", [os.fsencode, os.fsdecode, lambda name: Path(os.fsdecode(name))])
def test_names_of_files_need_not_be_utf8(model, tmp_path, name_of):
    folder = os.fsencode(tmp_path) + b"/\xff\xfe "
    model.save(name_of(folder))
    shutil.copy(GOLDEN.parent / "tokenizers" / "gpt2.json", os.path.join(folder, b"tokenizer.json"))
    loaded = deltanet.Model(name_of(folder))
    assert np.array_equal(loaded.logits([1, 2, 3]), model.logits([1, 2, 3]))
    assert deltanet.Tokenizer(name_of(folder)).encode("a") == [65]
    session = loaded.session()
    session.read([1, 2, 3])
    session.save(name_of(folder + b"/state"))
    assert loaded.load_session(name_of(folder + b"/state")).sequences == 1
    loaded.train_step([1, 2, 3])
    loaded.save_optimizer(name_of(folder + b"/moments"))
    loaded.load_optimizer(name_of(folder + b"/moments"))
    with pytest.raises(deltanet.Error) as error:
        deltanet.Model(name_of(folder + b"/missing"))
    assert os.fsdecode(folder) in str(error.value)


@pytest.mark.parametrize("kind", [deltanet.Model, deltanet.Tokenizer])
def test_names_of_files_end_where_they_end(kind):
    with pytest.raises(ValueError, match="zero byte"):
        kind(os.fsencode(GOLDEN / "pgdn") + b"\0")

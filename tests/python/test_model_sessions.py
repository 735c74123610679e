"""deltanet.Model: streams, copies of what it remembers, log-likelihoods, training steps."""

import threading
from pathlib import Path

import numpy as np
import pytest

import deltanet
from deltanet import _scoring

GOLDEN = Path(__file__).parents[1] / "golden" / "models"


@pytest.fixture
def model():
    return deltanet.Model(GOLDEN / "pgdn_grouped_gated")


def log_softmax(logits):
    logits = np.asarray(logits, np.float64)
    logits = logits - logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def expected_loglikelihood(model, context, continuation):
    """From the logits of the whole sequence."""
    logits = model.logits([*context, *continuation])[len(context) - 1 : -1]
    values = log_softmax(logits)[np.arange(len(continuation)), continuation]
    return values.sum(), bool((logits.argmax(axis=-1) == continuation).all())


def random_pairs(model, count, contexts, seed=0):
    """Pairs of which many share their context; contexts of one token are among them, and greedy continuations."""
    rng = np.random.default_rng(seed)
    prefixes = [rng.integers(0, model.vocab_size, size).tolist() for size in (1, *rng.integers(2, 40, contexts - 1))]
    pairs = []
    for i in range(count):
        prefix = prefixes[rng.integers(len(prefixes))]
        length = int(rng.integers(1, 9))
        greedy = model.generate([prefix], max_new_tokens=length, eos_token_id=())[0][len(prefix) :].tolist()
        pairs.append((prefix, greedy if i % 3 == 0 else rng.integers(0, model.vocab_size, length).tolist()))
    return pairs


# ---- streams


def test_stream_gives_what_generate_gives(model):
    options = dict(max_new_tokens=20, temperature=0.9, top_k=30, repetition_penalty=1.2, seed=4)
    assert list(model.stream([1, 2, 3], **options)) == model.generate([1, 2, 3], **options)[3:].tolist()


def test_stream_can_be_left(model):
    whole = model.generate([1, 2, 3], max_new_tokens=9)[3:].tolist()
    session = model.session()
    said = []
    for token in session.stream([1, 2, 3], max_new_tokens=100):
        said.append(token)
        if len(said) == 4:
            break
    rest = session.generate(max_new_tokens=5)[0].tolist()
    assert said + rest == whole


def test_stream_keeps_its_session_and_ends(model):
    first = model.generate([5], max_new_tokens=1)[1]
    stream = model.session().stream([5], eos_token_id=int(first))
    assert list(stream) == [first]
    with pytest.raises(ValueError, match="2 sequences"):
        model.session(2).stream([[1], [2]])


def test_threads_take_turns(model):
    expected = model.generate([7, 8], max_new_tokens=12)[2:].tolist()
    results = [None] * 4

    def run(i):
        results[i] = list(model.stream([7, 8], max_new_tokens=12))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4


def test_on_token_may_not_call_its_model(model):
    with pytest.raises(ValueError, match="use stream"):
        model.generate([1], on_token=lambda sequence, token: model.logits([token]) is not None)
    assert model.logits([1]).shape == (1, model.vocab_size)  # and goes on working


# ---- copies


def test_copies_go_on_by_themselves(model):
    session = model.session(2)
    session.read([[1, 2, 3, 4], [9, 8]])
    copies = session.copy([1, 0, 1])
    assert copies.sequences == 3
    after = copies.read([[5], [6], [7]])
    copies.read([[1], [1], [1]])
    original = session.read([[6], [5]])
    assert np.allclose(after[0], original[1], atol=1e-5) and np.allclose(after[1], original[0], atol=1e-5)
    assert not np.allclose(after[2], after[0], atol=1e-5)
    with pytest.raises(ValueError, match="given 2; expected 0 to 1"):
        session.copy([2])


def test_session_log_probs_go_on_from_a_prefix(model):
    ids = np.arange(3, 23)
    values, greedy = model.log_probs(ids)
    session = model.session()
    session.read([ids[:11]])
    later, later_greedy = session.log_probs([ids[11:]])
    assert later[0, 0] == 0 and np.allclose(later[0, 1:], values[12:], atol=1e-5)
    assert np.array_equal(later_greedy[0, 1:], greedy[12:])


# ---- log-likelihoods


@pytest.mark.parametrize("batch_tokens, state_bytes", [(2048, 1 << 29), (7, 1 << 29), (64, 1)])
def test_loglikelihood_is_that_of_the_logits(model, monkeypatch, batch_tokens, state_bytes):
    monkeypatch.setattr(_scoring, "STATE_BYTES", state_bytes)
    pairs = random_pairs(model, count=24, contexts=5)
    done = []
    values, greedy = model.loglikelihood(*zip(*pairs), batch_tokens=batch_tokens, on_progress=done.append)
    expected = [expected_loglikelihood(model, *pair) for pair in pairs]
    assert np.allclose(values, [value for value, _ in expected], atol=1e-4)
    assert greedy.tolist() == [flag for _, flag in expected]
    assert 0 < greedy.sum() < len(pairs) and sum(done) == len(pairs)


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.iterdir()))
def test_loglikelihood_of_every_kind_of_model(name):
    model = deltanet.Model(GOLDEN / name)
    pairs = random_pairs(model, count=8, contexts=3)
    values, greedy = model.loglikelihood(*zip(*pairs))
    expected = [expected_loglikelihood(model, *pair) for pair in pairs]
    assert np.allclose(values, [value for value, _ in expected], atol=1e-4)
    assert greedy.tolist() == [flag for _, flag in expected]


def test_what_is_shared_is_read_once(model):
    context = list(range(30))
    # The context, and of each continuation all but its last token, which is only predicted.
    *_, tokens = _scoring.log_likelihoods(model, [context] * 4, [[1], [2, 3], [4, 5, 6], [7]], 2048, None)
    assert tokens == 30 + 0 + 1 + 2 + 0
    *_, tokens = _scoring.log_likelihoods(model, [context, context[:20]], [[1, 2], [30, 31]], 2048, None)
    assert tokens == 20 + 11 + 1


def test_ctrl_c_and_exceptions_end_the_scoring(model):
    def raises(count):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        model.loglikelihood([[1, 2]] * 3, [[3], [4], [5]], on_progress=raises)
    assert model.loglikelihood([[1, 2]], [[3]])[0].shape == (1,)
    assert model.loglikelihood([], [])[0].shape == (0,)


def test_score(model):
    ids = [4, 9, 1, 1, 7]
    total, _ = expected_loglikelihood(model, ids[:1], ids[1:])
    assert model.score(ids)[0] == 0 and model.score(ids).sum() == pytest.approx(total, abs=1e-5)


def test_rows_that_end_early_are_filled_with_the_end():
    model = deltanet.Model(GOLDEN / "pgdn")
    for other in range(2, 40):
        ids = [[1, 5, 9], [other, 4, 7]]
        said = model.generate(ids, max_new_tokens=8)
        end = int(said[0, 4])
        if end != said[0, 3] and end not in said[1, 3:]:
            break
    else:
        pytest.fail("no two prompts with different answers")
    filled = model.generate(ids, max_new_tokens=8, eos_token_id=end)
    assert filled[0].tolist() == [*said[0, :5], *[end] * 6] and np.array_equal(filled[1], said[1])


# ---- training


def test_train_step_learns_and_goes_on_from_files(model, tmp_path):
    ids = np.random.default_rng(0).integers(0, model.vocab_size, (2, 24))
    assert model.train_steps == 0
    losses = [model.train_step(ids, lr=1e-2).loss for _ in range(10)]
    assert losses[-1] < 0.7 * losses[0] and model.train_steps == 10
    model.save(tmp_path / "model")
    model.save_optimizer(tmp_path / "optimizer")
    again = deltanet.Model(tmp_path / "model")
    again.load_optimizer(tmp_path / "optimizer")
    assert again.train_steps == 10
    for trained in (model, again):
        trained.train_step(ids, lr=1e-2)
    for name in model.parameter_names:
        assert np.array_equal(model.parameter(name), again.parameter(name)), name


def test_train_step_reports_the_gradients(model):
    ids = [1, 5, 9, 2, 4]
    loss, grads = model.loss_and_grads(ids)
    norm = np.sqrt(sum(np.square(grad, dtype=np.float64).sum() for grad in grads.values()))
    step = model.train_step(ids, lr=0.0)
    assert step.loss == pytest.approx(loss) and step.grad_norm == pytest.approx(norm, rel=1e-4) and not step.skipped
    assert model.loss(ids) == pytest.approx(loss)  # a rate of 0 changes nothing


def test_options_of_train_step_reach_the_engine():
    ids = [1, 5, 9, 2, 4, 4, 7]

    def after_steps(**options):
        model = deltanet.Model(GOLDEN / "pgdn")
        for _ in range(2):
            model.train_step(ids, **options)
        return np.concatenate([model.parameter(name).ravel() for name in model.parameter_names])

    papers = dict(lr=4e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.01, clip=1.0)
    plain = after_steps()
    assert np.array_equal(plain, after_steps(**papers))
    for change in (
        dict(lr=5e-4), dict(betas=(0.8, 0.95)), dict(betas=(0.9, 0.99)), dict(eps=1e-3), dict(weight_decay=0.1),
        dict(clip=1e-3, eps=1e-3),
    ):  # fmt: skip
        assert not np.array_equal(plain, after_steps(**change)), change
    assert np.array_equal(after_steps(eps=1e-3, recompute=True), after_steps(eps=1e-3))


def test_bf16_weights_train(tmp_path):
    model = deltanet.Model(GOLDEN / "pgdn", weights="bf16")
    ids = np.random.default_rng(0).integers(0, model.vocab_size, (2, 24))
    losses = [model.train_step(ids, lr=1e-2).loss for _ in range(10)]
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda m: m.loglikelihood([[]], [[1]]), r"contexts\[0\]"),
        (lambda m: m.loglikelihood([[1], [2]], [[1], []]), r"continuations\[1\]"),
        (lambda m: m.loglikelihood([[1]], [[1], [2]]), "given 2; expected one for each of 1"),
        (lambda m: m.loglikelihood([[1]], [[9999]]), "9999"),
        (lambda m: m.loglikelihood([[1]], [[1.5]]), "integers"),
        (lambda m: m.loglikelihood([[1]], [[1]], batch_tokens=0), "batch_tokens"),
        (lambda m: m.train_step([1, 2], lr=-1.0), "lr"),
        (lambda m: m.train_step([1, 2], betas=(0.9, 1.0)), "beta2"),
        (lambda m: m.train_step([1]), "-100"),
        (lambda m: m.load_optimizer(GOLDEN / "pgdn" / "model.safetensors"), "optimizer"),
        (lambda m: m.generate([1], temprature=1.0), "temprature"),
        (lambda m: m.stream([1], max_new_tokens=-1), "max_tokens"),
        (lambda m: deltanet.Model(GOLDEN / "pgdn", weights="int8").train_step([1, 2]), "int8"),
    ],
)
def test_wrong_input_is_named(model, call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(model)

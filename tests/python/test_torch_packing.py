"""Sequences that share a row, and padding: deltanet.layers and deltanet.models keep them apart or say what is wrong."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from deltanet import layers  # noqa: E402
from torch_models import KINDS, error, gradients, hybrid, load, padded, random_ids, small_model  # noqa: E402
from torch_models import one_thread as one_thread  # noqa: E402

LENGTHS = (12, 1, 20, 8)  # of the sequences that share rows in these tests


@pytest.fixture(scope="module", params=[*KINDS, "hybrid"])
def model(request):
    return hybrid(window_size=9) if request.param == "hybrid" else load(request.param)


@pytest.fixture
def ids(model):
    return random_ids(model, 1, sum(LENGTHS))


def offsets_of(lengths, dtype=torch.int32):
    return torch.tensor(np.cumsum([0, *lengths]), dtype=dtype)


def positions_of(lengths, first=0):
    return torch.cat([torch.arange(first, first + length) for length in lengths])[None]


def indices_of(lengths):
    return torch.cat([torch.full((length,), n) for n, length in enumerate(lengths)])[None].int()


def boundaries(how, lengths=LENGTHS):
    """What transformers' DataCollatorWithFlattening passes, or what upstream takes."""
    return {
        "cu_seqlens": lambda: {"cu_seqlens": offsets_of(lengths, torch.int64)},
        "cu_seq_lens": lambda: {
            **{name: offsets_of(lengths) for name in ("cu_seq_lens_q", "cu_seq_lens_k")},
            **{name: max(lengths) for name in ("max_length_q", "max_length_k")},
        },
        "seq_idx": lambda: {"seq_idx": indices_of(lengths)},
        "position_ids": lambda: {"position_ids": positions_of(lengths)},
        "later positions": lambda: {"position_ids": positions_of(lengths, first=2)},
    }[how]()


HOW = ("cu_seqlens", "cu_seq_lens", "seq_idx", "position_ids", "later positions")


def alone(model, ids, lengths=LENGTHS):
    return torch.cat([model(part, use_cache=False).logits for part in ids.split(lengths, dim=1)], dim=1)


# ---- packed


@torch.no_grad()
@pytest.mark.parametrize("how", HOW)
def test_packed_sequences_are_apart(model, ids, how):
    assert error(model(ids, **boundaries(how)).logits, alone(model, ids)) <= 1e-5
    states = model.model(ids, **boundaries(how)).last_hidden_state
    assert error(model.lm_head(states), alone(model, ids)) <= 1e-5


@pytest.mark.parametrize("how", ["cu_seq_lens", "position_ids"])
def test_gradients_of_packed_sequences_are_apart(model, ids, how):
    given = gradients(model, model(ids, **boundaries(how)).logits.square().sum())
    assert error(given, gradients(model, alone(model, ids).square().sum())) <= 1e-5


@torch.no_grad()
@pytest.mark.parametrize("how", ["cu_seqlens", "seq_idx", "position_ids"])
def test_rows_may_have_different_sequences(model, how):
    """A row of 12 + 1 + 8 tokens and one of 20 + 1; offsets count through both."""
    ids, lengths = random_ids(model, 2, 21), ((12, 1, 8), (20, 1))
    expected = torch.cat([alone(model, row[None], of) for row, of in zip(ids, lengths)])
    if how == "cu_seqlens":
        apart = boundaries(how, lengths[0] + lengths[1])
    else:
        rows = [boundaries(how, of)[how] for of in lengths]
        apart = {how: torch.cat(rows)}
    assert error(model(ids, **apart).logits, expected) <= 1e-5


@torch.no_grad()
@pytest.mark.parametrize("how", ["cu_seqlens", "seq_idx", "position_ids"])
def test_packed_sequences_may_be_padded(model, ids, how):
    """Padding on both sides, inside of a sequence and at a boundary; its positions mean nothing."""
    kept = torch.ones_like(ids)
    kept[0, [0, 1, 3, 11, 12 + 1 + 19, 40]] = 0
    parts = [ids[:, part][:, kept[0, part] == 1] for part in torch.arange(41).split(LENGTHS)]
    apart = boundaries(how)
    if how == "position_ids":
        apart = {"position_ids": torch.full((1, 41), 7)}
        apart["position_ids"][kept == 1] = positions_of([part.shape[1] for part in parts])[0]
    logits = model(ids, attention_mask=kept, **apart).logits
    expected = torch.cat([model(part, use_cache=False).logits for part in parts], dim=1)
    assert error(logits[kept == 1][None], expected) <= 1e-5
    assert not logits[kept == 0].any()


@torch.no_grad()
def test_one_row_of_positions_is_for_all_rows(model):
    ids = random_ids(model, 2, 21)
    expected = torch.cat([alone(model, row[None], (9, 12)) for row in ids])
    assert error(model(ids, position_ids=positions_of((9, 12))).logits, expected) <= 1e-5


@torch.no_grad()
def test_positions_that_go_on_change_nothing(model, ids):
    whole = model(ids, use_cache=False).logits
    assert torch.equal(model(ids, position_ids=torch.arange(3, 44)[None], use_cache=False).logits, whole)
    batch, mask = padded(random_ids(model, 2, 20), [20, 7], "left")
    positions = (mask.cumsum(1) - 1).masked_fill(mask == 0, 1)  # as generate makes them
    expected = model(batch, attention_mask=mask).logits
    output = model(batch, attention_mask=mask, position_ids=positions, use_cache=True)
    assert torch.equal(output.logits, expected)
    token = batch[:, -1:]  # the cache holds one sequence for each row
    mask = torch.nn.functional.pad(mask, (0, 1), value=1)
    more = model(token, attention_mask=mask, past_key_values=output.past_key_values, use_cache=True).logits
    assert error(more, model(torch.cat([batch, token], dim=1), attention_mask=mask).logits[:, -1:]) <= 1e-5


@torch.no_grad()
def test_packed_sequences_go_on_from_a_cache(model, ids):
    """Each from its own states, in the same order."""
    lengths, more = (12, 9, 20), (5, 1, 7)
    rest = random_ids(model, 1, sum(more)).flip(1)
    cache = layers.RecurrentCache()
    model(ids, cu_seqlens=offsets_of(lengths), past_key_values=cache, use_cache=True)
    logits = model(rest, cu_seqlens=offsets_of(more), past_key_values=cache, use_cache=True).logits
    for begin, end in zip(ids.split(lengths, dim=1), rest.split(more, dim=1)):
        expected = model(torch.cat([begin, end], dim=1)).logits[:, -end.shape[1] :]
        assert error(logits[:, : end.shape[1]], expected) <= 1e-5
        logits = logits[:, end.shape[1] :]


@torch.no_grad()
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    "layer",
    [lambda: layers.PrecondKDA(64, head_dim=16, num_heads=2), lambda: layers.Attention(64, 4)],
    ids=["mixer", "attention"],
)
def test_layers_take_the_same_boundaries(layer, how):
    layer, x = layer(), torch.randn(1, sum(LENGTHS), 64)
    expected = torch.cat([layer(part)[0] for part in x.split(LENGTHS, dim=1)], dim=1)
    assert error(layer(x, **boundaries(how))[0], expected) <= 1e-5


def trained(collator, data):
    """The parameters after two steps of the Trainer."""
    model = hybrid()
    options = transformers.TrainingArguments(
        "unused", max_steps=2, per_device_train_batch_size=2, gradient_accumulation_steps=2, learning_rate=0.5,
        optim="sgd", max_grad_norm=1e9, report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True,
        lr_scheduler_type="constant",
    )  # fmt: skip
    trainer = transformers.Trainer(model=model, args=options, train_dataset=data, data_collator=collator)
    trainer.train()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def with_padding(rows):
    ids, mask = padded(torch.nn.utils.rnn.pad_sequence([torch.tensor(row["input_ids"]) for row in rows], True),
                       [len(row["input_ids"]) for row in rows], "right")  # fmt: skip
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


@pytest.mark.parametrize("options", [{}, {"return_flash_attn_kwargs": True}, {"return_seq_idx": True}], ids=str)
def test_the_trainer_packs(options, monkeypatch):
    """Without padding, the Trainer makes the steps that it makes with padding."""
    monkeypatch.setattr(transformers.Trainer, "create_model_card", lambda *_, **__: None)
    rng = np.random.default_rng(0)
    data = [{"input_ids": rng.integers(3, 64, length).tolist()} for length in (9, 4, 14, 7, 3, 11, 6, 8)]
    before = torch.cat([parameter.detach().flatten() for parameter in hybrid().parameters()])
    step = trained(with_padding, data) - before
    assert step.norm() > 0.1
    collator = transformers.DataCollatorWithFlattening(return_position_ids=not options, **options)
    assert error(trained(collator, data) - before, step) <= 1e-4


# ---- padding


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_row_of_padding_only(model, side):
    batch, mask = padded(random_ids(model, 3, 21), [21, 0, 8], side)
    logits = model(batch, attention_mask=mask).logits
    kept = slice(-8, None) if side == "left" else slice(8)
    assert not logits[1].any()
    assert error(logits[:1], model(batch[:1]).logits) <= 1e-5
    assert error(logits[2:, kept], model(batch[2:, kept]).logits) <= 1e-5
    assert not model(batch[1:2], attention_mask=mask[1:2]).logits.any()


@torch.no_grad()
def test_left_padding_may_be_read_in_pieces(model):
    """The first pieces have rows of padding only, whose states stay what they are: none."""
    lengths = [21, 2, 8]
    batch, mask = padded(random_ids(model, 3, 21), lengths, "left")
    cache, begin, pieces = layers.RecurrentCache(), 0, []
    for size in (5, 9, 1, 5, 1):
        piece, begin = batch[:, begin : begin + size], begin + size
        options = dict(attention_mask=mask[:, :begin], past_key_values=cache, use_cache=True)
        pieces.append(model(piece, **options).logits)
    logits = torch.cat(pieces, dim=1)
    for n, length in enumerate(lengths):
        assert error(logits[n, -length:], model(batch[n : n + 1, -length:]).logits[0]) <= 1e-5
        assert not logits[n, :-length].any() or length == 21


def test_labels_of_left_padding_count():
    """As in transformers: padding changes no logits of tokens, but whoever wants no loss from it says -100."""
    model = load("pgdn")
    batch, mask = padded(random_ids(model, 1, 20), [12], "left")
    labels = torch.where(mask == 1, batch, -100)
    labels[0, 8] = -100  # the first token is predicted from padding
    expected = model(batch[:, -12:], labels=batch[:, -12:]).loss.item()
    assert model(batch, attention_mask=mask, labels=labels).loss.item() == pytest.approx(expected, rel=1e-5)
    assert model(batch, attention_mask=mask, labels=batch).loss.item() != pytest.approx(expected, rel=1e-2)


# ---- what is refused


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(cu_seqlens=torch.tensor([0, 5, 40])), "cu_seqlens: given offsets from 0 to 40"),
        (dict(cu_seqlens=torch.tensor([1, 5, 41])), "cu_seqlens: given offsets from 1 to 41"),
        (dict(cu_seq_lens_q=torch.tensor([0, 9, 5, 41])), "cu_seq_lens_q: given offsets .* go up"),
        (dict(cu_seqlens=[0, 41]), "cu_seqlens: given list"),
        (dict(cu_seqlens=torch.tensor([0.0, 41.0])), "cu_seqlens: given shape .2,.; expected a tensor .* of integers"),
        (dict(cu_seqlens=torch.tensor([0])), "cu_seqlens: given shape .1,."),
        (dict(cu_seqlens=torch.tensor([[0, 41]])), "cu_seqlens: given shape .1, 2."),
        (dict(position_ids=torch.arange(41)), "position_ids: given shape .41,.; expected .1, 41."),
        (dict(position_ids=torch.zeros(2, 41)), "position_ids: given shape .2, 41."),
        (dict(seq_idx=torch.zeros(1, 40)), "seq_idx: given shape .1, 40."),
        (dict(position_ids=torch.arange(0, 82, 2)[None]), "position_ids: given positions with a gap"),
        (dict(attention_mask=torch.ones(3, 41)), "attention_mask: given shape"),
        (dict(attention_mask=torch.ones(1, 40)), "attention_mask: given shape"),
        (dict(attention_mask=torch.ones(1, 1, 41)), "attention_mask: given shape"),
        (dict(past_key_values=transformers.DynamicCache()), "past_key_values: given DynamicCache; expected a"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    model = load("pgdn")
    with pytest.raises(ValueError, match=message):
        model(random_ids(model, 1, 41), **options)


@pytest.mark.parametrize("how", ["model", "base", "mixer", "attention"])
def test_unknown_keywords_are_refused(how):
    model = hybrid()
    ids = random_ids(model, 1, 9)
    x = model.model.embeddings(ids)
    call, given = {
        "model": (model, ids),
        "base": (model.model, ids),
        "mixer": (model.model.layers[0].attn, x),
        "attention": (model.model.layers[1].attn, x),
    }[how]
    with pytest.raises(TypeError, match=r"forward\(\) got an unexpected keyword argument 'cu_seqlen'"):
        call(given, cu_seqlen=torch.tensor([0, 4, 9]))
    with pytest.raises(TypeError, match="is_causall"):
        call(given, is_causall=True)
    with pytest.warns(UserWarning, match="output_attentions is ignored"):
        call(given, output_attentions=True)
    # What transformers and adapters pass to all models.
    call(given, output_attentions=None, is_causal=True, output_router_logits=False)
    call(given, token_type_ids=torch.zeros_like(ids), is_causal=None, max_length_q=9, something_new=None)


def test_not_causal_is_refused_or_off():
    model = load("pgdn")
    with pytest.raises(ValueError, match="is_causal: given False"):
        model(random_ids(model, 1, 9), is_causal=False)


@pytest.mark.parametrize("model", [small_model, hybrid])
def test_a_cache_has_the_states_of_other_sequences(model):
    model = model()
    ids, cache = random_ids(model, 3, 9), layers.RecurrentCache()
    model(ids, past_key_values=cache, use_cache=True)
    with pytest.raises(ValueError, match="past_key_values: given the states of 3 sequences; expected those of 2"):
        model(ids[:2], past_key_values=cache, use_cache=True)


@pytest.mark.parametrize(
    "make",
    [lambda: layers.GatedDeltaNet(16, head_dim=8, num_heads=2), lambda: layers.Attention(16, 2)],
    ids=["mixer", "attention"],
)
@pytest.mark.parametrize("cache", [layers.RecurrentCache(), [{}]], ids=["ours", "list"])
def test_a_cache_requires_the_index_of_the_layer(make, cache):
    layer, x = make(), torch.randn(1, 5, 16)
    assert layer(x)[2] is None
    with pytest.raises(ValueError, match=f"{type(layer).__name__} requires `layer_idx`"):
        layer(x, past_key_values=cache)


def test_a_cache_of_another_kind_is_refused_by_a_layer():
    layer = layers.GatedDeltaNet(16, head_dim=8, num_heads=2, layer_idx=0)
    with pytest.raises(ValueError, match="past_key_values: given list; expected a deltanet.layers.RecurrentCache"):
        layer(torch.randn(1, 5, 16), past_key_values=[{}])

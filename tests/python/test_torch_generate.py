"""generate: caches that go on, prompts given as embeddings, virtual tokens as PEFT puts them, beams and padding."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from deltanet import layers  # noqa: E402
from torch_models import KINDS, hybrid, load, padded, random_ids  # noqa: E402
from torch_models import one_thread as one_thread  # noqa: E402

OPTIONS = dict(max_new_tokens=6, do_sample=False, pad_token_id=0, eos_token_id=None)


@pytest.fixture(scope="module", params=[*KINDS, "hybrid"])
def model(request):
    return hybrid(window_size=9) if request.param == "hybrid" else load(request.param)


@pytest.fixture
def ids(model):
    return random_ids(model, 3, 21)


@pytest.fixture
def read(model):
    """How many tokens the model reads in each call."""
    counts = []
    hook = model.model.layers[0].register_forward_pre_hook(
        lambda _, args, options: counts.append(args[0].shape[1]), with_kwargs=True
    )
    yield counts
    hook.remove()


@pytest.mark.parametrize(
    "options", [dict(do_sample=False), dict(num_beams=3, do_sample=False)], ids=["greedy", "beams"]
)
def test_left_padding_changes_nothing(model, ids, options):
    lengths = [21, 5, 13]
    batch, mask = padded(ids, lengths, "left")
    options = {**OPTIONS, **options}
    together = model.generate(batch, attention_mask=mask, **options)
    for n, length in enumerate(lengths):
        alone = model.generate(ids[n : n + 1, -length:], **options)
        assert torch.equal(together[n, 21:], alone[0, length:])


def test_beams_take_their_states_along(model, ids):
    options = dict(OPTIONS, num_beams=4, max_new_tokens=8)
    cached, recomputed = (model.generate(ids, use_cache=use_cache, **options) for use_cache in (True, False))
    assert torch.equal(cached, recomputed)


def test_each_token_is_read_once(model, ids, read):
    model.generate(ids, **OPTIONS)
    assert read == [21, 1, 1, 1, 1, 1]


def test_without_a_cache_all_are_read_again(model, ids, read):
    expected = model.generate(ids, **OPTIONS)
    read.clear()
    assert torch.equal(model.generate(ids, use_cache=False, **OPTIONS), expected)
    assert read == [21, 22, 23, 24, 25, 26]


@pytest.mark.parametrize("how", ["everything", "what is new"])
def test_generation_goes_on_from_a_cache(model, ids, read, how):
    """Given all tokens, or those the cache has not seen with a mask for all of them."""
    expected = model.generate(ids, **OPTIONS)
    read.clear()
    cache = layers.RecurrentCache()
    with torch.no_grad():
        model(ids[:, :12], past_key_values=cache, use_cache=True)
    given = ids if how == "everything" else ids[:, 12:]
    out = model.generate(given, attention_mask=torch.ones_like(ids), past_key_values=cache, **OPTIONS)
    assert torch.equal(out[:, given.shape[1] :], expected[:, 21:])
    assert read == [12, 9, 1, 1, 1, 1, 1]


def test_a_prompt_may_be_read_in_chunks(model, ids, read):
    expected = model.generate(ids, **OPTIONS)
    read.clear()
    out = model.generate(ids, past_key_values=layers.RecurrentCache(), prefill_chunk_size=8, **OPTIONS)
    assert torch.equal(out, expected) and read == [8, 8, 5, 1, 1, 1, 1, 1]


def test_a_prompt_may_be_embeddings(model, ids, read):
    expected = model.generate(ids, **OPTIONS)
    embeddings = model.model.embeddings(ids)
    read.clear()
    assert torch.equal(model.generate(inputs_embeds=embeddings, **OPTIONS), expected[:, 21:])
    assert read == [21, 1, 1, 1, 1, 1]
    cache = layers.RecurrentCache()
    with torch.no_grad():
        model(ids[:, :12], past_key_values=cache, use_cache=True)
    read.clear()
    out = model.generate(inputs_embeds=embeddings, past_key_values=cache, **OPTIONS)
    assert torch.equal(out, expected[:, 21:]) and read == [9, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("side", ["none", "left"])
def test_virtual_tokens_are_counted(model, ids, read, monkeypatch, side):
    """Prompt tuning puts trained embeddings in front of the first input and lengthens the mask, but not input_ids."""
    virtual = torch.randn(1, 5, model.config.hidden_size, generator=torch.Generator().manual_seed(0)).expand(3, -1, -1)
    batch, mask = padded(ids, [21, 4, 9] if side == "left" else [21, 21, 21], "left")
    whole = torch.cat([virtual, model.model.embeddings(batch)], dim=1)
    whole_mask = torch.cat([mask.new_ones(3, 5), mask], dim=1)
    expected = model.generate(inputs_embeds=whole, attention_mask=whole_mask, **OPTIONS)
    prepare = model.prepare_inputs_for_generation

    def prepare_with_virtual_tokens(*args, **kwargs):
        inputs = prepare(*args, **kwargs)
        if inputs["attention_mask"] is not None:
            inputs["attention_mask"] = torch.cat([mask.new_ones(3, 5), inputs["attention_mask"]], dim=1)
        inputs["position_ids"] = None
        if inputs["past_key_values"] is None:
            inputs["inputs_embeds"] = torch.cat([virtual, model.model.embeddings(inputs.pop("input_ids"))], dim=1)
        return inputs

    monkeypatch.setattr(model, "prepare_inputs_for_generation", prepare_with_virtual_tokens)
    read.clear()
    out = model.generate(batch, attention_mask=mask, **OPTIONS)
    assert torch.equal(out[:, 21:], expected)
    if side == "none":
        assert read == [26, 1, 1, 1, 1, 1]


def test_inputs_as_transformers_4_asks_for_them(model, ids):
    """Without next_sequence_length and is_first_iteration: what is unseen follows from what the cache has seen."""
    prepare, embeddings = model.prepare_inputs_for_generation, model.model.embeddings(ids)
    cache = layers.RecurrentCache()
    assert torch.equal(prepare(ids)["input_ids"], ids)
    assert torch.equal(prepare(ids, inputs_embeds=embeddings)["inputs_embeds"], embeddings)
    assert torch.equal(prepare(ids, past_key_values=cache)["input_ids"], ids)
    cache.seen_tokens = 18
    assert torch.equal(prepare(ids, past_key_values=cache)["input_ids"], ids[:, 18:])
    cache.seen_tokens = 40  # twenty virtual tokens and all but the last
    assert torch.equal(prepare(ids, past_key_values=cache)["input_ids"], ids[:, 20:])
    cache.seen_tokens = 25  # 21 embeddings, four of five generated tokens
    out = prepare(ids[:, :5], past_key_values=cache, inputs_embeds=embeddings)
    assert torch.equal(out["input_ids"], ids[:, 4:5]) and "inputs_embeds" not in out
    cache.seen_tokens = 21  # the first token after a prompt of embeddings
    out = prepare(ids[:, :1], past_key_values=cache, inputs_embeds=embeddings)
    assert torch.equal(out["input_ids"], ids[:, :1])


@pytest.mark.parametrize("name", ["cu_seq_lens_q", "seq_idx"])
def test_packed_prompts_are_refused(model, ids, name):
    with pytest.raises(ValueError, match=f"{name}: given to generate"):
        model.generate(ids[:1], **{name: torch.tensor([0, 9, 21])}, **OPTIONS)


def test_prompts_that_start_again_are_refused(model, ids):
    positions = torch.cat([torch.arange(9), torch.arange(12)])[None]
    with pytest.raises(ValueError, match="past_key_values: given the states of 2 sequences; expected those of 1"):
        model.generate(ids[:1], position_ids=positions, **OPTIONS)

"""The model "deltanet" of lm-evaluation-harness: its numbers are those of the logits, and deltanet-eval runs tasks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
pytest.importorskip("lm_eval")

import deltanet
from deltanet.evaluation import DeltanetLM
from lm_eval.api.instance import Instance
from test_model_sessions import expected_loglikelihood

TOKENIZERS = Path(__file__).parents[1] / "golden" / "tokenizers"
CONFIG = {
    "model_type": "precond_gated_deltanet", "hidden_size": 32, "num_hidden_layers": 2, "num_heads": 2, "head_dim": 16,
    "expand_v": 1.0, "intermediate_size": 48, "vocab_size": 256, "initializer_range": 0.15,
}  # fmt: skip
PREFIX = 10


@pytest.fixture(scope="module")
def model():
    return deltanet.Model.from_config(CONFIG, seed=3)


@pytest.fixture(scope="module")
def lm(model):
    return DeltanetLM(model, prefix_token_id=PREFIX, batch_size=3, max_length=40)


def requests(kind, *arguments):
    return [Instance(request_type=kind, doc={}, arguments=each, idx=i) for i, each in enumerate(arguments)]


def said_greedily(model, context, tokens):
    return model.generate(context, max_new_tokens=tokens)[len(context) :].tolist()


def test_loglikelihood_is_that_of_the_logits(model, lm):
    greedy = bytes(said_greedily(model, list(b"Is it"), 1)).decode("latin-1")
    pairs = [("Is it", " so?"), ("Is it", " not"), ("Is it", "é"), ("", "Nothing before"), ("", "A"), ("One", " pair")]
    if ord(greedy) < 128:  # what is said may be no text
        pairs.append(("Is it", greedy))
    results = lm.loglikelihood(requests("loglikelihood", *pairs), disable_tqdm=True)
    for (context, continuation), (value, flag) in zip(pairs, results):
        ids = list(context.encode()) or [PREFIX]
        expected, expected_flag = expected_loglikelihood(model, ids, list(continuation.encode()))
        assert value == pytest.approx(expected, abs=1e-4) and flag == expected_flag, (context, continuation)


def test_greedy_tokens_are_flagged(model, lm):
    context = list(b"The")
    greedy = said_greedily(model, context, 5)
    other = [*greedy[:4], (greedy[4] + 1) % 256]
    results = lm._loglikelihood_tokens([(None, context, greedy), (None, context, other)], disable_tqdm=True)
    assert [flag for _, flag in results] == [True, False]


def test_long_contexts_lose_their_beginning(model, lm):
    context, continuation = list(range(60)), list(range(5))
    ((value, _),) = lm._loglikelihood_tokens([(None, context, continuation)], disable_tqdm=True)
    expected, _ = expected_loglikelihood(model, context[-(40 + 1 - 5) :], continuation)
    assert value == pytest.approx(expected, abs=1e-4)


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "lm_eval.models.deltanet"]


def test_cuts_are_counted_and_said(lm, caplog):
    long, short, continuation = list(range(60)), list(range(36)), list(range(5))
    lm._loglikelihood_tokens([(None, c, continuation) for c in (long, short, long[:38])], disable_tqdm=True)
    assert warnings_of(caplog) == [
        "deltanet: 2 of 3 contexts were longer than max_length=40 and lost their beginning, 26 tokens in all"
    ]
    caplog.clear()
    lm.generate_until(requests("generate_until", *((text, {"max_gen_toks": 8}) for text in ("a" * 33, "b" * 32))), True)
    assert warnings_of(caplog) == [
        "deltanet: 1 of 2 contexts were longer than max_length=40 and lost their beginning, 1 tokens in all"
    ]
    caplog.clear()
    lm.loglikelihood_rolling(requests("loglikelihood_rolling", ("c" * 100,)), disable_tqdm=True)  # nothing is lost
    assert warnings_of(caplog) == []


ATTENTION = {"layers": [1], "num_heads": 2}


@pytest.mark.parametrize(
    "more, limit",
    [
        ({}, None),
        ({"attn": {**ATTENTION, "window_size": 64}}, None),
        ({"attn": ATTENTION}, 2048),
        ({"attn": [{**ATTENTION, "window_size": 64}, {**ATTENTION, "layers": [0]}]}, 2048),
        ({"model_type": "transformer"}, 2048),
        ({"model_type": "transformer", "window_size": 64}, None),
    ],
)
def test_recurrent_models_cut_nothing(more, limit, caplog):
    model = deltanet.Model.from_config(CONFIG | {"max_position_embeddings": 2048} | more, seed=3)
    context, continuation = [i * i % 251 for i in range(4000)], [1, 2, 3]
    ((value, _),) = DeltanetLM(model)._loglikelihood_tokens([(None, context, continuation)], disable_tqdm=True)
    kept = context[-(limit + 1 - 3) :] if limit else context
    assert value == pytest.approx(model.loglikelihood([kept], [continuation])[0][0], abs=1e-4)
    assert bool(warnings_of(caplog)) == bool(limit)


def test_only_tokens_of_the_tokenizer_are_said():
    model = deltanet.Model.from_config(CONFIG | {"vocab_size": 2560}, seed=3)  # ten times as many as there are bytes
    lm = DeltanetLM(model, tokenizer="bytes", prefix_token_id=PREFIX)
    asked = {"max_gen_toks": 30, "do_sample": True, "temperature": 3.0, "until": ["never said"]}
    (text,) = lm.generate_until(requests("generate_until", ("Hello", asked)), disable_tqdm=True)
    assert len(text) > 5


def test_rolling_predicts_every_token_once(model, lm):
    text = "Every token of a document is predicted once, with as much context as max_length leaves to it."
    values = lm.loglikelihood_rolling(requests("loglikelihood_rolling", (text,), ("Short.",), ("",)), disable_tqdm=True)
    ids = list(text.encode())
    expected = expected_loglikelihood(model, [PREFIX], ids[:40])[0]
    for begin in range(40, len(ids), 40):  # windows read 40 tokens; the last one scores only what is left
        end = min(begin + 40, len(ids))
        expected += expected_loglikelihood(model, ids[end - 41 : begin], ids[begin:end])[0]
    short = expected_loglikelihood(model, [PREFIX], list(b"Short."))[0]
    assert values == pytest.approx([expected, short, 0.0], abs=1e-3)


def test_a_tokenizer_of_pieces():
    tokenizer = deltanet.Tokenizer(TOKENIZERS / "gpt2.json")
    model = deltanet.Model.from_config(CONFIG | {"vocab_size": tokenizer.vocab_size}, seed=3)
    lm = DeltanetLM(model, tokenizer=tokenizer, add_bos_token=False)
    pairs = [("The quick brown", " fox jumps"), ("The quick brown", " dog"), ("", "Once upon a time"), ("a ", "b")]
    results = lm.loglikelihood(requests("loglikelihood", *pairs), disable_tqdm=True)
    for (context, continuation), (value, _) in zip(pairs, results):
        whole = tokenizer.encode(context + continuation)
        split = len(tokenizer.encode(context.rstrip()))
        ids = (whole[:split], whole[split:]) if context else ([lm.prefix_token_id], whole)
        assert value == pytest.approx(expected_loglikelihood(model, *ids)[0], abs=1e-4), (context, continuation)


def test_generate_until(model, lm):
    contexts = ["Hello", "A longer beginning", "x", ""]
    decode = deltanet.Tokenizer.bytes().decode
    said = [decode(said_greedily(model, list(c.encode()) or [PREFIX], 16)) for c in contexts]
    stop = said[0][5:7]
    options = {"until": [stop, "never said"], "max_gen_toks": 16, "do_sample": False}
    results = lm.generate_until(requests("generate_until", *((c, options) for c in contexts)), disable_tqdm=True)
    assert results == [text.split(stop)[0] for text in said]
    assert len(results[0]) <= 5

    # Of two that one token completes, the one that begins earlier counts.
    text = said[0]
    new = next(i for i in range(1, len(text)) if text[i] not in text[:i])
    options = {"until": [text[new], text[new - 1 : new + 1]], "max_gen_toks": 16}
    assert lm.generate_until(requests("generate_until", ("Hello", options)), disable_tqdm=True) == [text[: new - 1]]

    mixed = [
        ("Hello", {"max_gen_toks": 4}),
        ("x", {"until": said[2][2], "max_gen_toks": 8}),
        ("Hello", {"max_gen_toks": 6}),
    ]
    results = lm.generate_until(requests("generate_until", *mixed), disable_tqdm=True)
    assert results == [decode(said_greedily(model, list(b"Hello"), 4)), said[2][: said[2].index(said[2][2])],
                       decode(said_greedily(model, list(b"Hello"), 6))]  # fmt: skip


@pytest.mark.parametrize("place", [0, 2])
def test_generation_ends_with_the_end_of_a_text(model, place):
    said = said_greedily(model, list(b"Hello"), 8)
    assert said[place] not in said[:place]
    ends = deltanet.Model.from_config(CONFIG | {"eos_token_id": said[place]}, seed=3)
    (text,) = DeltanetLM(ends, prefix_token_id=PREFIX).generate_until(
        requests("generate_until", ("Hello", {"max_gen_toks": 8})), disable_tqdm=True
    )
    assert text == deltanet.Tokenizer.bytes().decode(said[:place])


def test_generation_reads_what_max_length_leaves(model, lm):
    context = "A context that is longer than what the model may read before it answers."
    decode = deltanet.Tokenizer.bytes().decode
    for tokens in (8, 39):
        kept = list(context.encode())[-(40 - tokens) :]
        expected = decode(said_greedily(model, kept, tokens))
        options = {"max_gen_toks": tokens}
        assert lm.generate_until(requests("generate_until", (context, options)), disable_tqdm=True) == [expected]
    with pytest.raises(ValueError, match="given 40; expected less than max_length, 40"):
        lm.generate_until(requests("generate_until", (context, {"max_gen_toks": 40})), disable_tqdm=True)


def test_sampling_is_asked_for(lm):
    def draw(**options):
        asked = {"max_gen_toks": 16, **options}
        return lm.generate_until(requests("generate_until", ("Hello", asked)), disable_tqdm=True)

    assert draw() == draw(do_sample=False, temperature=1.0) == draw(temperature=0.0)
    assert draw(do_sample=True) != draw() and draw(temperature=1.5, seed=1) != draw(temperature=1.5, seed=2)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda lm, make: lm.generate_until(requests("generate_until", ("a", {"num_beams": 4}))), "num_beams"),
        (lambda lm, make: lm.generate_until(requests("generate_until", ("a", {"max_gen_toks": 99}))), "max_length, 40"),
        (lambda lm, make: make(device="cuda"), "device"),
        (lambda lm, make: make(batch_size=0), "batch_size"),
        (lambda lm, make: make(tokenizer=TOKENIZERS / "gpt2.json"), "vocabulary of the model"),
        (lambda lm, make: make(tokenizer="/no/such/file"), "no/such/file"),
        (lambda lm, make: make().prefix_token_id, "prefix_token_id"),
        (lambda lm, make: DeltanetLM("/no/such/directory"), "no/such/directory"),
    ],
)
def test_wrong_input_is_named(model, lm, call, message):
    with pytest.raises(ValueError, match=message):
        call(lm, lambda **options: DeltanetLM(model, **options))


def test_a_directory_without_a_tokenizer_says_what_to_do(tmp_path):
    deltanet.Model.from_config(CONFIG | {"vocab_size": 300}).save(tmp_path)
    with pytest.raises(ValueError, match="neither tokenizer.json nor tokenizer.model; expected tokenizer=PATH"):
        DeltanetLM(str(tmp_path))
    assert DeltanetLM(str(tmp_path), tokenizer="bytes").tok_encode("a") == [97]


TASK = """task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: {kind}
doc_to_text: question
{more}
"""


def test_the_program_runs_local_tasks(model, tmp_path):
    model.save(tmp_path / "model")
    documents = [
        {"question": f"Question {i}:", "choices": [" one", " two", " three"], "answer": i % 3, "text": f" Text {i}"}
        for i in range(6)
    ]
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps(document) + "\n" for document in documents))
    choice = "doc_to_choice: choices\ndoc_to_target: answer"
    (tmp_path / "choice.yaml").write_text(TASK.format(name="choice", data=data, kind="multiple_choice", more=choice))
    until = 'doc_to_target: text\ngeneration_kwargs: {until: ["."], max_gen_toks: 4}'
    (tmp_path / "until.yaml").write_text(TASK.format(name="until", data=data, kind="generate_until", more=until))
    command = [
        sys.executable,
        "-m",
        "deltanet.evaluation",
        "--model_args",
        f"pretrained={tmp_path / 'model'},weights=f32",
    ]
    command += [
        "--tasks",
        "choice,until",
        "--include_path",
        tmp_path,
        "--output_path",
        tmp_path / "out",
        "--log_samples",
    ]
    environment = os.environ | {"HF_DATASETS_CACHE": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-3000:]
    (results,) = (tmp_path / "out").rglob("results_*.json")
    accuracy = json.loads(results.read_text())["results"]["choice"]["acc,none"]

    right = 0
    for document in documents:
        question = list(document["question"].encode())
        # The harness puts a space between question and choice.
        scores = [expected_loglikelihood(model, question, list((" " + c).encode()))[0] for c in document["choices"]]
        right += int(np.argmax(scores)) == document["answer"]
    assert accuracy == pytest.approx(right / len(documents))

"""deltanet-eval on the harness's own long tasks: RULER's needles and in-context retrieval, with data made here."""

import json
import os
import re
import sys
import types
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
lm_eval = pytest.importorskip("lm_eval")
pytest.importorskip("transformers")  # which RULER's tasks import
pytest.importorskip("nltk")

import datasets
import nltk
from lm_eval.tasks import TaskManager

import deltanet
from deltanet.evaluation import DeltanetLM
from test_cli import PROGRAM, succeed
from test_eval import CONFIG

WORDS = {"nouns": ["lantern", "harbor", "falcon"], "adjectives": ["brave", "quiet"], "verbs": ["go"]}


@pytest.fixture(scope="module")
def model_of_bytes(tmp_path_factory):
    """A checkpoint without a tokenizer, which transformers could not read."""
    directory = tmp_path_factory.mktemp("model")
    deltanet.Model.from_config(CONFIG, seed=3).save(directory)
    return directory


@pytest.fixture
def local_data(monkeypatch):
    """What RULER's tasks download."""

    def load_dataset(path, *_, **__):
        assert path == "baber/paul_graham_essays"
        return {"text": [" ".join(f"This is sentence {i} of it." for i in range(n, n + 400)) for n in (0, 400)]}

    words = types.ModuleType("wonderwords")
    words.RandomWord = lambda: types.SimpleNamespace(_categories=WORDS)
    monkeypatch.setitem(sys.modules, "wonderwords", words)
    monkeypatch.setattr(nltk.data, "find", lambda name: name)
    monkeypatch.setattr(nltk, "sent_tokenize", lambda text: text.replace(". ", ".\n").split("\n"))
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    yield
    for name in [name for name in sys.modules if "prepare_niah" in name or "niah_utils" in name]:
        del sys.modules[name]  # they keep the words


def manager(metadata):
    """Of the harness's own tasks, those that are asked for here: to look through all takes long."""
    tasks = Path(lm_eval.__file__).parent / "tasks"
    folders = [str(tasks / name) for name in ("ruler", "fda", "swde", "squad_completion")]
    return TaskManager(include_path=folders, include_defaults=False, metadata=metadata)


def evaluate(lm, task, metadata, limit=None):
    results = lm_eval.simple_evaluate(
        lm, tasks=[task], limit=limit, log_samples=True, bootstrap_iters=0, task_manager=manager(metadata)
    )
    return results["results"][task], results["samples"][task]


@pytest.fixture
def contexts(monkeypatch):
    """The tokens that models read to generate, as they come."""
    read = []
    generate = deltanet.Session.generate

    def spy(self, ids, *args, **kwargs):
        read.extend(ids)
        return generate(self, ids, *args, **kwargs)

    monkeypatch.setattr(deltanet.Session, "generate", spy)
    return read


@pytest.mark.parametrize(
    ("task", "length"),
    [("niah_single_1", 1024), ("niah_single_2", 1024), ("niah_single_3", 1024), ("niah_single_2", 8192)],
)
def test_needles_are_read_whole(model_of_bytes, local_data, contexts, task, length):
    lm = DeltanetLM(str(model_of_bytes), prefix_token_id=10, batch_size=2)
    metadata = {"pretrained": str(model_of_bytes), "max_seq_lengths": [length]}
    _, samples = evaluate(lm, task, metadata, limit=2)
    prompts = [sample["arguments"][0][0] for sample in samples]
    assert sorted(bytes(ids).decode() for ids in contexts) == sorted(prompts)
    for sample, prompt in zip(samples, prompts):
        prefix = sample["doc"]["gen_prefix"]
        assert prompt.endswith(" " + prefix)
        # RULER counts the prompt without the beginning of the answer, and 128 tokens for the answer.
        assert sample["doc"]["length"] == len(prompt.encode()) - len(prefix) - 1 + 128 <= length


def test_needles_take_the_tokenizer_of_the_model_that_was_made_last(model_of_bytes, local_data):
    DeltanetLM(str(model_of_bytes), prefix_token_id=10)
    task = manager({"max_seq_lengths": [1024]}).load(["niah_single_1"])["tasks"]["niah_single_1"]
    assert {doc["length"] for doc in task.test_docs()} == {
        len(doc["input"].encode()) + 128 for doc in task.test_docs()
    }


@pytest.mark.parametrize("task", ["fda", "swde", "squad_completion"])
def test_retrieval(model_of_bytes, monkeypatch, task):
    lm = DeltanetLM(str(model_of_bytes), prefix_token_id=10)
    texts = ["The device is a pump. Device:", "A page about a film. " * 120 + "Director:"]
    # squad_completion takes the harness's own settings for generation.
    stop, tokens = ("\n\n", 256) if task == "squad_completion" else ("\n", 48)
    ids = [list(text.encode()) for text in texts]
    said = [lm.tok_decode(lm.model.generate(i, max_new_tokens=tokens)[len(i) :].tolist()) for i in ids]
    rows = [
        {"text": texts[0], "value": "nobody says this"},
        {"text": texts[1], "value": said[1].split(stop)[0][3:9].strip().upper()},
    ]

    def load_dataset(path, *_, **__):
        assert path.startswith("hazyresearch/based-")
        return datasets.DatasetDict({"validation": datasets.Dataset.from_list(rows)})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    results, samples = evaluate(lm, task, {})
    assert [sample["resps"][0][0] for sample in samples] == [text.split(stop)[0] for text in said]
    assert results["contains,none"] == 0.5


def without_needle(prompt, answer):
    """A prompt with neither needle nor names, and its needle."""
    (needle,) = re.findall(r"One of the special magic \w+ for \S+ is: \S+\.", prompt)
    key = re.search(r"for (\S+) is", needle)[1]
    assert answer in needle
    rest = prompt.replace(needle, "NEEDLE").replace(key, "KEY")
    # It stood in a line of its own or between two words, with a blank also where there was none.
    rest = rest.replace("NEEDLE\n", "").replace(" NEEDLE ", " ").replace("\n ", "\n").replace(" \n", "\n")
    return rest, needle.replace(key, "KEY").replace(answer, "VALUE")


@pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} is not built")
@pytest.mark.parametrize("number", [1, 2, 3])
def test_native_needles_are_those_of_ruler(model_of_bytes, local_data, tmp_path, number):
    """The same haystack, as long, around the same needle and question, to the blank."""
    length = 8192
    essays = tmp_path / "essays.txt"
    essays.write_text("\n".join(datasets.load_dataset("baber/paul_graham_essays")["text"]))
    dump = tmp_path / "prompts.jsonl"
    succeed("eval", model_of_bytes, "--tasks", f"s_niah_{number}", "--lengths", length, "--fit", "harness", "--haystack",
            essays, "--samples", 60, "--dump", dump)  # fmt: skip
    native = [json.loads(line) for line in dump.read_text().splitlines()]
    assert {line["tokens"] for line in native} == {len(line["prompt"].encode()) for line in native}

    DeltanetLM(str(model_of_bytes), prefix_token_id=10)
    name = f"niah_single_{number}"
    task = manager({"max_seq_lengths": [length]}).load([name])["tasks"][name]
    theirs = [(f"{doc['input']} {doc['gen_prefix']}", doc["outputs"][0]) for doc in task.test_docs()]
    ours = [(line["prompt"], line["answer"]) for line in native]
    assert {without_needle(*pair) for pair in ours} == {without_needle(*pair) for pair in theirs}
    if number > 1:  # one of RULER's 40 depths
        depths = {round(100 * i / 39) for i in range(40)}
        assert {line["depth"] for line in native} <= depths

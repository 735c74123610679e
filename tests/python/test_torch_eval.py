"""The same checkpoint through the harness's own "hf" and through "deltanet": every kind of request gives the same."""

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("lm_eval")

import deltanet
import deltanet.models
from deltanet.evaluation import DeltanetLM
from lm_eval.models.huggingface import HFLM
from test_eval import CONFIG, TOKENIZERS, requests


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    path, file = tmp_path_factory.mktemp("model"), TOKENIZERS / "gpt2.json"
    tokenizer = deltanet.Tokenizer(file)
    model = deltanet.Model.from_config(CONFIG | {"vocab_size": tokenizer.vocab_size}, seed=3)
    model.save(path)
    theirs = HFLM(
        pretrained=transformers.AutoModelForCausalLM.from_pretrained(path),
        tokenizer=transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(file), bos_token="<|endoftext|>", eos_token="<|endoftext|>"
        ),
        max_length=40, batch_size=2, device="cpu",
    )  # fmt: skip
    return theirs, DeltanetLM(model, tokenizer=tokenizer, max_length=40, batch_size=2)


def test_loglikelihood(both):
    pairs = [("The quick brown", " fox jumps"), ("The quick brown", " dog"), ("", "Once upon a time"), ("a ", "b")]
    pairs.append(("word " * 50, "end of it"))  # longer than max_length
    theirs, ours = (lm.loglikelihood(requests("loglikelihood", *pairs), disable_tqdm=True) for lm in both)
    assert [flag for _, flag in ours] == [flag for _, flag in theirs]
    assert [value for value, _ in ours] == pytest.approx([value for value, _ in theirs], abs=1e-3)


def test_loglikelihood_rolling(both):
    texts = [("A long document, to be read in windows. " * 10,), ("short",)]
    theirs, ours = (
        lm.loglikelihood_rolling(requests("loglikelihood_rolling", *texts), disable_tqdm=True) for lm in both
    )
    assert ours == pytest.approx(theirs, rel=1e-5)


def test_generate_until(both):
    def run(lm, until):
        options = {"until": until, "max_gen_toks": 8, "do_sample": False}
        asked = requests("generate_until", ("Hello", options), ("A b", options))
        return lm.generate_until(asked, disable_tqdm=True)

    theirs, ours = both
    said = run(theirs, [])
    assert run(ours, []) == said and all(said)
    stop = said[0][len(said[0]) // 2]
    assert run(ours, [stop]) == run(theirs, [stop]) != said

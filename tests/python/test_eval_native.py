"""`deltanet eval` against lm-evaluation-harness on the same checkpoint and the same data: equal to the example.

DELTANET_EVAL_DATA names a folder with arc_easy_test.jsonl and the like, to compare on; DELTANET_EVAL_LIMIT how many
examples of each. By default the documents are made here.
"""

import json
import os
import random
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
lm_eval = pytest.importorskip("lm_eval")

import deltanet
from deltanet.evaluation import DeltanetLM
from lm_eval.tasks import TaskManager

ROOT = Path(__file__).parents[2]
PROGRAM = Path(os.environ.get("DELTANET_PROGRAM", ROOT / "build/release/deltanet"))
TOKENIZERS = ROOT / "tests" / "golden" / "tokenizers"
DATA = os.environ.get("DELTANET_EVAL_DATA")
LIMIT = int(os.environ.get("DELTANET_EVAL_LIMIT", "0"))
TASKS = ["arc_easy", "arc_challenge", "hellaswag", "piqa", "winogrande", "boolq", "sciq", "lambada", "wikitext"]
PREFIX = 10  # stands for BOS where the tokenizer has none

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} is not built")

# ---- documents

WORDS = (
    "the of and a to in is that it was for on are as with they at be this from have or by one had not but what all "
    "were when we there can an your which their said if do will each about how up out them then she many some so "
    "these would other into has more her two like him see time could no make than first been its who now people my "
    "café naïve 東京 über straße — “quoted” don't it's U.S. 3,141 0.5 [title] e.g. x=1; (note) ÉCOLE"
).split()


def sentence(rng, low=3, high=14):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(low, high)))


def documents(task, rng, i):
    if task.startswith("arc"):
        n = rng.choice([3, 4, 4, 5])
        labels = list("ABCDE"[:n]) if i % 2 else list("12345"[:n])
        return {"question": sentence(rng), "choices": {"text": [sentence(rng, 1, 6) for _ in labels], "label": labels},
                "answerKey": rng.choice(labels)}  # fmt: skip
    if task == "hellaswag":
        return {"activity_label": sentence(rng, 1, 3), "ctx_a": sentence(rng) + " [step] [title] now", "ctx_b": sentence(rng, 0, 4),
                "endings": [f"  {sentence(rng)} [substeps] and  so" for _ in range(4)], "label": str(rng.randint(0, 3))}  # fmt: skip
    if task == "piqa":
        return {"goal": sentence(rng), "sol1": sentence(rng) + " " * (i % 2), "sol2": sentence(rng), "label": i % 2}
    if task == "winogrande":
        return {"sentence": f"{sentence(rng)} _ {sentence(rng)} .", "option1": "Sarah", "option2": "the car", "answer": "12"[i % 2]}
    if task == "boolq":
        return {"passage": sentence(rng, 20, 60), "question": sentence(rng), "label": i % 2}
    if task == "sciq":
        return {"support": ("  " if i % 3 == 0 else "") + sentence(rng, 0, 40), "question": sentence(rng),
                **{name: sentence(rng, 1, 3) for name in ("distractor1", "distractor2", "distractor3", "correct_answer")}}  # fmt: skip
    if task == "lambada":
        return {"text": f"{sentence(rng, 10, 60)}\n\n\"{sentence(rng)}"}
    lines = [f" = {sentence(rng, 1, 3)} = \n", " \n"]
    for _ in range(rng.randint(1, 12)):
        lines += [f" = = {sentence(rng, 1, 3)} = = \n"] * (rng.random() < 0.3)
        lines.append(f" {sentence(rng)} , ( {sentence(rng)} ) ; \" {sentence(rng)} \" @-@ 5 @,@ 000 ° 's N x . {sentence(rng)} \n")
    return {"page": "".join(lines)}


FILES = {"lambada": "lambada_test", "wikitext": "wikitext_test", "arc_easy": "arc_easy_test", "arc_challenge": "arc_challenge_test",
         "piqa": "piqa_valid"}  # fmt: skip


def pages(raw):
    """The articles of a raw split, by the harness's rule: a heading of the first level begins one."""
    found, page = [], []
    for line in raw.replace("\r", "").split("\n"):
        heading = line.replace("= = =", "===").replace("= =", "==").strip()
        if heading.startswith("= ") and heading.endswith(" ="):
            found.append("\n".join(page))
            page = []
        page.append(line)
    return [page for page in [*found, "\n".join(page)] if page.strip()]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder of JSON lines by task, for both."""
    folder = tmp_path_factory.mktemp("data")
    for task in TASKS:
        if DATA:
            given = Path(DATA) / f"{FILES.get(task)}.jsonl"
            raw = Path(DATA) / "wikitext2_test.raw"
            if task == "wikitext" and raw.exists():
                lines = [json.dumps({"page": page}) for page in pages(raw.read_bytes().decode())]
            elif given.exists():
                lines = given.read_text(encoding="utf-8").splitlines()
            else:
                continue
            lines = lines[: LIMIT or None]
        else:
            rng = random.Random(task)
            lines = [json.dumps(documents(task, rng, i)) for i in range(4 if task == "wikitext" else 24)]
        (folder / f"{task}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


# ---- the harness

HARNESS = {
    "arc_easy": ("arc/arc_easy.yaml", "arc_easy"),
    "arc_challenge": ("arc/arc_challenge.yaml", "arc_challenge"),
    "hellaswag": ("hellaswag/hellaswag.yaml", "hellaswag"),
    "piqa": ("piqa/piqa.yaml", "piqa"),
    "winogrande": ("winogrande/default.yaml", "winogrande"),
    "boolq": ("super_glue/boolq/default.yaml", "boolq"),
    "sciq": ("sciq/sciq.yaml", "sciq"),
    "lambada": ("lambada/lambada_openai.yaml", "lambada_openai"),
    "wikitext": ("wikitext/wikitext.yaml", "wikitext"),
}


def harness_tasks(data, folder):
    """The harness's own YAML files, with local data."""
    import shutil

    root = Path(lm_eval.__file__).parent / "tasks"
    names = {}
    for task, (path, name) in HARNESS.items():
        if not (data / f"{task}.jsonl").exists():
            continue
        shutil.copytree((root / path).parent, folder / task, dirs_exist_ok=True)
        text = (folder / task / Path(path).name).read_text(encoding="utf-8")
        text = re.sub(r"^include: (.*)\n", lambda found: (folder / task / found[1]).read_text(encoding="utf-8"), text)
        for other in (folder / task).rglob("*.yaml"):
            other.unlink()
        text = re.sub(r"^(dataset_name|dataset_path|dataset_kwargs|training_split|validation_split|test_split|fewshot_split|task|tag|group): .*\n",
                      "", text, flags=re.M)  # fmt: skip
        text = re.sub(r"^(tag|group|dataset_kwargs):\n(  .*\n)+", "", text, flags=re.M)
        head = f"task: local_{task}\ndataset_path: json\ndataset_kwargs: {{data_files: {{test: {data / task}.jsonl}}}}\ntest_split: test\n"
        (folder / task / "local.yaml").write_text(head + text, encoding="utf-8")
        names[task] = f"local_{task}"
    return names


@pytest.fixture(scope="module")
def compared(request, data, tmp_path_factory):
    """Both results of one model: (harness's, ours from --json, ours by example)."""
    tokenizer, add_special = request.param
    folder = tmp_path_factory.mktemp("compared")
    read = deltanet.Tokenizer.bytes() if tokenizer == "bytes" else deltanet.Tokenizer(TOKENIZERS / tokenizer)
    config = {
        "model_type": "precond_gated_deltanet", "hidden_size": 32, "num_hidden_layers": 2, "num_heads": 2, "head_dim": 16,
        "expand_v": 1.0, "intermediate_size": 48, "vocab_size": read.vocab_size, "initializer_range": 0.2,
        "max_position_embeddings": 2048 if DATA else 300, "bos_token_id": None, "eos_token_id": None,
    }  # fmt: skip
    deltanet.Model.from_config(config, seed=3).save(folder / "model")
    path = tokenizer if tokenizer == "bytes" else str(TOKENIZERS / tokenizer)
    names = harness_tasks(data, folder / "tasks")

    arguments = ["--tokenizer", path, "--save-examples", folder / "examples", "--json", folder / "result.json"]
    lm_options = {} if read.bos_token_id is not None or read.eos_token_id is not None else {"prefix_token_id": PREFIX}
    if lm_options:
        arguments += ["--prefix-token", str(PREFIX)]
    if not add_special:
        arguments += ["--no-special"]
    run = subprocess.run([PROGRAM, "eval", folder / "model", "--data", data, "--tasks", ",".join(names), *arguments],
                         capture_output=True, text=True)  # fmt: skip
    assert run.returncode == 0, run.stderr
    native = json.loads((folder / "result.json").read_text())["models"][0]["tasks"]
    examples = {}
    for task in names:
        lines = (folder / "examples" / f"model.{task}.jsonl").read_text(encoding="utf-8").splitlines()[1:]
        examples[task] = sorted(map(json.loads, lines), key=lambda line: line["example"])

    os.environ["HF_DATASETS_CACHE"] = str(folder / "cache")
    lm = DeltanetLM(str(folder / "model"), tokenizer=path, add_bos_token=add_special, **lm_options)
    manager = TaskManager(include_path=str(folder / "tasks"), include_defaults=False)
    result = lm_eval.simple_evaluate(lm, tasks=list(names.values()), task_manager=manager, log_samples=True, bootstrap_iters=0)
    samples = {task: sorted(result["samples"][name], key=lambda sample: sample["doc_id"]) for task, name in names.items()}
    return {task: (result["results"][name], samples[task], native[task], examples[task]) for task, name in names.items()}


MODELS = [("bytes", True), ("gpt2.json", True), ("llama2.json", True), ("llama2.json", False), ("sentencepiece_bpe.model", True)]


@pytest.mark.parametrize("compared", MODELS, indirect=True, ids=lambda model: f"{model[0]}-{'bos' if model[1] else 'no_bos'}")
def test_equals_the_harness(compared):
    assert DATA or len(compared) == len(TASKS)
    for task, (summary, samples, native, examples) in compared.items():
        assert len(samples) == len(examples) == native["examples"]
        for sample, example in zip(samples, examples):
            responses = sample["filtered_resps"]
            if task == "wikitext":
                logprobs = [float(np.ravel(responses)[0])]
                assert example["scores"]["words"] == len(re.split(r"\s+", sample["doc"]["page"]))
                assert example["scores"]["bytes"] == len(sample["doc"]["page"].encode())
                ours = [example["scores"]["log_likelihood"]]
            elif task == "lambada":
                logprobs, ours = [responses[0][0]], [example["scores"]["log_likelihood"]]
                assert bool(responses[0][1]) == bool(example["scores"]["acc"])
            else:
                logprobs, ours = [response[0] for response in responses], example["said"]["log_likelihoods"]
                assert [bool(response[1]) for response in responses] == example["said"]["greedy"]
                assert sample["acc"] == example["scores"]["acc"]
                if "acc_norm" in sample:
                    assert sample["acc_norm"] == example["scores"]["acc_norm"]
            assert ours == pytest.approx(list(map(float, logprobs)), abs=1e-3), (task, example["example"])
        for name, value in native["metrics"].items():
            if f"{name},none" in summary:
                assert value["value"] == pytest.approx(summary[f"{name},none"], rel=1e-4), (task, name)

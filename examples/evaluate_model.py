"""Evaluates a model with lm-evaluation-harness on tasks from local files: no hub, no network.

    python examples/evaluate_model.py                                         # trains a tiny model on a few facts
    python examples/evaluate_model.py --model DIR --questions arc_easy.jsonl  # a checkpoint, on questions like ARC's

Without --questions there are three tasks about capitals: multiple choice (acc), perplexity of the text, and answers
that the model writes itself. Each is a YAML file and a JSONL file, which this script writes to --out; the same files
work with

    deltanet-eval --model_args pretrained=DIR --include_path OUT --tasks capitals,capitals_text,capitals_written
"""

import argparse
import json
import os
import random
import tempfile
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import lm_eval
from lm_eval.tasks import TaskManager
from lm_eval.utils import make_table

import deltanet
from deltanet.evaluation import DeltanetLM

CAPITALS = {
    "Austria": "Vienna", "Chile": "Santiago", "Cuba": "Havana", "Egypt": "Cairo", "France": "Paris",
    "Ghana": "Accra", "Greece": "Athens", "Hungary": "Budapest", "Iceland": "Reykjavik", "Ireland": "Dublin",
    "Italy": "Rome", "Japan": "Tokyo", "Kenya": "Nairobi", "Norway": "Oslo", "Peru": "Lima", "Spain": "Madrid",
}  # fmt: skip
CONFIG = {
    "model_type": "precond_gated_deltanet", "hidden_size": 128, "num_hidden_layers": 2, "num_heads": 2,
    "head_dim": 64, "expand_v": 1.0, "intermediate_size": 256, "vocab_size": 256,
}  # fmt: skip

HEAD = """task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
"""
MULTIPLE_CHOICE = (
    HEAD
    + """output_type: multiple_choice
doc_to_text: question
doc_to_choice: choices
doc_to_target: answer
metric_list:
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
  - {{metric: acc_norm, aggregation: mean, higher_is_better: true}}
"""
)
TEXT = (
    HEAD
    + """output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: text
metric_list:
  - {{metric: bits_per_byte, aggregation: bits_per_byte, higher_is_better: false}}
"""
)
WRITTEN = (
    HEAD
    + """output_type: generate_until
doc_to_text: question
doc_to_target: "{{{{choices[answer]}}}}"
generation_kwargs: {{until: ["."], max_gen_toks: 16, do_sample: false}}
metric_list:
  - {{metric: exact_match, aggregation: mean, higher_is_better: true}}
"""
)


def fact(country):
    return f"The capital of {country} is {CAPITALS[country]}."


def write_task(folder, name, yaml, documents):
    data = folder / f"{name}.jsonl"
    data.write_text("".join(json.dumps(document) + "\n" for document in documents), encoding="utf-8")
    (folder / f"{name}.yaml").write_text(yaml.format(name=name, data=data), encoding="utf-8")
    return name


def capital_tasks(folder, rng):
    questions = []
    for country, capital in CAPITALS.items():
        choices = [capital, *rng.sample([c for c in CAPITALS.values() if c != capital], 3)]
        rng.shuffle(choices)
        questions.append(
            {"question": f"The capital of {country} is", "choices": choices, "answer": choices.index(capital)}
        )
    texts = [{"text": " ".join(map(fact, CAPITALS))}]
    return [
        write_task(folder, "capitals", MULTIPLE_CHOICE, questions),
        write_task(folder, "capitals_text", TEXT, texts),
        write_task(folder, "capitals_written", WRITTEN, [q | {"question": q["question"] + " "} for q in questions]),
    ]


def arc_task(folder, path, limit):
    """Lines with question, choices.text, choices.label and answerKey, as ARC has them."""
    documents = []
    for line in Path(path).read_text(encoding="utf-8").splitlines()[:limit]:
        document = json.loads(line)
        choices = document["choices"]
        documents.append(
            {
                "question": f"Question: {document['question']}\nAnswer:",
                "choices": choices["text"],
                "answer": choices["label"].index(document["answerKey"]),
            }
        )
    return [write_task(folder, "questions", MULTIPLE_CHOICE, documents)]


def train_on_capitals(steps, rng):
    """A small model of bytes that reads the facts again and again, in changing order."""
    model = deltanet.Model.from_config(CONFIG)
    tokenizer = deltanet.Tokenizer.bytes()
    for step in range(steps):
        batch = []
        for _ in range(4):
            countries = rng.sample(list(CAPITALS), len(CAPITALS))
            batch.append(tokenizer.encode(" ".join(map(fact, countries)))[:256])
        result = model.train_step(batch, lr=3e-3 * min(1.0, (step + 1) / 20))
        if step % 50 == 0 or step + 1 == steps:
            print(f"step {step + 1}: loss {result.loss:.3f}", flush=True)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", help="a checkpoint directory; without one a tiny model is trained")
    parser.add_argument("--weights", default="f32", choices=("f32", "bf16", "int8"))
    parser.add_argument("--questions", help="a JSONL file in the form of ARC, in place of the capitals")
    parser.add_argument("--limit", type=int, default=100, help="how many questions of that file")
    parser.add_argument("--steps", type=int, default=120, help="of training, without --model")
    parser.add_argument("--out", help="where the tasks are written; by default a temporary folder")
    options = parser.parse_args()

    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as temporary:
        os.environ.setdefault("HF_DATASETS_CACHE", temporary + "/cache")
        folder = Path(options.out or temporary).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        tasks = arc_task(folder, options.questions, options.limit) if options.questions else capital_tasks(folder, rng)
        if options.model:
            model = DeltanetLM(options.model, weights=options.weights, batch_size="auto")
        else:
            # A model of bytes has no token for "nothing before this": a space is the natural choice here.
            model = DeltanetLM(train_on_capitals(options.steps, rng), batch_size="auto", prefix_token_id=ord(" "))
        manager = TaskManager(include_path=str(folder), include_defaults=False)
        results = lm_eval.simple_evaluate(model, tasks=tasks, task_manager=manager, bootstrap_iters=0)
        print(make_table(results))


if __name__ == "__main__":
    main()

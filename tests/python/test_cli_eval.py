"""`deltanet eval` as a user meets it, and evaluations of a run while it trains."""

import json
import random

import pytest

from test_cli import MODEL, PROGRAM, fail, run, succeed

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} is not built")

WORDS = "stone river lamp music winter garden paper window engine cloud".split()


def text(rng, words):
    return " ".join(rng.choice(WORDS) for _ in range(words))


@pytest.fixture
def data(tmp_path):
    rng = random.Random(0)
    folder = tmp_path / "data"
    folder.mkdir()
    lambada = [{"text": text(rng, 20)} for _ in range(12)]
    piqa = [{"goal": text(rng, 6), "sol1": text(rng, 4), "sol2": text(rng, 5), "label": i % 2} for i in range(12)]
    fda = [{"text": text(rng, 500) + ":", "value": rng.choice(WORDS)} for _ in range(4)]
    for name, lines in (("lambada_test", lambada), ("piqa_valid", piqa), ("fda", fda)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture
def other(tmp_path):
    """A second checkpoint."""
    succeed("init", "--config", MODEL / "config.json", "--seed", "5", tmp_path / "other")
    return tmp_path / "other"


def test_tables_differences_and_json(data, other, tmp_path):
    result = tmp_path / "result.json"
    tasks = ("--tasks", "piqa,lambada", "--data", data)
    printed = succeed("eval", MODEL, other, *tasks, "--json", result).decode()
    lines = printed.splitlines()
    head = next(line for line in lines if line.startswith("commonsense"))
    assert head.split() == ["commonsense", "LAMB", "Lamb.", "PIQA", "Avg"]
    rows = lines[lines.index(head) + 2 :][:2]
    assert [row.split()[0] for row in rows] == ["pgdn", "other"] and all("±" in row for row in rows)
    assert any("*" in row for row in rows)
    assert any(line.startswith("other - pgdn") and " piqa " in line for line in lines)
    written = json.loads(result.read_text())
    assert [model["name"] for model in written["models"]] == ["pgdn", "other"]
    piqa = written["models"][0]["tasks"]["piqa"]
    assert piqa["examples"] == 12 and 0 <= piqa["metrics"]["acc"]["value"] <= 1
    assert {one["task"] for one in written["differences"]} == {"piqa", "lambada"}

    assert json.loads(succeed("eval", MODEL, *tasks, "--json", "-"))["models"][0]["tasks"]["piqa"]["metrics"] == piqa["metrics"]
    assert "| commonsense | LAMB, ppl ↓ |" in succeed("eval", MODEL, *tasks, "--format", "markdown").decode()
    assert "\\begin{tabular}" in succeed("eval", MODEL, *tasks, "--format", "latex").decode()


def test_an_evaluation_goes_on(data, other, tmp_path):
    folder = tmp_path / "examples"
    command = ("eval", MODEL, "--data", data, "--tasks", "lambada", "--save-examples", folder)
    first = succeed(*command, "--limit", "5").decode()
    assert "done before" not in first
    assert "(5 examples were done before)" in succeed(*command).decode()
    lines = [json.loads(line) for line in (folder / "pgdn.lambada.jsonl").read_text().splitlines()]
    assert sorted(line["example"] for line in lines[1:]) == list(range(12))
    assert all(line["place"].endswith(f"line {line['example'] + 1}") for line in lines[1:])
    (folder / "pgdn.lambada.jsonl").rename(folder / "other.lambada.jsonl")
    error = fail("eval", other, "--data", data, "--tasks", "lambada", "--save-examples", folder)
    assert "fingerprint was" in error and "other.lambada.jsonl" in error
    assert "weights was" in fail(*command[:1], MODEL, *command[2:-1], renamed(folder), "--weights", "bf16")


def renamed(folder):
    (folder / "other.lambada.jsonl").rename(folder / "pgdn.lambada.jsonl")
    return folder


def test_prompts_that_were_cut_are_counted(data):
    printed = succeed("eval", MODEL, "--data", data, "--tasks", "fda").decode()
    assert "pgdn, fda: 4 of 4 prompts were too long and lost their beginning" in printed


def test_a_text_by_position(tmp_path):
    book = tmp_path / "book.txt"
    book.write_text(text(random.Random(1), 400) + "\n")
    printed = succeed("eval", MODEL, "--text", book, "--prefix-token", "10", "--max-length", "256").decode()
    assert "bits_per_byte" in printed and "128 to 255" in printed and "256 to " in printed


def test_needles_without_a_haystack(tmp_path):
    dump = tmp_path / "prompts.jsonl"
    options = ("--tasks", "s_niah_1", "--lengths", "700,1000", "--samples", "3")
    succeed("eval", MODEL, *options, "--dump", dump)
    prompts = [json.loads(line) for line in dump.read_text().splitlines()]
    assert len(prompts) == 6 and all(p["answer"] in p["prompt"] and p["tokens"] + 128 <= p["length"] for p in prompts)
    result = json.loads(succeed("eval", MODEL, *options, "--json", "-"))["models"][0]["tasks"]["s_niah_1"]
    cells = result["breakdowns"][0]["cells"]
    assert [(cell["length"], cell["examples"]) for cell in cells] == [(700, 3), (1000, 3)]


def test_wrong_input_is_named(data, tmp_path):
    message = fail("eval", MODEL, "--data", data, "--tasks", "arc_easy")
    assert "arc_easy_test.jsonl" in message and "with question, choices" in message and "huggingface.co" in message
    assert "piqa" in fail("eval", MODEL, "--data", data, "--tasks", "pika")
    assert "--tasks" in fail("eval", MODEL, "--data", data)
    assert "--list" in fail("eval")
    assert "arc_challenge" in succeed("eval", "--list").decode()
    (data / "piqa_valid.jsonl").write_text('{"goal": "a", "sol1": "b", "sol2": "c", "label": 3}\n')
    assert "piqa_valid.jsonl: line 1: label: given" in fail("eval", MODEL, "--data", data, "--tasks", "lambada,piqa")
    config = json.loads((MODEL / "config.json").read_text()) | {"vocab_size": 300}
    (tmp_path / "config.json").write_text(json.dumps(config))
    succeed("init", "--config", tmp_path / "config.json", tmp_path / "silent")
    assert "--tokenizer" in fail("eval", tmp_path / "silent", "--data", data, "--tasks", "lambada")


def test_a_run_is_evaluated_while_it_trains(data, tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(text(random.Random(i), 60) for i in range(200)))
    settings = dict(eval_tasks="lambada,piqa", eval_tasks_data=data, eval_tasks_every=2, eval_tasks_limit=8, eval_every=0,
                    batch_size=2, sequence_length=256, precision="f32", vocab_size=256, tokenizer="bytes")  # fmt: skip
    assignments = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    (tmp_path / "run.toml").write_text(f"model = {str(MODEL / 'config.json')!r}\n")
    command = ["train", "--data", corpus, "--out", tmp_path / "run", "--steps", "4", tmp_path / "run.toml"]
    printed = succeed(*command, *assignments).decode()
    assert printed.count("  lambada ") == 2
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in metrics if "tasks" in line] == [2, 4]
    assert b"tasks/piqa" in b"".join(path.read_bytes() for path in (tmp_path / "run").glob("*tfevents*"))
    # What `deltanet eval` says of the checkpoint.
    result = json.loads(succeed("eval", tmp_path / "run" / "step-4", "--data", data, "--tasks", "lambada,piqa", "--limit", "8",
                                "--max-length", "256", "--json", "-"))["models"][0]["tasks"]  # fmt: skip
    assert metrics[-1]["tasks"] == pytest.approx({task: result[task]["metrics"]["acc"]["value"] for task in result})

    missing = [part.replace(str(data), str(tmp_path)) for part in assignments]
    error = fail(*command[:4], tmp_path / "other", *command[5:], *missing)
    assert "lambada_test.jsonl" in error and not (tmp_path / "other").exists()
    assert run(*command[:4], tmp_path / "third", *command[5:], "--set", "eval_tasks=lamb").returncode == 1

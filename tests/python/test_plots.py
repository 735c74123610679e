"""What `python -m deltanet.plots` promises: a picture of a good file, a clear error for any other."""

import json
import math

import pytest

pytest.importorskip("matplotlib")

from deltanet import plots  # noqa: E402
from deltanet.plots import evaluations  # noqa: E402
from deltanet.plots import kernels as kernels_plot  # noqa: E402
from deltanet.plots import mqar, recall, style  # noqa: E402
from deltanet.plots.__main__ import main  # noqa: E402


def result(row, length, direction, milliseconds, **changes):
    return {
        "row": row,
        "length": length,
        "direction": direction,
        "correct": True,
        "median_ms": milliseconds,
        "p10_ms": 0.9 * milliseconds,
        "p90_ms": 1.2 * milliseconds,
        "tokens_per_s": length / milliseconds * 1e3,
        **changes,
    }


def kernels(results):
    return {
        "benchmark": "kernels",
        "machine": {"cpu": "a CPU", "simd_target": "AVX2", "threads": 1, "deltanet": "0.1.0"},
        "shape": {"B": 1, "H": 8, "U": 8, "K": 128, "V": 128},
        "results": results,
    }


@pytest.fixture
def full(tmp_path):
    rows = {"gdn": 1, "pgdn": 1.05, "kda": 1.3, "pkda": 1.35, "dplr": 2, "mesa": 9, "linear_attn": 0.7, "rls": 4}
    results = [
        result(row, length, direction, cost * factor * length / 90)
        for row, cost in rows.items()
        for length in (256, 1024, 4096)
        for direction, factor in (("forward", 1), ("forward+backward", 3.5))
    ]
    path = tmp_path / "kernels.json"
    path.write_text(json.dumps(kernels(results)))
    return path


def test_draws_a_picture_beside_the_file(full, capsys):
    assert main(["kernels", str(full)]) == 0
    picture = full.with_suffix(".png")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out.strip() == str(picture)


def test_every_row_is_named_in_every_panel(full, tmp_path):
    picture = tmp_path / "out.svg"
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none"}):  # text stays text
        assert main(["kernels", str(full), "-o", str(picture)]) == 0
    text = picture.read_text()
    for row in ("gdn", "pgdn", "kda", "pkda", "dplr", "mesa", "linear_attn", "rls"):
        assert text.count(f">{row}</text>") == 4, row


def test_one_direction_gives_one_column(tmp_path):
    document = kernels([result("gdn", length, "forward", length / 90) for length in (256, 512)])
    plots.plot_kernels(document, tmp_path / "out.png")
    assert (tmp_path / "out.png").stat().st_size > 0


def test_wrong_rows_are_left_out(tmp_path):
    wrong = {"row": "kda", "length": 256, "direction": "forward", "correct": False}
    path = tmp_path / "kernels.json"
    path.write_text(json.dumps(kernels([result("gdn", 256, "forward", 3.0), wrong])))
    document = plots.load_kernels(path)
    assert list(kernels_plot._series(document)) == [("gdn", "forward")]
    plots.plot_kernels(document, tmp_path / "out.png")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is not JSON"),
        ("[1, 2]", "has benchmark None"),
        ('{"benchmark": "step", "results": []}', "has benchmark 'step'"),
        ('{"benchmark": "kernels"}', "no list of results"),
        (json.dumps(kernels([])), "no correct results"),
        (json.dumps(kernels([3])), "result 0: is int"),
        (json.dumps(kernels([result("gdn", 256, "sideways", 1.0)])), "direction 'sideways'"),
        (json.dumps(kernels([result("gdn", 256, "forward", 1.0, median_ms=-1)])), "median_ms -1"),
        (json.dumps(kernels([result("gdn", 256, "forward", 1.0, p90_ms=None)])), "p90_ms None"),
    ],
)
def test_a_bad_file_is_named_with_its_fault(tmp_path, capsys, text, complaint):
    path = tmp_path / "bad.json"
    path.write_text(text)
    assert main(["kernels", str(path)]) == 1
    message = capsys.readouterr().err
    assert str(path) in message and complaint in message
    assert not path.with_suffix(".png").exists()


def test_a_missing_file_is_named(tmp_path, capsys):
    assert main(["kernels", str(tmp_path / "none.json")]) == 1
    assert "none.json: cannot be read" in capsys.readouterr().err


def test_an_unknown_format_is_named(full, capsys):
    assert main(["kernels", str(full), "-o", str(full.with_suffix(".xyz"))]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_labels_keep_their_distance_and_their_order():
    placed = style.spread([0.1, 0.11, 0.12, 0.5, 0.9], 0.05)
    assert all(b - a >= 0.05 - 1e-12 for a, b in zip(placed, placed[1:]))
    assert placed[3:] == [0.5, 0.9]
    assert placed[1] == pytest.approx(0.11)


def mqar_line(row, seed, accuracy, lr=0.01, tasks=((64, 16), (128, 32), (1024, 4), (1024, 8)), **changes):
    settings = {"model": row, "d_model": 64, "lr": lr, "seed": seed, "train": [[64, 4, 1000]], "epochs": 32, **changes}
    return json.dumps(
        {
            "settings": settings,
            "accuracy": accuracy,
            "scores": [{"length": length, "pairs": pairs, "accuracy": accuracy} for length, pairs in tasks],
            "curve": [{"step": 10 * i, "loss": None, "accuracy": accuracy * i / 4} for i in range(1, 5)],
        }
    )


def test_mqar_draws_curves_and_the_cuts_that_were_tested(tmp_path):
    path = tmp_path / "results.jsonl"
    lines = [mqar_line(row, seed, 0.5 + 0.1 * seed) for row in ("gdn", "pgdn") for seed in (0, 1)]
    path.write_text("\n".join(lines) + "\n" + lines[0][:40])  # the last line is being written
    picture = tmp_path / "out.svg"
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none"}):
        assert main(["mqar", str(path), "-o", str(picture)]) == 0
    text = picture.read_text()
    assert "one pair per 4 tokens" in text and "length 1024" in text
    assert "16 pairs, growing length" not in text  # one point is no line
    assert ">pgdn</text>" in text


def test_mqar_takes_the_best_learning_rate(tmp_path):
    path = tmp_path / "results.jsonl"
    lines = [mqar_line("gdn", 0, 0.9, lr=0.01), mqar_line("gdn", 1, 0.1, lr=0.01), mqar_line("gdn", 0, 0.6, lr=0.001)]
    path.write_text("\n".join(lines) + "\n")
    (best,) = mqar.best_runs(plots.load_mqar(path)).values()
    assert [run["lr"] for run in best] == [0.001]


def mqar_runs(tmp_path, lines):
    path = tmp_path / "results.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return plots.load_mqar(path)


def labels_of(runs):
    """{label: accuracies of its runs}"""
    looks = mqar.looks_of([run["line"] for run in runs])
    groups = {}
    for run in runs:
        groups.setdefault(looks[run["line"]][-1], []).append(run["accuracy"])
    return groups


@pytest.mark.parametrize(
    ("setting", "one", "other", "labels"),
    [
        ("epochs", 2, 32, ("gdn, epochs 2", "gdn, epochs 32")),
        ("batch", 32, 256, ("gdn, batch 32", "gdn, batch 256")),
        ("vocab_size", 128, 8192, ("gdn, vocabulary 128", "gdn, vocabulary 8192")),
        ("filler", "zeros", "random", ("gdn, filler zeros", "gdn, filler random")),
        ("weight_decay", 0.1, 0.1000001, ("gdn, weight decay 0.1", "gdn, weight decay 0.1000001")),
        ("train", [[64, 4, 1000]], [[64, 4, 1001]], ("gdn, trained on (64,4)x1k", "gdn, trained on (64,4)x1001")),
        ("of_tomorrow", 1, 2, ("gdn, of_tomorrow 1", "gdn, of_tomorrow 2")),
    ],
)
def test_mqar_runs_with_other_settings_are_not_seeds_of_one_curve(tmp_path, setting, one, other, labels):
    values = [(one, 0, 0.2), (one, 1, 0.4), (other, 0, 0.8), (other, 1, 0.6)]
    runs = mqar_runs(tmp_path, [mqar_line("gdn", seed, accuracy, **{setting: v}) for v, seed, accuracy in values])
    assert [[run["accuracy"] for run in seeds] for seeds in mqar.best_runs(runs).values()] == [[0.2, 0.4], [0.8, 0.6]]
    assert labels_of(runs) == {labels[0]: [0.2, 0.4], labels[1]: [0.8, 0.6]}


def test_mqar_labels_say_what_is_needed_and_no_more(tmp_path):
    few = {"epochs": 1, "batch": 32, "vocab_size": 128}
    runs = mqar_runs(
        tmp_path,
        [
            mqar_line("gdn", 0, 0.1, batch=256),
            mqar_line("gdn", 0, 0.2, **few),
            mqar_line("gdn", 0, 0.3, d_model=128),
            mqar_line("pgdn", 0, 0.4, **few),
            mqar_line("gdn", 0, 0.5, **few | {"batch": 64}),
        ],
    )
    assert labels_of(runs) == {
        "gdn 64, epochs 32, batch 256": [0.1],
        "gdn 64, epochs 1, batch 32": [0.2],
        "gdn 128": [0.3],
        "pgdn 64": [0.4],
        "gdn 64, epochs 1, batch 64": [0.5],
    }
    looks = mqar.looks_of([run["line"] for run in runs])
    assert len({look[:3] for look in looks.values()}) == 5  # drawn differently, too


def test_mqar_models_of_one_task_each_are_points_of_one_line(tmp_path):
    lines = [
        mqar_line("gdn", seed, 0.5, tasks=[task], train=[[*task, examples]], tests=[[*task, 10]], more_tests=[])
        for task in ((64, 16), (128, 32), (256, 64))
        for examples in (32000, 640)
        for seed in (0, 1)
    ]
    runs = mqar_runs(tmp_path, lines)
    assert len(mqar.best_runs(runs)) == 6
    assert {label: len(values) for label, values in labels_of(runs).items()} == {
        "gdn, examples 32k": 6,
        "gdn, examples 640": 6,
    }
    points = mqar.cut_lines(mqar.points_of(mqar.best_runs(runs)), mqar.CUTS[1])
    assert [[task for task, _ in tested] for tested in points.values()] == 2 * [[(64, 16), (128, 32), (256, 64)]]
    plots.plot_mqar(runs, tmp_path / "out.png")
    assert (tmp_path / "out.png").stat().st_size > 5000


@pytest.mark.parametrize("text", ["", "not JSON\n", "{}\n", "[]\n", '{"settings": {}}\n', '{"settings": []}\n'])
def test_mqar_refuses_other_files(tmp_path, capsys, text):
    path = tmp_path / "results.jsonl"
    path.write_text(text)
    assert main(["mqar", str(path)]) == 1
    assert str(path) in capsys.readouterr().err


def test_runs_are_drawn_together(tmp_path, capsys):
    for name in ("gdn", "pgdn"):
        (tmp_path / name).mkdir()
        lines = [{"step": i, "loss": 5 - 0.1 * i, "lr": 1e-3, "grad_norm": 1.0} for i in range(1, 20)]
        lines[-1]["val_loss"] = 3.2
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / name / "metrics.jsonl").write_text(text + '{"step": 2')
    assert main(["run", str(tmp_path / "gdn"), str(tmp_path / "pgdn")]) == 0
    assert (tmp_path / "gdn" / "losses.png").stat().st_size > 5000
    assert len(plots.load_run(tmp_path / "gdn")) == 19
    (tmp_path / "gdn" / "metrics.jsonl").write_text("[1]\n")
    assert main(["run", str(tmp_path / "gdn")]) == 1
    assert "line 1" in capsys.readouterr().err


def test_runs_of_folders_with_the_same_name_are_all_drawn(tmp_path, monkeypatch):
    folders = ["8/gdn", "16/gdn", "16/pgdn", "../2/16/gdn"]
    monkeypatch.chdir(tmp_path)
    for index, folder in enumerate(folders):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "metrics.jsonl").write_text(f'{{"step": 1, "loss": {index}}}\n')
    drawn = {}
    monkeypatch.setattr("deltanet.plots.__main__.plot_runs", lambda runs, output: drawn.update(runs))
    assert main(["run", *folders, "8/gdn"]) == 0
    assert {name: steps[0]["loss"] for name, steps in drawn.items()} == {
        "8/gdn": 0, f"{tmp_path.name}/16/gdn": 1, "pgdn": 2, "2/16/gdn": 3,
    }  # fmt: skip
    drawn.clear()
    monkeypatch.chdir(tmp_path / "8" / "gdn")
    assert main(["run", "."]) == 0
    assert list(drawn) == ["gdn"]


def test_a_step_that_was_skipped_is_a_gap(tmp_path):
    path = tmp_path / "gdn"
    path.mkdir()
    lines = ['{"step": 1, "loss": 5.5, "grad_norm": 1.5}', '{"step": 2, "loss": null, "grad_norm": null}']
    (path / "metrics.jsonl").write_text("\n".join([*lines, '{"step": 3, "loss": 5.0}', ""]))
    steps = plots.load_run(path)
    assert [step["step"] for step in steps] == [1, 2, 3]
    assert steps[0]["loss"] == 5.5 and math.isnan(steps[1]["loss"]) and steps[2]["loss"] == 5.0
    assert main(["run", str(path)]) == 0


def regression_line(solver, axes="aligned", **changes):
    values = {
        "experiment": "regression", "axes": axes, "solver": solver, "precond": solver != "delta rule", "ridge": 0.0,
        "key_dim": 32, "draws": 4, "smallest": 0.1, "tokens": [8, 16, 24], "error": [0.4, 0.2, 0.1],
        "deviation": [0.2, 0.1, 0.04],
    }  # fmt: skip
    return json.dumps(values | changes) + "\n"


def test_regression_draws_a_panel_for_each_kind_of_keys_and_names_every_solver(tmp_path, capsys):
    path = tmp_path / "regression.jsonl"
    solvers = {"delta rule": {}, "preconditioned": {}, "exact least squares": {"ridge": 0.1, "error": [0.1, 0.02, 0.0123]}}
    path.write_text("".join(regression_line(s, a, **more) for a in ("aligned", "rotated") for s, more in solvers.items()))
    picture = tmp_path / "out.svg"
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none"}):
        assert main(["regression", str(path), "-o", str(picture)]) == 0
    text = picture.read_text()
    assert "keys vary along the axes" in text and "the same keys, rotated" in text
    for solver in solvers:
        assert text.count(f"  {solver}</text>") == 1, solver
    assert text.count("1.2%") == 2  # of exact least squares, in both panels
    curves = plots.load_regression(path)
    assert [curve["family"] for curve in curves[:3]] == ["delta rule", "preconditioned", "exact"]
    assert curves[0]["band"] == [0.1, 0.05, 0.02]  # standard errors of means of four draws


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{}\n",
        regression_line("delta rule", "sideways"),
        regression_line("delta rule", experiment="recall"),
        regression_line("delta rule", error=[0.4, 0.2, 0.0]),
        regression_line("delta rule", error=[0.4, 0.2]),
    ],
)
def test_regression_refuses_other_files(tmp_path, capsys, line):
    path = tmp_path / "regression.jsonl"
    path.write_text(line)
    assert main(["regression", str(path)]) == 1
    assert str(path) in capsys.readouterr().err


def recall_lines():
    for seed, (base, more) in enumerate([(0.5, 0.1), (0.6, 0.2), (0.4, 0.3), (0.3, 0.4)]):
        yield mqar_line("delta_net", seed, base)
        yield mqar_line("pdn", seed, base + more)
    yield mqar_line("pdn", 9, 0.9)  # without a partner


def test_recall_shows_the_differences_of_seeds_that_both_models_have(tmp_path):
    path = tmp_path / "recall.jsonl"
    path.write_text("\n".join(recall_lines()) + "\n")
    picture = tmp_path / "out.svg"
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none"}):
        assert main(["recall", str(path), "-o", str(picture)]) == 0
    text = picture.read_text()
    for label in ("DeltaNet", "PDN", "PDN − DeltaNet", "4 to 5 seeds", "what preconditioning changed"):
        assert label in text, label
    models = recall._models(plots.load_mqar(path))
    last = recall._differences(models["pdn"], models["delta_net"])[-1]
    assert last == (40, pytest.approx([0.1, 0.2, 0.3, 0.4]))
    assert recall.interval(last[1]) == pytest.approx(3.182 * 0.1291 / 2, rel=2e-3)  # t of three degrees of freedom


def test_recall_of_models_without_partners_has_no_differences(tmp_path):
    path = tmp_path / "recall.jsonl"
    path.write_text(mqar_line("gdn", 0, 0.5) + "\n" + mqar_line("rls", 0, 0.5) + "\n")
    picture = tmp_path / "out.svg"
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none"}):
        assert main(["recall", str(path), "-o", str(picture)]) == 0
    text = picture.read_text()
    assert ">rls</text>" in text and "what preconditioning changed" not in text


def eval_task(title, lengths, value=0.5, depths=()):
    cells = [{"length": length, "value": value, "stderr": 0.02, "examples": 500} for length in lengths]
    one = {"value": value, "stderr": None, "examples": 1}
    deep = [{"length": length, "depth_from": depth, **one} for length in lengths for depth in depths]
    breakdowns = [{"by": ["length"], "cells": cells}]
    if deep:
        breakdowns.append({"by": ["length", "depth_from"], "cells": deep})
    return {"title": title, "group": "g", "metric": "contains", "breakdowns": breakdowns}


def eval_model(name, row="gdn", **tasks):
    return {"name": name, "row": row, "tasks": tasks}


CURVE = {"title": "Text", "curve": [{"begin": n, "end": 2 * n, "loss": 3 - n / 99, "tokens": 9} for n in (1, 2, 4)]}


def eval_file(path, *models):
    path.write_text(json.dumps({"format": "deltanet eval 1", "models": models, "differences": []}))
    return path


def svg_of(tmp_path, *files):
    import matplotlib

    picture = tmp_path / "out.svg"
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        assert main(["eval", *map(str, files), "-o", str(picture)]) == 0
    return picture.read_text()


def test_eval_draws_lengths_depths_and_losses_of_every_model(tmp_path):
    needle = eval_task("S-NIAH-1", (512, 1024), 0.375, depths=(0, 20, 40, 60, 80))
    file = eval_file(
        tmp_path / "results.json",
        eval_model("first", s_niah_1=needle, text=CURVE),
        eval_model("second", "pgdn", s_niah_1=needle, s3=eval_task("s3", (40,), -0.1)),
    )
    text = svg_of(tmp_path, file)
    for said in ("first", "second", "S-NIAH-1", "first, S-NIAH-1", "second, S-NIAH-1", "s3", "Text, by position",
                 "80–100%", "1k", "perplexity per token"):  # fmt: skip
        assert f">{said}</text>" in text, said
    assert text.count(">38</text>") == 2 * 2 * 5  # in every cell, for every model
    assert main(["eval", str(file)]) == 0 and file.with_suffix(".png").exists()


def test_eval_compares_models_of_several_files(tmp_path):
    files = [
        eval_file(tmp_path / f"{name}.json", eval_model("checkpoint", s_niah_2=eval_task("S-NIAH-2", (512, 2048))))
        for name in ("early", "late")
    ]
    models = plots.load_eval(*files)
    assert [model["name"] for model in models] == ["checkpoint (early)", "checkpoint (late)"]
    styles = evaluations.model_styles(models)
    assert len(set(styles.values())) == 2 and styles["checkpoint (early)"] == style.ROWS["gdn"]
    assert "checkpoint (late)" in svg_of(tmp_path, *files)


def test_eval_takes_what_was_evaluated_and_leaves_the_rest(tmp_path):
    text = svg_of(tmp_path, eval_file(tmp_path / "a.json", eval_model("m", text=CURVE)))
    assert "S-NIAH" not in text and "Text, by position" in text
    unknown = eval_task("S-NIAH-1", (512, 1024))
    unknown["breakdowns"][0]["cells"][1]["value"] = None
    (model,) = plots.load_eval(eval_file(tmp_path / "b.json", eval_model("m", s_niah_1=unknown)))
    assert model["lengths"]["s_niah_1"] == [(512, 0.5, 0.02)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is not JSON"),
        ("[]", "has format None"),
        ('{"format": "other"}', "has format 'other'"),
        ('{"format": "deltanet eval 1"}', "is not what `deltanet eval --json` writes"),
        ('{"format": "deltanet eval 1", "models": [{"name": "m", "tasks": {"a": {}}}]}', "is not what"),
        (json.dumps({"format": "deltanet eval 1", "models": [eval_model("m", a={"title": "A"})]}), "no results by length"),
    ],
)
def test_bad_eval_files_are_named_with_their_fault(tmp_path, capsys, text, complaint):
    path = tmp_path / "bad.json"
    path.write_text(text)
    assert main(["eval", str(path)]) == 1
    message = capsys.readouterr().err
    assert str(path) in message and complaint in message

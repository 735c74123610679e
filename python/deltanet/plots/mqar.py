"""`python -m deltanet.plots mqar`: accuracy of recall against the step, and the paper's three cuts."""

from __future__ import annotations

import json
from pathlib import Path

from .style import PlotError, length_text, plain, pyplot, read_lines, save, styles_of

# The cuts of the paper: title, label of the axis, tasks (length, pairs), which of the two the axis shows.
CUTS = (
    ("16 pairs, growing length", "tokens", [(64 << i, 16) for i in range(5)], 0),
    ("one pair per 4 tokens, growing length", "tokens", [(64 << i, 16 << i) for i in range(5)], 0),
    ("length 1024, growing pairs", "pairs", [(1024, 4 << i) for i in range(7)], 1),
)
# The row chooses color and dash of a line, all other settings together its marker.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
# Settings of `deltanet mqar` in the order in which they are tried to tell lines of one row and width apart, and their
# names in labels. Others come last, by their own names.
SETTINGS = {
    "epochs": "epochs",
    "examples": "examples",
    "batch": "batch",
    "vocab_size": "vocabulary",
    "filler": "filler",
    "layers": "layers",
    "heads": "heads",
    "weight_decay": "weight decay",
    "initializer_range": "first weights",
    "power": "power",
    "stop_accuracy": "stop at",
    "train": "trained on",
    "validations": "validations",
    "tests": "tests",
    "more_tests": "more tests",
}


def load_mqar(path: str | Path) -> list[dict]:
    """The finished runs that a file holds, checked; a last line that is still being written is left out."""
    runs = read_lines(path, _run, "result of `deltanet mqar`")
    if not runs:
        raise PlotError(f"{path}: has no results to plot")
    return runs


def plot_mqar(runs: list[dict], output: str | Path) -> None:
    """Draws runs of load_mqar into a file: every model at the learning rate that is best for it."""
    plt = pyplot()
    best = best_runs(runs)
    points = points_of(best)
    cuts = [cut for cut in CUTS if cut_lines(points, cut)]
    figure, axes = plt.subplots(
        1, 1 + len(cuts), figsize=(5.4 * (1 + len(cuts)), 4.4), squeeze=False, layout="constrained"
    )
    looks = looks_of(list(points))
    _draw_curves(axes[0][0], best, looks)
    for ax, cut in zip(axes[0][1:], cuts):
        _draw_cut(ax, cut_lines(points, cut), cut, looks)
    for ax in axes[0]:
        ax.set_ylim(-0.02, 1.02)
        ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
        plain(ax)
    axes[0][0].set_ylabel("accuracy of recall (mean; band: all seeds)")
    axes[0][0].legend(frameon=False, fontsize=9, handlelength=3.6)  # room for dashes beside the marker
    save(figure, output)


def _run(line):
    settings = line["settings"]
    named = {"model": str(settings["model"]), "d_model": int(settings["d_model"]), "train": settings["train"]}
    group = {name: value for name, value in settings.items() if name not in ("lr", "seed")} | named
    return {
        "model": named["model"],
        "seed": int(settings["seed"]),
        "lr": float(settings["lr"]),
        "group": json.dumps(group, sort_keys=True),
        "line": json.dumps(_line_settings(group), sort_keys=True),
        "accuracy": float(line["accuracy"]),
        "scores": {(int(s["length"]), int(s["pairs"])): float(s["accuracy"]) for s in line["scores"]},
        "curve": [(int(p["step"]), float(p["accuracy"])) for p in line["curve"]],
    }


def _line_settings(group):
    """What the runs of one line in a cut share. Where each task has a model of its own, the task is not part of it."""
    train, tests = ([[int(n) for n in part] for part in group.get(name, [])] for name in ("train", "tests"))
    if len(train) != 1 or group.get("more_tests") or [test[:2] for test in tests] != [train[0][:2]]:
        return group
    others = {name: value for name, value in group.items() if name not in ("train", "tests", "more_tests")}
    return others | {"examples": train[0][2], "tests": tests[0][2]}


def _mean(values):
    return sum(values) / len(values)


def best_runs(runs):
    """{all settings but learning rate and seed: the runs of the rate with the best mean accuracy over its seeds}."""
    by_rate = {}
    for run in runs:
        by_rate.setdefault(run["group"], {}).setdefault(run["lr"], []).append(run)
    return {
        group: max(rates.values(), key=lambda seeds: _mean([run["accuracy"] for run in seeds]))
        for group, rates in by_rate.items()
    }


def points_of(best):
    """{line: {task: accuracies}}: one training set with many tests, or one for each test."""
    points = {}
    for seeds in best.values():
        for run in seeds:
            tasks = points.setdefault(run["line"], {})
            for task, accuracy in run["scores"].items():
                tasks.setdefault(task, []).append(accuracy)
    return points


def cut_lines(points, cut):
    lines = {key: [task for task in cut[2] if task in tasks] for key, tasks in points.items()}
    return {key: [(task, points[key][task]) for task in tasks] for key, tasks in lines.items() if len(tasks) > 1}


def looks_of(lines):
    """{line: (color, dash, marker, label)}; no two labels are the same."""
    settings = {line: json.loads(line) for line in lines}
    rows = {line: one["model"] for line, one in settings.items()}
    styles = styles_of([(row, None) for row in rows.values()])
    labels = _labels(settings)
    looks, variants = {}, {}
    for line, row in rows.items():
        others = json.dumps({name: value for name, value in settings[line].items() if name != "model"})
        marker = MARKERS[variants.setdefault(others, len(variants)) % len(MARKERS)]
        looks[line] = (*styles[row], marker, labels[line])
    return looks


def _labels(settings):
    """{line: label}: the row, the width where there are several, and what tells lines of one row and width apart."""
    widths = len({one["d_model"] for one in settings.values()}) > 1
    alike = {}
    for line, one in settings.items():
        alike.setdefault((one["model"], one["d_model"]), []).append(line)
    labels = {}
    for (row, d_model), lines in alike.items():
        names = _telling({line: settings[line] for line in lines})
        for line in lines:
            known = [(SETTINGS.get(name, name), settings[line][name]) for name in names if name in settings[line]]
            more = [f"{name} {_setting_text(value)}" for name, value in known]
            labels[line] = ", ".join([f"{row} {d_model}" if widths else row, *more])
    return labels


def _telling(settings):
    """Names of a few settings whose values are different for any two of the lines."""
    names, apart = [], 1
    known = list(SETTINGS)
    for name in known + sorted({name for one in settings.values() for name in one} - set(known)):
        values = {json.dumps([one.get(n) for n in (*names, name)]) for one in settings.values()}
        if len(values) > apart:
            names, apart = [*names, name], len(values)
    return names


def _setting_text(value):
    if isinstance(value, list):
        return " ".join(f"({length},{pairs})x{_setting_text(examples)}" for length, pairs, examples in value) or "none"
    if isinstance(value, int) and value >= 1000 and value % 1000 == 0:
        return f"{value // 1000}k"
    return str(value)


def _draw_band(ax, xs, groups, look):
    color, dash, marker, label = look
    ax.plot(xs, [_mean(group) for group in groups], color=color, linestyle=dash, linewidth=1.6, marker=marker,
            markersize=3 if marker == "o" else 4.5, label=label)
    ax.fill_between(xs, [min(group) for group in groups], [max(group) for group in groups], color=color, alpha=0.12,
                    linewidth=0)


def _draw_curves(ax, best, looks):
    named = set()
    for seeds in best.values():
        *style, label = looks[seeds[0]["line"]]
        # Runs may end early: a curve goes on at its last value.
        steps = sorted({step for run in seeds for step, _ in run["curve"]})
        groups = [[_value_at(run["curve"], step) for run in seeds] for step in steps]
        _draw_band(ax, steps, groups, (*style, None if label in named else label))
        named.add(label)
    ax.set_title("training", loc="left", fontweight="bold", fontsize=11)
    ax.set_xlabel("steps")


def _value_at(curve, step):
    return ([accuracy for at, accuracy in curve if at <= step] or [0.0])[-1]


def _draw_cut(ax, lines, cut, looks):
    title, axis, tasks, which = cut
    for line, tested in lines.items():
        _draw_band(ax, [task[which] for task, _ in tested], [values for _, values in tested], looks[line])
    ticks = [task[which] for task in tasks if any(task in dict(tested) for tested in lines.values())]
    ax.set_xscale("log", base=2)
    ax.set_xticks(ticks, [length_text(tick) for tick in ticks])
    ax.minorticks_off()
    ax.set_title(title, loc="left", fontweight="bold", fontsize=11)
    ax.set_xlabel(axis)

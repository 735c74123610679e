"""Pictures of what the benchmarks wrote.

    python -m deltanet.plots kernels kernels.json [-o kernels.png]
    python -m deltanet.plots mqar results.jsonl [-o results.png]
    python -m deltanet.plots run DIR... [-o runs.png]

`kernels` takes the file that ``deltanet bench kernels --json FILE`` wrote and draws time and tokens per second against
the length, forward and forward+backward. `mqar` takes the results.jsonl of ``deltanet mqar`` or the recall.jsonl of
``deltanet quickstart`` and draws accuracy against the step, and the paper's three cuts as far as they were tested; runs
that differ in more than learning rate and seed are lines of their own. `run` takes folders of ``deltanet train`` and
draws losses, gradient norms and learning rates of all of them. The ending of the output file chooses the format (png,
svg, pdf).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

__all__ = ["PlotError", "load_kernels", "load_mqar", "load_run", "plot_kernels", "plot_mqar", "plot_runs"]

DIRECTIONS = ("forward", "forward+backward")

# The colours of Okabe and Ito, which people with any colour vision can tell apart (the purple is darker, so that its
# label can be read). A preconditioned row has the colour of its base and another dash.
BLUE, VERMILLION, PURPLE, GREEN, GREY = "#0072B2", "#D55E00", "#AA4499", "#009E73", "#555555"
SKY, ORANGE, BLACK = "#56B4E9", "#E69F00", "#000000"
SOLID, DASHED, DOTTED = "-", (0, (5, 2)), (0, (1, 1.5))
STYLES = {
    "delta_net": (GREEN, SOLID),
    "pdn": (GREEN, DASHED),
    "gdn": (BLUE, SOLID),
    "pgdn": (BLUE, DASHED),
    "gdn_distinct_keys": (BLUE, DOTTED),
    "kda": (VERMILLION, SOLID),
    "pkda": (VERMILLION, DASHED),
    "dplr": (PURPLE, SOLID),
    "mesa": (GREEN, SOLID),
    "linear_attn": (GREY, SOLID),
}
# The cuts of the paper: title, label of the axis, tasks (length, pairs), which of the two the axis shows.
MQAR_CUTS = (
    ("16 pairs, growing length", "tokens", [(64 << i, 16) for i in range(5)], 0),
    ("one pair per 4 tokens, growing length", "tokens", [(64 << i, 16 << i) for i in range(5)], 0),
    ("length 1024, growing pairs", "pairs", [(1024, 4 << i) for i in range(7)], 1),
)
# The row chooses colour and dash of a line, all other settings together its marker.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
# Settings of `deltanet mqar` in the order in which they are tried to tell lines of one row and width apart, and their
# names in labels. Others come last, by their own names.
MQAR_SETTINGS = {
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
OTHER_STYLES = [(color, dash) for dash in (SOLID, DASHED, DOTTED) for color in (SKY, ORANGE, BLACK)]


class PlotError(ValueError):
    """A file that cannot be plotted; the text names the file and what is wrong with it."""


def load_kernels(path: str | Path) -> dict:
    """The document of ``deltanet bench kernels --json``, checked."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise PlotError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise PlotError(f"{path}: is not a text file; expected JSON") from None
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise PlotError(f"{path}: is not JSON ({error})") from None
    given = document.get("benchmark") if isinstance(document, dict) else None
    if given != "kernels":
        raise PlotError(f"{path}: has benchmark {given!r}; expected a file of `deltanet bench kernels --json`")
    results = document.get("results")
    if not isinstance(results, list):
        raise PlotError(f"{path}: has no list of results")
    for index, result in enumerate(results):
        _check_result(path, index, result)
    if not _series(document):
        raise PlotError(f"{path}: has no correct results to plot")
    return document


def plot_kernels(document: dict, output: str | Path) -> None:
    """Draws a document of load_kernels into a file."""
    plt = _pyplot()
    series = _series(document)
    directions = [d for d in DIRECTIONS if any(direction == d for _, direction in series)]
    figure, axes = plt.subplots(
        2,
        len(directions),
        figsize=(6.4 * len(directions), 8.4),
        sharex=True,
        sharey="row",
        squeeze=False,
        layout="constrained",
    )
    styles = _styles(series)
    for column, direction in enumerate(directions):
        lines = {row: points for (row, d), points in series.items() if d == direction}
        _draw_panel(axes[0][column], lines, styles, ("median_ms", "p10_ms", "p90_ms"))
        _draw_panel(axes[1][column], lines, styles, ("tokens_per_s", None, None))
        axes[0][column].set_title(direction, loc="left", fontweight="bold", fontsize=11)
        axes[1][column].set_xlabel("tokens per sequence")
    axes[0][0].set_ylabel("time, ms (median; band: 10th to 90th percentile)")
    axes[1][0].set_ylabel("tokens per second")
    figure.suptitle(_title(document), x=0.01, ha="left", fontsize=10, color=GREY)
    figure.canvas.draw()  # places the axes, which the labels need
    for row_of_axes, key in zip(axes, ("median_ms", "tokens_per_s")):
        for ax, direction in zip(row_of_axes, directions):
            ends = {row: points[-1] for (row, d), points in series.items() if d == direction}
            _label_ends(ax, {row: (point["length"], point[key]) for row, point in ends.items()}, styles)
    try:
        figure.savefig(output, dpi=150)
    except (OSError, ValueError) as error:
        raise PlotError(f"{output}: cannot be written ({error})") from None
    finally:
        plt.close(figure)


def load_mqar(path: str | Path) -> list[dict]:
    """The finished runs that a file holds, checked; a last line that is still being written is left out."""
    runs = []
    for number, line in _whole_lines(path):
        try:
            runs.append(_mqar_run(json.loads(line)))
        except (json.JSONDecodeError, LookupError, TypeError, ValueError) as error:
            raise PlotError(f"{path}: line {number} is not a result of `deltanet mqar` ({error!r})") from None
    if not runs:
        raise PlotError(f"{path}: has no results to plot")
    return runs


def plot_mqar(runs: list[dict], output: str | Path) -> None:
    """Draws runs of load_mqar into a file: every model at the learning rate that is best for it."""
    plt = _pyplot()
    best = _best_runs(runs)
    points = _mqar_points(best)
    cuts = [cut for cut in MQAR_CUTS if _cut_lines(points, cut)]
    figure, axes = plt.subplots(
        1, 1 + len(cuts), figsize=(5.4 * (1 + len(cuts)), 4.4), squeeze=False, layout="constrained"
    )
    looks = _mqar_looks(list(points))
    _draw_curves(axes[0][0], best, looks)
    for ax, cut in zip(axes[0][1:], cuts):
        _draw_cut(ax, _cut_lines(points, cut), cut, looks)
    for ax in axes[0]:
        ax.set_ylim(-0.02, 1.02)
        ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
        ax.grid(axis="y", color="#dddddd", linewidth=0.6)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("accuracy of recall (mean; band: all seeds)")
    axes[0][0].legend(frameon=False, fontsize=9, handlelength=3.6)  # room for dashes beside the marker
    try:
        figure.savefig(output, dpi=150)
    except (OSError, ValueError) as error:
        raise PlotError(f"{output}: cannot be written ({error})") from None
    finally:
        plt.close(figure)


def load_run(directory: str | Path) -> list[dict]:
    """The steps that a folder of `deltanet train` has logged, checked."""
    path = Path(directory) / "metrics.jsonl"
    steps = []
    for number, line in _whole_lines(path):
        try:
            entry = json.loads(line)
            steps.append({name: float(value) for name, value in entry.items() if isinstance(value, (int, float))})
            steps[-1]["step"], steps[-1]["loss"]  # noqa: B018
        except (json.JSONDecodeError, AttributeError, LookupError) as error:
            raise PlotError(f"{path}: line {number} is not a step of `deltanet train` ({error!r})") from None
    if not steps:
        raise PlotError(f"{path}: has no steps to plot")
    return steps


def plot_runs(runs: dict[str, list[dict]], output: str | Path) -> None:
    """Draws the steps of several runs, by name, into a file."""
    plt = _pyplot()
    panels = [("loss", "training loss"), ("val_loss", "validation loss"), ("grad_norm", "gradient norm"), ("lr", "learning rate")]
    panels = [(key, label) for key, label in panels if any(key in step for steps in runs.values() for step in steps)]
    figure, axes = plt.subplots(1, len(panels), figsize=(4.6 * len(panels), 4.0), squeeze=False, layout="constrained")
    colors = plt.rcParams["axes.prop_cycle"].by_key()["color"]
    for ax, (key, label) in zip(axes[0], panels):
        for index, (name, steps) in enumerate(runs.items()):
            points = [(step["step"], step[key]) for step in steps if math.isfinite(step.get(key, math.nan))]
            marker = "o" if len(points) < 12 else None
            ax.plot(*zip(*points) if points else ([], []), color=colors[index % len(colors)], marker=marker, label=name)
        ax.set_xlabel("step")
        ax.set_title(label, fontsize=10, loc="left")
        ax.grid(axis="y", color="#dddddd", linewidth=0.6)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0][0].legend(frameon=False, fontsize=9)
    try:
        figure.savefig(output, dpi=150)
    except (OSError, ValueError) as error:
        raise PlotError(f"{output}: cannot be written ({error})") from None
    finally:
        plt.close(figure)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m deltanet.plots", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="PLOT")
    kernels = commands.add_parser("kernels", help="time and speed against length")
    kernels.add_argument("file", help="what `deltanet bench kernels --json FILE` wrote")
    kernels.add_argument("-o", "--output", help="the picture (default: FILE with the ending .png)")
    mqar = commands.add_parser("mqar", help="accuracy of recall against steps, length and pairs")
    mqar.add_argument("file", help="results.jsonl of `deltanet mqar` or recall.jsonl of `deltanet quickstart`")
    mqar.add_argument("-o", "--output", help="the picture (default: FILE with the ending .png)")
    run = commands.add_parser("run", help="losses of training runs against the step")
    run.add_argument("directories", nargs="+", help="folders that `deltanet train --out DIR` made")
    run.add_argument("-o", "--output", help="the picture (default: losses.png in the first folder)")
    args = parser.parse_args(argv)
    if args.command == "run":
        output = args.output or str(Path(args.directories[0]) / "losses.png")
    else:
        output = args.output or str(Path(args.file).with_suffix(".png"))
    try:
        if args.command == "run":
            plot_runs({Path(name).name or name: load_run(name) for name in args.directories}, output)
        elif args.command == "mqar":
            plot_mqar(load_mqar(args.file), output)
        else:
            plot_kernels(load_kernels(args.file), output)
    except PlotError as error:
        print(f"plots: {error}", file=sys.stderr)
        return 1
    print(output)
    return 0


def _pyplot():
    try:
        import matplotlib
    except ImportError:
        raise PlotError("matplotlib is not installed; run: pip install matplotlib") from None
    matplotlib.use("Agg")  # files only: works without a display
    import matplotlib.pyplot as plt

    return plt


def _whole_lines(path):
    """Numbered lines of a file; a last one that is still being written is left out."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise PlotError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise PlotError(f"{path}: is not a text file; expected lines of JSON") from None
    return list(enumerate(text.split("\n")[:-1], 1))


def _check_result(path, index, result):
    where = f"{path}: result {index}"
    if not isinstance(result, dict):
        raise PlotError(f"{where}: is {type(result).__name__}; expected an object")
    if result.get("direction") not in DIRECTIONS:
        raise PlotError(f"{where}: has direction {result.get('direction')!r}; expected one of {', '.join(DIRECTIONS)}")
    if not isinstance(result.get("row"), str):
        raise PlotError(f"{where}: has row {result.get('row')!r}; expected a name")
    if not result.get("correct", True):
        return  # has no times
    for key in ("length", "median_ms", "p10_ms", "p90_ms", "tokens_per_s"):
        value = result.get(key)
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value <= 0:
            raise PlotError(f"{where}: has {key} {value!r}; expected a positive number")


def _series(document):
    """{(row, direction): results by increasing length}, rows in the order of the file."""
    series = {}
    for result in document["results"]:
        if result.get("correct", True):
            series.setdefault((result["row"], result["direction"]), []).append(result)
    return {key: sorted(points, key=lambda point: point["length"]) for key, points in series.items()}


def _styles(series):
    styles, others = {}, iter(OTHER_STYLES * len(series))
    for row, _ in series:
        if row not in styles:
            styles[row] = STYLES[row] if row in STYLES else next(others)
    return styles


def _mqar_run(line):
    settings = line["settings"]
    named = {"model": str(settings["model"]), "d_model": int(settings["d_model"]), "train": settings["train"]}
    group = {name: value for name, value in settings.items() if name not in ("lr", "seed")} | named
    return {
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


def _best_runs(runs):
    """{all settings but learning rate and seed: the runs of the rate with the best mean accuracy over its seeds}."""
    by_rate = {}
    for run in runs:
        by_rate.setdefault(run["group"], {}).setdefault(run["lr"], []).append(run)
    return {
        group: max(rates.values(), key=lambda seeds: _mean([run["accuracy"] for run in seeds]))
        for group, rates in by_rate.items()
    }


def _mqar_points(best):
    """{line: {task: accuracies}}: one training set with many tests, or one for each test."""
    points = {}
    for seeds in best.values():
        for run in seeds:
            tasks = points.setdefault(run["line"], {})
            for task, accuracy in run["scores"].items():
                tasks.setdefault(task, []).append(accuracy)
    return points


def _cut_lines(points, cut):
    lines = {key: [task for task in cut[2] if task in tasks] for key, tasks in points.items()}
    return {key: [(task, points[key][task]) for task in tasks] for key, tasks in lines.items() if len(tasks) > 1}


def _mqar_looks(lines):
    """{line: (colour, dash, marker, label)}; no two labels are the same."""
    settings = {line: json.loads(line) for line in lines}
    rows = {line: one["model"] for line, one in settings.items()}
    styles = _styles([(row, None) for row in rows.values()])
    labels = _mqar_labels(settings)
    looks, variants = {}, {}
    for line, row in rows.items():
        others = json.dumps({name: value for name, value in settings[line].items() if name != "model"})
        marker = MARKERS[variants.setdefault(others, len(variants)) % len(MARKERS)]
        looks[line] = (*styles[row], marker, labels[line])
    return looks


def _mqar_labels(settings):
    """{line: label}: the row, the width where there are several, and what tells lines of one row and width apart."""
    widths = len({one["d_model"] for one in settings.values()}) > 1
    alike = {}
    for line, one in settings.items():
        alike.setdefault((one["model"], one["d_model"]), []).append(line)
    labels = {}
    for (row, d_model), lines in alike.items():
        names = _telling({line: settings[line] for line in lines})
        for line in lines:
            known = [(MQAR_SETTINGS.get(name, name), settings[line][name]) for name in names if name in settings[line]]
            more = [f"{name} {_setting_text(value)}" for name, value in known]
            labels[line] = ", ".join([f"{row} {d_model}" if widths else row, *more])
    return labels


def _telling(settings):
    """Names of a few settings whose values are different for any two of the lines."""
    names, apart = [], 1
    known = list(MQAR_SETTINGS)
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
    ax.set_xticks(ticks, [_length_text(tick) for tick in ticks])
    ax.minorticks_off()
    ax.set_title(title, loc="left", fontweight="bold", fontsize=11)
    ax.set_xlabel(axis)


def _title(document):
    machine, shape = document.get("machine", {}), document.get("shape", {})
    threads = machine.get("threads")
    parts = [
        machine.get("cpu"),
        machine.get("simd_target"),
        f"{threads} thread{'' if threads == 1 else 's'}" if threads else None,
        " ".join(f"{name}={shape[name]}" for name in "BHUKV" if name in shape),
        f"deltanet {machine['deltanet']}" if "deltanet" in machine else None,
    ]
    return ", ".join(part for part in parts if part)


def _draw_panel(ax, lines, styles, keys):
    key, low, high = keys
    for row, points in lines.items():
        color, dash = styles[row]
        lengths = [point["length"] for point in points]
        ax.plot(lengths, [point[key] for point in points], color=color, linestyle=dash, linewidth=1.6,
                marker="o", markersize=3, label=row)
        if low:
            ax.fill_between(lengths, [point[low] for point in points], [point[high] for point in points],
                            color=color, alpha=0.15, linewidth=0)
    lengths = sorted({point["length"] for points in lines.values() for point in points})
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(lengths, [_length_text(length) for length in lengths])
    ax.minorticks_off()
    ax.yaxis.set_major_formatter(lambda value, _: _number_text(value))
    _readable_ticks(ax)
    ax.margins(x=0.03)
    ax.grid(axis="y", color="#dddddd", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def _readable_ticks(ax):
    """1, 2 and 5 in every decade where few decades are seen, powers of ten otherwise."""
    from matplotlib.ticker import LogLocator

    low, high = ax.get_ylim()
    subs = (1, 2, 5) if math.log10(high / low) < 2.5 else (1,)
    ax.yaxis.set_major_locator(LogLocator(base=10, subs=subs, numticks=20))


def _label_ends(ax, ends, styles):
    """Names every line at its right end; labels that would overlap are moved apart and tied to their line."""
    to_axes = ax.transData + ax.transAxes.inverted()
    height = ax.get_window_extent().height
    gap = 11.5 * ax.figure.dpi / 72 / height  # one line of text
    positions = {row: to_axes.transform(point) for row, point in ends.items()}
    order = sorted(ends, key=lambda row: positions[row][1])
    heights = _spread([positions[row][1] for row in order], gap)
    for row, y in zip(order, heights):
        color, _ = styles[row]
        at = positions[row]
        ax.annotate(
            row,
            xy=(at[0] + 0.008, at[1]),
            xytext=(1.04, y),
            xycoords="axes fraction",
            textcoords="axes fraction",
            color=color,
            fontsize=9,
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": color,
                "linewidth": 0.6,
                "relpos": (0, 0.5),
                "shrinkA": 1,
                "shrinkB": 1,
            },
        )


def _spread(values, gap):
    """The sorted values, moved as little as is needed to be `gap` apart."""
    groups = []  # [sum of (value - offset), count]: runs of touching labels, kept around their mean
    for value in values:
        groups.append([value, 1])
        while len(groups) > 1:
            (total_a, count_a), (total_b, count_b) = groups[-2:]
            if total_a / count_a + (count_a - 1) * gap + gap <= total_b / count_b:
                break
            groups[-2:] = [[total_a + total_b - count_b * count_a * gap, count_a + count_b]]
    return [total / count + i * gap for total, count in groups for i in range(count)]


def _length_text(length):
    return f"{length // 1024}k" if length >= 1024 and length % 1024 == 0 else str(length)


def _number_text(value):
    for size, suffix in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{suffix}"
    return f"{value:g}"


if __name__ == "__main__":
    sys.exit(main())

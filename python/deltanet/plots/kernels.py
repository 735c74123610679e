"""`python -m deltanet.plots kernels`: time and tokens per second against the length."""

from __future__ import annotations

import math
from pathlib import Path

from .style import GRAY, PlotError, label_ends, length_text, plain, pyplot, read_json, save, styles_of

DIRECTIONS = ("forward", "forward+backward")


def load_kernels(path: str | Path) -> dict:
    """The document of ``deltanet bench kernels --json``, checked."""
    document = read_json(path)
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
    plt = pyplot()
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
    styles = styles_of(series)
    for column, direction in enumerate(directions):
        lines = {row: points for (row, d), points in series.items() if d == direction}
        _draw_panel(axes[0][column], lines, styles, ("median_ms", "p10_ms", "p90_ms"))
        _draw_panel(axes[1][column], lines, styles, ("tokens_per_s", None, None))
        axes[0][column].set_title(direction, loc="left", fontweight="bold", fontsize=11)
        axes[1][column].set_xlabel("tokens per sequence")
    axes[0][0].set_ylabel("time, ms (median; band: 10th to 90th percentile)")
    axes[1][0].set_ylabel("tokens per second")
    figure.suptitle(_title(document), x=0.01, ha="left", fontsize=10, color=GRAY)
    figure.canvas.draw()  # places the axes, which the labels need
    for row_of_axes, key in zip(axes, ("median_ms", "tokens_per_s")):
        for ax, direction in zip(row_of_axes, directions):
            ends = {row: points[-1] for (row, d), points in series.items() if d == direction}
            label_ends(ax, {row: (point["length"], point[key]) for row, point in ends.items()}, styles)
    save(figure, output)


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
    ax.set_xticks(lengths, [length_text(length) for length in lengths])
    ax.minorticks_off()
    ax.yaxis.set_major_formatter(lambda value, _: _number_text(value))
    _readable_ticks(ax)
    ax.margins(x=0.03)
    plain(ax)


def _readable_ticks(ax):
    """1, 2 and 5 in every decade where few decades are seen, powers of ten otherwise."""
    from matplotlib.ticker import LogLocator

    low, high = ax.get_ylim()
    subs = (1, 2, 5) if math.log10(high / low) < 2.5 else (1,)
    ax.yaxis.set_major_locator(LogLocator(base=10, subs=subs, numticks=20))


def _number_text(value):
    for size, suffix in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{suffix}"
    return f"{value:g}"

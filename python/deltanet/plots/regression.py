"""`python -m deltanet.plots regression`: error against tokens of a state that fits what it reads."""

from __future__ import annotations

import math
from pathlib import Path

from .style import (
    BLACK,
    BLUE,
    DOTTED,
    GRAY,
    ORANGE,
    SOLID,
    VERMILION,
    PlotError,
    label_ends,
    plain,
    pyplot,
    read_lines,
    save,
)

# Colors and dashes of each family of solvers, in the order in which a file has them.
_STYLES = {
    "delta rule": [(BLUE, SOLID)],
    "preconditioned": [(ORANGE, SOLID), (VERMILION, SOLID), ("#7A2E00", SOLID)],
    "exact": [(GRAY, DOTTED)],
}
_TITLES = {"aligned": "keys vary along the axes", "rotated": "the same keys, rotated"}


def load_regression(path: str | Path) -> list[dict]:
    """The curves of the regression.jsonl of ``deltanet quickstart``, checked."""
    curves = read_lines(path, _curve, "curve of `deltanet quickstart`")
    if not curves:
        raise PlotError(f"{path}: has no curves to plot")
    return curves


def plot_regression(curves: list[dict], output: str | Path) -> None:
    """Draws curves of load_regression into a file: a panel for aligned and one for rotated keys."""
    plt = pyplot()
    kinds = [kind for kind in _TITLES if any(curve["axes"] == kind for curve in curves)]
    styles = _styles(curves)
    figure, axes = plt.subplots(
        1, len(kinds), figsize=(5.0 * len(kinds) + 1.2, 4.3), sharey=True, squeeze=False, layout="constrained"
    )
    for ax, kind in zip(axes[0], kinds):
        for curve in curves:
            if curve["axes"] == kind:
                _draw(ax, curve, styles[curve["solver"]])
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
        ax.set_title(_TITLES[kind], loc="left", fontweight="bold", fontsize=11)
        ax.set_xlabel("tokens read")
        ax.set_xlim(0, None)
        ax.margins(x=0)
        plain(ax)
    axes[0][0].set_ylabel("error on what was read (share of |v|²)")
    one = curves[0]
    figure.suptitle(
        f"Regression in context, nothing is trained: {one['key_dim']} axes, scales 1 to {one['smallest']:g}; "
        f"mean of {one['draws']} draws, band: its standard error",
        x=0.01, ha="left", fontsize=10, color=GRAY,
    )
    figure.canvas.draw()  # places the axes, which the labels need
    for ax, kind in zip(axes[0], kinds):
        last = kind == kinds[-1]
        ends, looks = {}, {}
        for curve in curves:
            if curve["axes"] != kind:
                continue
            label = _percent(curve["error"][-1]) + (f"  {curve['solver']}" if last else "")
            ends[label] = (curve["tokens"][-1], curve["error"][-1])
            looks[label] = styles[curve["solver"]]
        label_ends(ax, ends, looks)
    save(figure, output)


def _curve(line):
    curve = {name: str(line[name]) for name in ("axes", "solver")}
    if line["experiment"] != "regression" or curve["axes"] not in _TITLES:
        raise ValueError(f"experiment {line['experiment']!r}, axes {curve['axes']!r}")
    curve |= {name: int(line[name]) for name in ("key_dim", "draws")} | {"smallest": float(line["smallest"])}
    curve["family"] = "exact" if float(line["ridge"]) > 0 else "preconditioned" if line["precond"] else "delta rule"
    points = list(zip(line["tokens"], line["error"], line["deviation"], strict=True))
    curve["tokens"] = [int(tokens) for tokens, _, _ in points]
    curve["error"] = [float(error) for _, error, _ in points]
    curve["band"] = [float(deviation) / math.sqrt(curve["draws"]) for _, _, deviation in points]
    if not points or min(curve["error"]) <= 0:
        raise ValueError("errors: expected some, and all above 0")
    return curve


def _styles(curves):
    families = {family: iter(looks) for family, looks in _STYLES.items()}
    styles = {}
    for curve in curves:
        if curve["solver"] not in styles:
            styles[curve["solver"]] = next(families[curve["family"]], (BLACK, SOLID))
    return styles


def _draw(ax, curve, style):
    color, dash = style
    ax.plot(curve["tokens"], curve["error"], color=color, linestyle=dash, linewidth=2.0)
    low, high = zip(*((max(error - band, 1e-12), error + band) for error, band in zip(curve["error"], curve["band"])))
    ax.fill_between(curve["tokens"], low, high, color=color, alpha=0.15, linewidth=0)


def _percent(share):
    return f"{100 * share:.2g}%"

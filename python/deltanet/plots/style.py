"""What all pictures share: colors, panels, labels, files."""

from __future__ import annotations

import json
from pathlib import Path

# The colors of Okabe and Ito, which people with any color vision can tell apart (the purple is darker, so that its
# label can be read). A preconditioned row has the color of its base and another dash.
BLUE, VERMILION, PURPLE, GREEN, GRAY = "#0072B2", "#D55E00", "#AA4499", "#009E73", "#555555"
SKY, ORANGE, BLACK = "#56B4E9", "#E69F00", "#000000"
SOLID, DASHED, DOTTED = "-", (0, (5, 2)), (0, (1, 1.5))
ROWS = {
    "delta_net": (GREEN, SOLID),
    "pdn": (GREEN, DASHED),
    "gdn": (BLUE, SOLID),
    "pgdn": (BLUE, DASHED),
    "gdn_distinct_keys": (BLUE, DOTTED),
    "kda": (VERMILION, SOLID),
    "pkda": (VERMILION, DASHED),
    "dplr": (PURPLE, SOLID),
    "mesa": (GREEN, SOLID),
    "linear_attn": (GRAY, SOLID),
}
OTHERS = [(color, dash) for dash in (SOLID, DASHED, DOTTED) for color in (SKY, ORANGE, BLACK)]


class PlotError(ValueError):
    """A file that cannot be plotted; the text names the file and what is wrong with it."""


def pyplot():
    try:
        import matplotlib
    except ImportError:
        raise PlotError("matplotlib is not installed; run: pip install matplotlib") from None
    matplotlib.use("Agg")  # files only: works without a display
    import matplotlib.pyplot as plt

    return plt


def save(figure, output):
    """Writes a figure into a file, and forgets it."""
    try:
        figure.savefig(output, dpi=150)
    except (OSError, ValueError) as error:
        raise PlotError(f"{output}: cannot be written ({error})") from None
    finally:
        pyplot().close(figure)


def plain(ax):
    """Lines across the panel, and no frame above and to the right of it."""
    ax.grid(axis="y", color="#dddddd", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def read_lines(path, read, what):
    """What `read` makes of every line of JSON in a file that should hold `what`; a last one that is still being written
    is left out."""
    results = []
    for number, line in enumerate(_read_text(path, "lines of JSON").split("\n")[:-1], 1):
        try:
            results.append(read(json.loads(line)))
        except (json.JSONDecodeError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise PlotError(f"{path}: line {number} is not a {what} ({error!r})") from None
    return results


def read_json(path):
    """The document that a file of JSON holds."""
    try:
        return json.loads(_read_text(path, "JSON"))
    except json.JSONDecodeError as error:
        raise PlotError(f"{path}: is not JSON ({error})") from None


def _read_text(path, what):
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise PlotError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise PlotError(f"{path}: is not a text file; expected {what}") from None


def styles_of(series):
    styles, others = {}, iter(OTHERS * len(series))
    for row, _ in series:
        if row not in styles:
            styles[row] = ROWS[row] if row in ROWS else next(others)
    return styles


def label_ends(ax, ends, styles):
    """Names every line at its right end; labels that would overlap are moved apart and tied to their line."""
    to_axes = ax.transData + ax.transAxes.inverted()
    height = ax.get_window_extent().height
    gap = 11.5 * ax.figure.dpi / 72 / height  # one line of text
    positions = {row: to_axes.transform(point) for row, point in ends.items()}
    order = sorted(ends, key=lambda row: positions[row][1])
    heights = spread([positions[row][1] for row in order], gap)
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


def spread(values, gap):
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


def length_text(length):
    return f"{length // 1024}k" if length >= 1024 and length % 1024 == 0 else str(length)

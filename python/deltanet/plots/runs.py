"""`python -m deltanet.plots run`: losses, gradient norms and learning rates of training runs."""

from __future__ import annotations

import math
import os
from pathlib import Path

from .style import PlotError, plain, pyplot, read_lines, save


def load_run(directory: str | Path) -> list[dict]:
    """The steps that a folder of `deltanet train` has logged, checked."""
    path = Path(directory) / "metrics.jsonl"
    steps = read_lines(path, _step, "step of `deltanet train`")
    if not steps:
        raise PlotError(f"{path}: has no steps to plot")
    return steps


def _step(entry):
    # JSON has no number for what is not finite, such as the loss of a step that was skipped.
    entry = {name: math.nan if value is None else value for name, value in entry.items()}
    step = {name: float(value) for name, value in entry.items() if isinstance(value, (int, float))}
    if not {"step", "loss"} <= step.keys():
        raise KeyError("step and loss")
    return step


def names_of_runs(directories: list[str]) -> list[str]:
    """What tells the folders apart: as many of their last names as that takes."""
    paths = [Path(os.path.abspath(directory)).parts for directory in directories]

    def name_of(own):
        others = [other for other in paths if other != own]
        count = next(n for n in range(1, len(own) + 1) if all(other[-n:] != own[-n:] for other in others))
        return str(Path(*own[-count:]))

    return [name_of(path) for path in paths]


def plot_runs(runs: dict[str, list[dict]], output: str | Path) -> None:
    """Draws the steps of several runs, by name, into a file."""
    plt = pyplot()
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
        plain(ax)
    axes[0][0].legend(frameon=False, fontsize=9)
    save(figure, output)

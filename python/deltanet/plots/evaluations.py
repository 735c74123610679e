"""`python -m deltanet.plots eval`: accuracy against the length and the depth of a needle, and loss against position."""

from __future__ import annotations

import math
from pathlib import Path

from .style import BLACK, GRAY, OTHERS, ROWS, PlotError, length_text, plain, pyplot, read_json, save

FORMAT = "deltanet eval 1"
DEPTH = "depth_from"  # percent at which a part of the haystack begins, in which the needle was


def load_eval(*paths: str | Path) -> list[dict]:
    """The models of some files of ``deltanet eval --json``, checked: name, row, and of each task what can be drawn."""
    models = [model for path in paths for model in _models(path)]
    if not any(model["lengths"] or model["curves"] for model in models):
        raise PlotError(
            f"{', '.join(map(str, paths))}: has no results by length and no loss by position; expected tasks such as "
            "s_niah_1, parity, wikitext or text"
        )
    names = [model["name"] for model in models]
    for model in models:
        if names.count(model["name"]) > 1:  # of several files
            model["name"] = f"{model['name']} ({Path(model['file']).stem})"
    return models


def plot_eval(models: list[dict], output: str | Path) -> None:
    """Draws models of load_eval into a file: a row of panels by length, one by depth for each model, one of losses."""
    plt = pyplot()
    styles = model_styles(models)
    by_length = _tasks(models, "lengths")
    by_depth = [task for task in by_length if any(task in model["depths"] for model in models)]
    by_place = _tasks(models, "curves")
    deep = [model for model in models if model["depths"]]
    heights = [3.6] * bool(by_length) + [0.9 + 0.26 * _most_lengths(deep)] * len(deep) + [3.8] * bool(by_place)
    columns = max(len(by_length), len(by_depth), len(by_place))
    figure = plt.figure(figsize=(1.4 + 4.0 * columns, 0.6 + sum(heights)), layout="constrained")
    parts = iter(figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0])
    if by_length:
        axes = next(parts).subplots(1, columns, squeeze=False, sharey=True)[0]
        for ax, task in zip(axes, by_length):
            _draw_lengths(ax, task, models, styles)
        axes[0].set_ylabel("accuracy (bar: standard error)")
        _finish_row(axes, len(by_length))
    for model in deep:
        _draw_depths(next(parts), model, by_depth, columns)
    if by_place:
        axes = next(parts).subplots(1, columns, squeeze=False)[0]
        for ax, task in zip(axes, by_place):
            _draw_losses(ax, task, models, styles)
        axes[0].set_ylabel("loss, nats per token")
        _finish_row(axes, len(by_place))
    handles = [plt.Line2D([], [], color=color, linestyle=dash, linewidth=2, marker="o", markersize=4, label=name)
               for name, (color, dash) in styles.items()]
    figure.legend(handles=handles, loc="outside upper left", ncols=min(len(handles), 2 * columns), frameon=False,
                  fontsize=9, handlelength=3.6)
    save(figure, output)


# ---- reading


def _models(path):
    document = read_json(path)
    given = document.get("format") if isinstance(document, dict) else None
    if given != FORMAT:
        raise PlotError(f"{path}: has format {given!r}; expected {FORMAT!r}, a file of `deltanet eval --json`")
    try:
        return [_model(path, model) for model in document["models"]]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise PlotError(f"{path}: is not what `deltanet eval --json` writes ({error!r})") from None


def _model(path, model):
    read = {"file": str(path), "name": str(model["name"]), "row": str(model.get("row")),
            "lengths": {}, "depths": {}, "curves": {}, "titles": {}}  # fmt: skip
    for name, task in model["tasks"].items():
        read["titles"][name] = str(task["title"]) + (", more than chance" if task.get("metric") == "score" else "")
        for breakdown in task.get("breakdowns") or []:
            cells = [cell for cell in breakdown["cells"] if cell["value"] is not None]
            if breakdown["by"] == ["length"] and cells:
                read["lengths"][name] = sorted(
                    (int(cell["length"]), float(cell["value"]), float(cell["stderr"] or 0)) for cell in cells
                )
            elif breakdown["by"] == ["length", DEPTH] and cells:
                read["depths"][name] = {(int(c["length"]), int(c[DEPTH])): float(c["value"]) for c in cells}
        points = [
            (int(point["begin"]), int(point["end"]), float(point["loss"]))
            for point in task.get("curve") or []
            if point["loss"] is not None
        ]
        if points:
            read["curves"][name] = sorted(points)
    return read


def _tasks(models, kind):
    """Names of the tasks that any model has, in the order of the file."""
    return list(dict.fromkeys(name for model in models for name in model[kind]))


def _title(models, task):
    return next(model["titles"][task] for model in models if task in model["titles"])


def _most_lengths(models):
    cells = [cells for model in models for cells in model["depths"].values()]
    return max((len({length for length, _ in one}) for one in cells), default=0)


def model_styles(models):
    """{name: (color, dash)}: those of its row as in all pictures; of several checkpoints of a row, for the first."""
    others = iter(OTHERS * (1 + len(models) // len(OTHERS)))
    styles = {}
    for model in models:
        style = ROWS.get(model["row"])
        styles[model["name"]] = style if style and style not in styles.values() else next(others)
    return styles


# ---- drawing


def _finish_row(axes, used):
    for ax in axes[:used]:
        plain(ax)
    for ax in axes[used:]:
        ax.set_visible(False)


def _draw_lengths(ax, task, models, styles):
    lengths = set()
    for model in models:
        points = model["lengths"].get(task, [])
        color, dash = styles[model["name"]]
        ax.errorbar(*([point[i] for point in points] for i in range(2)), yerr=[error for *_, error in points],
                    color=color, linestyle=dash, linewidth=2.0, marker="o", markersize=4, capsize=2, elinewidth=1)
        lengths.update(length for length, *_ in points)
    ax.set_xscale("log", base=2)
    ax.set_xticks(sorted(lengths), [length_text(length) for length in sorted(lengths)])
    ax.minorticks_off()
    low = min(value - error for model in models for _, value, error in model["lengths"].get(task, [(0, 0.0, 0.0)]))
    ax.set_ylim(min(0.0, low) - 0.03, 1.03)
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    ax.set_title(_title(models, task), loc="left", fontweight="bold", fontsize=11)
    ax.set_xlabel("tokens")


def _draw_depths(part, model, tasks, columns):
    axes = part.subplots(1, columns, squeeze=False)[0]
    image = None
    for ax, task in zip(axes, tasks):
        cells = model["depths"].get(task)
        if not cells:
            ax.set_visible(False)
            continue
        lengths, depths = (sorted({place[i] for place in cells}) for i in range(2))
        values = [[cells.get((length, depth), math.nan) for depth in depths] for length in lengths]
        image = ax.imshow(values, cmap="cividis", vmin=0, vmax=1, aspect="auto")
        for y, row in enumerate(values):
            for x, value in enumerate(row):
                if math.isfinite(value):
                    ax.text(x, y, f"{100 * value:.0f}", ha="center", va="center", fontsize=8,
                            color="white" if value < 0.45 else BLACK)
        ends = [*depths[1:], 100]
        ax.set_xticks(range(len(depths)), [f"{begin}–{end}%" for begin, end in zip(depths, ends)], fontsize=8)
        ax.set_yticks(range(len(lengths)), [length_text(length) for length in lengths], fontsize=8)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        ax.set_xlabel("depth of the needle", fontsize=8)
        ax.set_title(f"{model['name']}, {model['titles'][task]}", loc="left", fontsize=9, color=GRAY)
    for ax in axes[len(tasks):]:
        ax.set_visible(False)
    if image is not None:
        bar = part.colorbar(image, ax=list(axes), fraction=0.02, pad=0.01)
        bar.ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
        bar.outline.set_visible(False)
        bar.ax.tick_params(labelsize=8)


def _draw_losses(ax, task, models, styles):
    for model in models:
        points = model["curves"].get(task, [])
        color, dash = styles[model["name"]]
        # An interval stands at its middle on the axis.
        places = [math.sqrt(max(begin, 1) * max(end - 1, 1)) for begin, end, _ in points]
        ax.plot(places, [loss for *_, loss in points], color=color, linestyle=dash, linewidth=2.0)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(lambda value, _: length_text(round(value)))
    ax.set_title(f"{_title(models, task)}, by position", loc="left", fontweight="bold", fontsize=11)
    ax.set_xlabel("tokens before the one that is predicted")
    perplexity = ax.secondary_yaxis("right", functions=(_exp, _log))
    perplexity.set_ylabel("perplexity per token", fontsize=9)
    perplexity.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 100 else f"{value:.3g}")
    perplexity.tick_params(labelsize=8)
    perplexity.spines["right"].set_visible(False)


def _exp(values):
    import numpy

    return numpy.exp(numpy.clip(values, -50, 50))


def _log(values):
    import numpy

    return numpy.log(numpy.clip(values, 1e-20, None))

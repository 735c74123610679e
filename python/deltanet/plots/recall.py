"""`python -m deltanet.plots recall`: models trained on recall with the same seeds, and their paired differences."""

from __future__ import annotations

import json
import math
from pathlib import Path

from .mqar import best_runs
from .style import BLACK, BLUE, GREEN, GRAY, ORANGE, PURPLE, SKY, SOLID, VERMILION, label_ends, plain, pyplot, save

# A color for each model, and the base of each preconditioned one.
_COLORS = {"delta_net": BLUE, "pdn": VERMILION, "gdn": SKY, "pgdn": ORANGE, "kda": GREEN, "pkda": PURPLE}
_BASES = {"pdn": "delta_net", "pgdn": "gdn", "pkda": "kda"}
_NAMES = {"delta_net": "DeltaNet", "pdn": "PDN", "gdn": "GDN", "pgdn": "PGDN", "kda": "KDA", "pkda": "PKDA"}


def plot_recall(runs: list[dict], output: str | Path) -> None:
    """Draws runs of load_mqar into a file: accuracy against the step and the pairs, and what preconditioning changed."""
    plt = pyplot()
    models = _models(runs)
    pairs = [(model, _BASES[model]) for model in models if _BASES.get(model) in models]
    count = 3 if pairs else 2
    figure, axes = plt.subplots(1, count, figsize=(4.4 * count, 4.1), squeeze=False, layout="constrained")
    curves, tests, *differences = axes[0]
    styles = {_name(model): (_COLORS.get(model, BLACK), SOLID) for model in models}
    for model, seeds in models.items():
        _draw_mean(curves, _by_step(seeds), styles[_name(model)])
        _draw_mean(tests, _by_pairs(seeds), styles[_name(model)], marker="o")
    for ax in (curves, tests):
        ax.set_ylim(0, 1.02)
        ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    _titles(curves, "accuracy while it learns", "steps of training")
    _titles(tests, "at the end, by number of pairs", "pairs of tokens to remember")
    curves.set_ylabel("accuracy of recall (mean; band: standard error)")
    tests.set_xscale("log", base=2)
    ticks = sorted({x for seeds in models.values() for x in _by_pairs(seeds)})
    tests.set_xticks(ticks, [str(tick) for tick in ticks])
    tests.minorticks_off()
    for ax in differences:
        for model, base in pairs:
            _draw_difference(ax, models[model], models[base], styles[_name(model)][0])
        ax.axhline(0, color=GRAY, linewidth=0.8)
        ax.yaxis.set_major_locator(plt.MaxNLocator(steps=[1, 2, 5, 10]))  # whole points
        ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:+.0f}")
        _titles(ax, "what preconditioning changed", "steps of training")
        ax.set_ylabel("points, seed by seed (band: 95 % interval)")
    figure.suptitle(_title(runs, models), x=0.01, ha="left", fontsize=10, color=GRAY)
    figure.canvas.draw()  # places the axes, which the labels need
    ends = {_name(model): list(_by_pairs(seeds).items())[-1] for model, seeds in models.items()}
    label_ends(tests, {name: (x, _mean(values)) for name, (x, values) in ends.items()}, styles)
    for ax in differences:
        labels = {f"{_name(model)} − {_name(base)}": (model, base) for model, base in pairs}
        last = {label: _differences(models[model], models[base])[-1] for label, (model, base) in labels.items()}
        label_ends(
            ax,
            {label: (step, _mean(values)) for label, (step, values) in last.items()},
            {label: styles[_name(model)] for label, (model, _) in labels.items()},
        )
    save(figure, output)


def interval(values: list[float]) -> float:
    """Half the width of the 95 % interval of a mean (Student's t); infinite for fewer than three values."""
    n = len(values)
    if n < 3:
        return math.inf
    mean = _mean(values)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1))
    return _t_quantile(n - 1) * deviation / math.sqrt(n)


def _t_quantile(freedom):
    """The 97.5 % quantile of Student's t by Cornish and Fisher's expansion, to 1 % from two degrees of freedom on."""
    z = 1.959964
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))


def _models(runs):
    """{model: {seed: run}} of the best learning rate of each model."""
    models = {}
    for seeds in best_runs(runs).values():
        for run in seeds:
            models.setdefault(run["model"], {})[run["seed"]] = run
    return models


def _by_step(seeds):
    steps = sorted({step for run in seeds.values() for step, _ in run["curve"]})
    return {step: [dict(run["curve"])[step] for run in seeds.values() if step in dict(run["curve"])] for step in steps}


def _by_pairs(seeds):
    scores = {}
    for run in seeds.values():
        for (_, pairs), accuracy in run["scores"].items():
            scores.setdefault(pairs, []).append(accuracy)
    return dict(sorted(scores.items()))


def _differences(seeds, base):
    """(step, differences by seed), for the steps and seeds that both have."""
    shared = [(dict(seeds[seed]["curve"]), dict(base[seed]["curve"])) for seed in seeds if seed in base]
    steps = sorted(set.intersection(*({*one} & {*other} for one, other in shared))) if shared else []
    return [(step, [one[step] - other[step] for one, other in shared]) for step in steps]


def _draw_mean(ax, groups, style, **look):
    color, dash = style
    xs, means = list(groups), [_mean(values) for values in groups.values()]
    errors = [_standard_error(values) for values in groups.values()]
    ax.plot(xs, means, color=color, linestyle=dash, linewidth=2.0, markersize=4, **look)
    low, high = [m - e for m, e in zip(means, errors)], [m + e for m, e in zip(means, errors)]
    ax.fill_between(xs, low, high, color=color, alpha=0.18, linewidth=0)


def _draw_difference(ax, seeds, base, color):
    points = _differences(seeds, base)
    steps, means = [step for step, _ in points], [_mean(values) for _, values in points]
    ax.plot(steps, means, color=color, linewidth=2.0)
    halves = [interval(values) for _, values in points]
    if all(map(math.isfinite, halves)):
        low, high = [m - h for m, h in zip(means, halves)], [m + h for m, h in zip(means, halves)]
        ax.fill_between(steps, low, high, color=color, alpha=0.18, linewidth=0)


def _titles(ax, title, axis):
    ax.set_title(title, loc="left", fontweight="bold", fontsize=11)
    ax.set_xlabel(axis)
    plain(ax)


def _title(runs, models):
    group = json.loads(runs[0]["group"])
    counts = {len(seeds) for seeds in models.values()}
    seeds = f"{min(counts)} to {max(counts)}" if len(counts) > 1 else str(*counts)
    return (
        f"Associative recall (MQAR): width {group['d_model']}, {group.get('layers', '?')} layer"
        f"{'' if group.get('layers') == 1 else 's'}, learning rate {runs[0]['lr']:g}, {seeds} seeds of each model"
    )


def _name(model):
    return _NAMES.get(model, model)


def _mean(values):
    return sum(values) / len(values)


def _standard_error(values):
    if len(values) < 2:
        return 0.0
    mean = _mean(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))

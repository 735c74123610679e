"""Pictures of what the program wrote.

    python -m deltanet.plots regression quickstart/regression.jsonl [-o regression.png]
    python -m deltanet.plots recall quickstart/recall.jsonl [-o recall.png]
    python -m deltanet.plots mqar results.jsonl [-o results.png]
    python -m deltanet.plots run DIR... [-o runs.png]
    python -m deltanet.plots kernels kernels.json [-o kernels.png]
    python -m deltanet.plots eval results.json... [-o results.png]

`regression` and `recall` draw what ``deltanet quickstart`` wrote: the error of a state against the tokens that it has
read, and models trained with the same seeds, against the step and against the number of pairs, with the differences of
preconditioned models and their bases. `mqar` takes the results.jsonl of ``deltanet mqar`` and draws accuracy against
the step, and the paper's three cuts as far as they were tested; runs that differ in more than learning rate and seed
are lines of their own. `run` takes folders of ``deltanet train`` and draws losses, gradient norms and learning rates of
all of them. `kernels` takes the file that ``deltanet bench kernels --json FILE`` wrote and draws time and tokens per
second against the length, forward and forward+backward. `eval` takes files that ``deltanet eval --json FILE`` wrote and
draws accuracy against the length and the depth of a needle, and loss against the position, of all models in them. The
ending of the output file chooses the format (png, svg, pdf).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import (
    PlotError,
    load_eval,
    load_kernels,
    load_mqar,
    load_regression,
    load_run,
    names_of_runs,
    plot_eval,
    plot_kernels,
    plot_mqar,
    plot_recall,
    plot_regression,
    plot_runs,
)

# Of one file each: what reads it, what draws it, the picture, the file.
FILES = {
    "regression": (
        load_regression, plot_regression, "error of a state against the tokens that it has read",
        "regression.jsonl of `deltanet quickstart`",
    ),
    "recall": (
        load_mqar, plot_recall, "models on recall with the same seeds, and their differences",
        "recall.jsonl of `deltanet quickstart`",
    ),
    "mqar": (
        load_mqar, plot_mqar, "accuracy of recall against steps, length and pairs",
        "results.jsonl of `deltanet mqar` or recall.jsonl of `deltanet quickstart`",
    ),
    "kernels": (
        load_kernels, plot_kernels, "time and speed against length", "what `deltanet bench kernels --json FILE` wrote",
    ),
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m deltanet.plots", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="PLOT")
    for name, (_, _, picture, file) in FILES.items():
        command = commands.add_parser(name, help=picture)
        command.add_argument("file", help=file)
        command.add_argument("-o", "--output", help="the picture (default: FILE with the ending .png)")
    run = commands.add_parser("run", help="losses of training runs against the step")
    run.add_argument("directories", nargs="+", help="folders that `deltanet train --out DIR` made")
    run.add_argument("-o", "--output", help="the picture (default: losses.png in the first folder)")
    evaluation = commands.add_parser("eval", help="accuracy against length and depth, loss against position")
    evaluation.add_argument("files", nargs="+", help="what `deltanet eval --json FILE` wrote")
    evaluation.add_argument("-o", "--output", help="the picture (default: the first FILE with the ending .png)")
    args = parser.parse_args(argv)
    try:
        if args.command == "run":
            output = args.output or str(Path(args.directories[0]) / "losses.png")
            names = names_of_runs(args.directories)
            plot_runs({name: load_run(directory) for name, directory in zip(names, args.directories)}, output)
        elif args.command == "eval":
            output = args.output or str(Path(args.files[0]).with_suffix(".png"))
            plot_eval(load_eval(*args.files), output)
        else:
            load, plot, *_ = FILES[args.command]
            output = args.output or str(Path(args.file).with_suffix(".png"))
            plot(load(args.file), output)
    except PlotError as error:
        print(f"plots: {error}", file=sys.stderr)
        return 1
    print(output)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Pictures of what the program wrote: ``python -m deltanet.plots --help`` lists them."""

from .evaluations import load_eval, plot_eval
from .kernels import load_kernels, plot_kernels
from .mqar import load_mqar, plot_mqar
from .recall import plot_recall
from .regression import load_regression, plot_regression
from .runs import load_run, names_of_runs, plot_runs
from .style import PlotError

__all__ = [
    "PlotError",
    "load_eval",
    "load_kernels",
    "load_mqar",
    "load_regression",
    "load_run",
    "names_of_runs",
    "plot_eval",
    "plot_kernels",
    "plot_mqar",
    "plot_recall",
    "plot_regression",
    "plot_runs",
]

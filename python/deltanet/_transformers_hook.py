"""Registers our models with transformers when it is imported, so that ``import deltanet`` imports neither it nor torch.

A finder in sys.meta_path waits for the two modules of transformers that hold the tables. It finds nothing itself: it
lets Python find the module and runs one more function after the module's own code.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import warnings


def _register_configs():
    from .models import registration

    registration.register_configs()


def _register_models():
    if importlib.util.find_spec("torch") is not None:
        from .models import registration

        registration.register_models()


_ACTIONS = {
    "transformers.models.auto.configuration_auto": _register_configs,
    "transformers.models.auto.modeling_auto": _register_models,
}


def _run(action):
    try:
        action()
    except Exception as error:  # a transformers that these models do not fit must stay usable without them
        warnings.warn(f"deltanet.models: not registered with transformers: {error}", RuntimeWarning, stacklevel=2)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        action = _ACTIONS.get(name)
        if action is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module):
                execute(module)
                _run(action)

            spec.loader.exec_module = execute_and_register
        return spec


def install() -> None:
    """Registers now what is imported already, and the rest when it is."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder())
    for name, action in _ACTIONS.items():
        if name in sys.modules:
            _run(action)

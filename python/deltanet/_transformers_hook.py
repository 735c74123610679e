"""Registers our models with transformers when it is imported, so that ``import deltanet`` imports neither it nor torch.

A finder in sys.meta_path waits for the modules of transformers that hold the tables, and for those that our models
need: these import each other, ours import them, and registration waits until none is half done. The finder finds
nothing itself: it lets Python find the module and runs one more function after the module's own code.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import warnings

_CONFIGS = "transformers.models.auto.configuration_auto"
_MODELS = "transformers.models.auto.modeling_auto"
_NEEDED = ("transformers.generation.utils", "transformers.modeling_layers", "transformers.modeling_utils")

# Our modules that import transformers, and what each defines last.
_OURS = {"deltanet.models.configuration": "CONFIGS", "deltanet.models.modeling": "MODELS"}

_running: set[str] = set()  # modules whose code is being executed; and "register", while that is


def register():
    """Registers what can be, once nothing that it needs is half imported. Our modules call it at their end."""
    if _running or any(name in sys.modules and not hasattr(sys.modules[name], last) for name, last in _OURS.items()):
        return
    _running.add("register")
    try:
        if _CONFIGS in sys.modules:
            from .models import registration

            registration.register_configs()
            if _MODELS in sys.modules and importlib.util.find_spec("torch") is not None:
                registration.register_models()
    except Exception as error:  # a transformers that these models do not fit must stay usable without them
        warnings.warn(f"deltanet.models: not registered with transformers: {error}", RuntimeWarning, stacklevel=2)
    finally:
        _running.discard("register")


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name not in (_CONFIGS, _MODELS, *_NEEDED):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module):
                _running.add(name)
                try:
                    execute(module)
                finally:
                    _running.discard(name)
                register()

            spec.loader.exec_module = execute_and_register
        return spec


def install() -> None:
    """Registers now what is imported already, and the rest when it is."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
        register()

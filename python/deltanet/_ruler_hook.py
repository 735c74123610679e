"""RULER's tasks in the harness make prompts of a given number of tokens, which they count with transformers' tokenizer
of model_args. With a model that runs here its own tokenizer counts; transformers may not know it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace

from lm_eval.api.task import ConfigurableTask

_counters: dict[str | None, Callable] = {}  # by the name in model_args; None: of the model that was made last


def offer_tokenizer(name: str | None, encode: Callable[[str], list[int]]) -> None:
    """encode counts for tasks whose model_args or metadata name this tokenizer or model, or none at all."""
    _counters[None] = _counters[name] = lambda text: SimpleNamespace(input_ids=encode(text))


def _install():
    download = ConfigurableTask.download

    @functools.wraps(download)
    def download_and_count(self, *args, **kwargs):
        # The modules of tasks that make their own data are executed again and again: the name is replaced where it is
        # used, while it is.
        names = getattr(self.config.custom_dataset, "__globals__", {})
        theirs = names.get("get_tokenizer")
        if theirs is None:
            return download(self, *args, **kwargs)

        def get_tokenizer(tokenizer=None, pretrained=None, **others):
            name = tokenizer or pretrained
            return _counters[name] if name in _counters else theirs(tokenizer, pretrained, **others)

        names["get_tokenizer"] = get_tokenizer
        try:
            return download(self, *args, **kwargs)
        finally:
            names["get_tokenizer"] = theirs

    ConfigurableTask.download = download_and_count


_install()

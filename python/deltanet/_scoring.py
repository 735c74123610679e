"""Log-likelihoods of many continuations: the engine packs them, and reads once what several of them begin with."""

from __future__ import annotations

import numpy as np

from ._batch import IGNORED, integers
from ._core import Error

STATE_BYTES = 512 << 20  # what the copied states of one batch may take


def log_likelihoods(model, contexts, continuations, batch_tokens, on_progress):
    """See Model.loglikelihood. Also tells how many tokens were read."""
    if len(contexts) != len(continuations):
        raise Error(f"continuations: given {len(continuations)}; expected one for each of {len(contexts)} contexts")
    if batch_tokens < 1:
        raise Error(f"batch_tokens: given {batch_tokens}; expected at least 1")
    contexts, continuations = _sequences("contexts", contexts), _sequences("continuations", continuations)
    if not contexts:
        return np.zeros(0), np.zeros(0, dtype=bool), 0
    ids, targets, lengths = [], [], []
    for context, continuation in zip(contexts, continuations):
        ids.extend((context, continuation[:-1]))
        targets.extend((np.full(len(context) - 1, IGNORED), continuation))
        lengths.append(len(context) + len(continuation) - 1)
    ids, targets = (np.concatenate(rows).astype(np.int32) for rows in (ids, targets))
    ends = np.cumsum(lengths)
    values, greedy, tokens = model._core.score(
        ids, targets, [0, *ends.tolist()], int(batch_tokens), STATE_BYTES, on_progress or (lambda count: None)
    )
    # The scores stand at the end of each sequence; where nothing is asked, log p is 0 and greedy False.
    places = [slice(end - len(continuation), end) for end, continuation in zip(ends, continuations)]
    sums = np.array([values[place].sum() for place in places])
    return sums, np.array([bool(greedy[place].all()) for place in places]), tokens


def _sequences(name: str, rows) -> list[np.ndarray]:
    arrays = []
    for i, row in enumerate(rows):
        array = integers(f"{name}[{i}]", row)
        if array.ndim != 1 or array.size == 0:
            raise Error(f"{name}[{i}]: given shape {list(array.shape)}; expected a sequence of at least one token")
        arrays.append(array)
    return arrays

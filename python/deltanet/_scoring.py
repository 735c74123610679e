"""Log-likelihoods of many continuations: batches without padding, and contexts that several of them share read once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from ._batch import IGNORED, integers
from ._core import Error

STATE_BYTES = 512 << 20  # what the copied states of one batch may take


def log_likelihoods(model, contexts, continuations, batch_tokens, on_progress):
    """See Model.loglikelihood."""
    pairs = _Pairs(contexts, continuations)
    if batch_tokens < 1:
        raise Error(f"batch_tokens: given {batch_tokens}; expected at least 1")
    scorer = _Scorer(model, pairs, batch_tokens, on_progress or (lambda count: None))
    alone, shared = [], []
    for group in pairs.groups():
        # A context of one token leaves nothing to read ahead.
        if len(group) > 1 and len(pairs.contexts[group[0]]) > 1:
            shared.append(group)
        else:
            alone.extend(group)
    # Long ones first: a lack of memory shows at once, and batches hold sequences of similar length.
    alone.sort(key=lambda i: -pairs.length(i))
    shared.sort(key=lambda group: -len(pairs.contexts[group[0]]))
    scorer.score_alone(alone)
    scorer.score_shared(shared)
    return scorer.values, scorer.greedy


class _Pairs:
    def __init__(self, contexts, continuations):
        if len(contexts) != len(continuations):
            raise Error(f"continuations: given {len(continuations)}; expected one for each of {len(contexts)} contexts")
        self.contexts = _sequences("contexts", contexts)
        self.continuations = _sequences("continuations", continuations)

    def groups(self) -> Iterable[list[int]]:
        """Places of pairs with the same context."""
        by_context = {}
        for i, context in enumerate(self.contexts):
            by_context.setdefault(context.tobytes(), []).append(i)
        return by_context.values()

    def length(self, i: int) -> int:
        return len(self.contexts[i]) + len(self.continuations[i])


class _Scorer:
    def __init__(self, model, pairs: _Pairs, batch_tokens: int, on_progress: Callable[[int], None]):
        self.model, self.pairs, self.batch_tokens, self.on_progress = model, pairs, batch_tokens, on_progress
        self.max_states = max(1, STATE_BYTES // max(1, model.session().nbytes))
        self.values = np.zeros(len(pairs.contexts))
        self.greedy = np.zeros(len(pairs.contexts), dtype=bool)

    def score_alone(self, places: Sequence[int]) -> None:
        """Context and continuation in one pass."""
        for batch in _batches(places, self.pairs.length, self.batch_tokens, len(places)):
            if self.pairs.length(batch[0]) > self.batch_tokens:
                self._score(self.model.session(), batch, whole=True)
            else:
                self._score(self.model, batch, whole=True)

    def score_shared(self, groups: Sequence[list[int]]) -> None:
        """Contexts first, all but their last token; then the continuations, from copies of the states."""

        def context_length(group):
            return len(self.pairs.contexts[group[0]])

        for batch in _batches(groups, context_length, self.batch_tokens, self.max_states):
            prefixes = self.model.session(len(batch))
            prefixes.read([self.pairs.contexts[group[0]][:-1] for group in batch])
            places = [(i, n) for n, group in enumerate(batch) for i in group]
            for part in _batches(
                places, lambda place: len(self.pairs.continuations[place[0]]), self.batch_tokens, self.max_states
            ):
                self._score(prefixes.copy([n for _, n in part]), [i for i, _ in part], whole=False)

    def _score(self, scorer, batch: Sequence[int], whole: bool) -> None:
        """scorer is the model, or a session that remembers what the rows below leave out."""
        ids, targets, ends = [], [], []
        for i in batch:
            context, continuation = self.pairs.contexts[i], self.pairs.continuations[i]
            before = context if whole else context[-1:]
            ids.extend((before, continuation[:-1]))
            targets.extend((np.full(len(before) - 1, IGNORED), continuation))
            ends.append(len(before) + len(continuation) - 1)
        ids, targets = (np.concatenate(rows).astype(np.int32) for rows in (ids, targets))
        offsets = np.concatenate([[0], np.cumsum(ends)]).tolist()
        if scorer is not self.model and len(batch) == 1:
            values, greedy = self._score_long(scorer, ids, targets)
        else:
            values, greedy = scorer._core.log_probs(ids, targets, offsets)
        for i, end in zip(batch, offsets[1:]):
            of_continuation = slice(end - len(self.pairs.continuations[i]), end)
            self.values[i] = values[of_continuation].sum()
            self.greedy[i] = greedy[of_continuation].all()
        self.on_progress(len(batch))

    def _score_long(self, session, ids, targets):
        """One sequence in blocks, so that its length does not decide how much memory it takes."""
        blocks = []
        for begin in range(0, len(ids), self.batch_tokens):
            block = slice(begin, begin + self.batch_tokens)
            length = len(ids[block])
            blocks.append(session._core.log_probs(ids[block].copy(), targets[block].copy(), [0, length]))
        return tuple(np.concatenate(parts) for parts in zip(*blocks))


def _batches(items: Sequence, length: Callable, most_tokens: int, most_items: int) -> Iterator[list]:
    """Items in order, as many at a time as the limits allow, at least one."""
    batch, tokens = [], 0
    for item in items:
        if batch and (tokens + length(item) > most_tokens or len(batch) == most_items):
            yield batch
            batch, tokens = [], 0
        batch.append(item)
        tokens += length(item)
    if batch:
        yield batch


def _sequences(name: str, rows) -> list[np.ndarray]:
    arrays = []
    for i, row in enumerate(rows):
        array = integers(f"{name}[{i}]", row)
        if array.ndim != 1 or array.size == 0:
            raise Error(f"{name}[{i}]: given shape {list(array.shape)}; expected a sequence of at least one token")
        arrays.append(array)
    return arrays

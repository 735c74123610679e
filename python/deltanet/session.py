"""What a model remembers of some sequences, and how it goes on with them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from . import _core
from ._batch import Batch
from ._core import Error

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Sampling", "Session"]


class Sampling(TypedDict, total=False):
    """How tokens are chosen, and when a sequence ends."""

    temperature: float  # 0, the default, takes the most probable token each time
    top_k: int  # among the k most probable; 0: all
    top_p: float  # among the most probable that together have this probability
    min_p: float  # among those at least this times as probable as the most probable
    # Divides positive logits of tokens that the sequence has read or said before, multiplies negative ones.
    repetition_penalty: float
    seed: int
    # End a sequence after one of these; None: what config.json says; () for never.
    eos_token_id: int | Sequence[int] | None
    vocab_size: int | None  # of the tokenizer: ids from here on, which it does not have, are never chosen


class Session:
    """The state of some sequences, of constant size; made by Model.session.

    A call that is interrupted while it reads leaves the state as it was before. Where Ctrl-C, or an exception of
    on_token, ends a call that says something, each sequence goes on later after the last token that was chosen for it.
    """

    @classmethod
    def _wrap(cls, model, core) -> Session:
        session = cls.__new__(cls)
        session._model, session._core = model, core
        return session

    @property
    def sequences(self) -> int:
        return self._core.sequences

    @property
    def nbytes(self) -> int:
        return self._core.bytes

    def read(self, ids: ArrayLike) -> np.ndarray:
        """Reads more tokens of every sequence; returns the logits after the last of each, [sequences, vocab]."""
        return self._core.read(Batch("ids", ids).lists())

    def log_probs(self, ids: ArrayLike, labels: ArrayLike | None = None):
        """Reads more tokens of every sequence; what Model.log_probs says of them after what the session remembers.

        The first token of each is not predicted: its log_prob is 0. To score what follows a prefix, read() all of the
        prefix but its last token, which comes here.
        """
        batch = Batch("ids", ids)
        values, greedy = self._core.log_probs(batch.flat, batch.targets(labels), batch.offsets)
        return batch.unpack(batch.shifted(values)), batch.unpack(batch.shifted(greedy))

    def generate(
        self,
        ids: ArrayLike | None = None,
        max_new_tokens: int = 128,
        on_token: Callable[[int, int], bool | None] | None = None,
        **sampling: Unpack[Sampling],
    ) -> list[np.ndarray]:
        """Reads the ids and goes on; the new tokens of each sequence. See Model.generate."""
        prompts = [[]] * self.sequences if ids is None else Batch("ids", ids).lists()
        options = _generate_options(self._model._core, max_new_tokens, **sampling)
        return [np.asarray(tokens, dtype=np.int64) for tokens in self._core.generate(prompts, options, on_token)]

    def stream(
        self, ids: ArrayLike | None = None, max_new_tokens: int = 128, **sampling: Unpack[Sampling]
    ) -> Iterator[int]:
        """Reads the ids and goes on: the tokens of generate(), each computed when it is asked for.

        For a session of one sequence. Leaving the iterator leaves the session after the last token it gave, ready for
        more.
        """
        prompt = [] if ids is None else Batch("ids", ids).flat.tolist()
        stream = self._core.stream(prompt, _generate_options(self._model._core, max_new_tokens, **sampling))
        return iter(stream.next, None)

    def copy(self, sequences: Sequence[int] | None = None) -> Session:
        """A session that goes on by itself; sequence i of it remembers what sequences[i] of this one does.

        [0] * 4 gives four continuations of one prefix. None: all sequences as they are.
        """
        chosen = range(self.sequences) if sequences is None else sequences
        return Session._wrap(self._model, self._core.copy([int(i) for i in chosen]))

    def save(self, path: str | bytes | os.PathLike) -> None:
        self._core.save(os.fsencode(path))

    def reset(self) -> None:
        """Forgets everything."""
        self._core.reset()


# ---- from Python's types to those of _core


def checked_seed(seed):
    if not 0 <= int(seed) < 2**64:
        raise Error(f"seed: given {seed}; expected 0 to 2**64 - 1")
    return int(seed)


def end_ids_of(core, eos_token_id):
    if eos_token_id is None:
        return core.end_ids
    return [int(i) for i in np.atleast_1d(np.asarray(eos_token_id, dtype=np.int64))]


def _generate_options(
    core,
    max_new_tokens,
    *,
    temperature=0.0,
    top_k=0,
    top_p=1.0,
    min_p=0.0,
    repetition_penalty=1.0,
    seed=0,
    eos_token_id=None,
    vocab_size=None,
):
    return _core.GenerateOptions.make(
        int(max_new_tokens), float(temperature), int(top_k), float(top_p), float(min_p),
        float(repetition_penalty), checked_seed(seed), end_ids_of(core, eos_token_id), int(vocab_size or 0),
    )  # fmt: skip

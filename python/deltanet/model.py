"""Language models run by the C++ engine: load, logits, scores, generation, training steps.

>>> model = deltanet.Model("checkpoints/pgdn-340m", weights="bf16")
>>> model.logits([[1, 415, 2776]]).shape
(1, 3, 32000)
>>> model.generate([[1, 415, 2776]], max_new_tokens=20, temperature=0.8, top_p=0.95)
>>> for token in model.stream([1, 415, 2776]):
...     print(token)
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from . import _core
from ._batch import Batch
from ._core import Error
from ._scoring import log_likelihoods
from .session import Sampling, Session, checked_seed, end_ids_of
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Model", "Session", "Tokenizer", "TrainStep", "model_presets"]


class TrainStep(NamedTuple):
    """What Model.train_step did."""

    loss: float  # mean over the labels, before the step
    grad_norm: float  # before it was clipped
    skipped: bool  # loss or gradients were not finite: nothing changed


def model_presets() -> list[str]:
    """Names for Model.from_preset, ROW-SIZE."""
    return _core.model_presets()


class Model:
    """A language model.

    path     directory with config.json and model.safetensors (or shards), as transformers and flash-linear-attention
             write it
    weights  type of the matrices: "f32", "bf16", or "int8" (inference only)
    threads  how many threads to use; None: the default of the machine

    Token ids are an array or list [T], [B,T], or a list of sequences of different lengths. Calls from several threads
    wait for each other. Ctrl-C ends a call of the main thread within a fifth of a second: the model is as it was before.
    """

    def __init__(self, path: str | bytes | os.PathLike, weights: str = "f32", threads: int | None = None):
        self._core = _core.Model.load(os.fsencode(path), weights, _threads(threads))

    @classmethod
    def from_preset(cls, name: str, seed: int = 0, weights: str = "f32", threads: int | None = None) -> Model:
        """Random weights in one of the paper's sizes (see model_presets)."""
        return cls._wrap(_core.Model.from_preset(name, checked_seed(seed), weights, _threads(threads)))

    @classmethod
    def from_config(
        cls, config: str | Mapping, seed: int = 0, weights: str = "f32", threads: int | None = None
    ) -> Model:
        """Random weights for a config.json, given as its text or as a dict."""
        text = config if isinstance(config, str) else json.dumps(dict(config))
        return cls._wrap(_core.Model.from_config(text, checked_seed(seed), weights, _threads(threads)))

    @classmethod
    def _wrap(cls, core) -> Model:
        model = cls.__new__(cls)
        model._core = core
        return model

    @property
    def config(self) -> dict:
        """What config.json says."""
        return json.loads(self._core.config_json)

    @property
    def vocab_size(self) -> int:
        return self._core.vocab_size

    @property
    def parameter_count(self) -> int:
        return self._core.parameter_count

    @property
    def parameter_names(self) -> list[str]:
        return self._core.parameter_names

    def parameter(self, name: str) -> np.ndarray:
        """A copy of the values, float32."""
        return self._core.parameter(name)

    def set_parameter(self, name: str, values: ArrayLike) -> None:
        array = np.ascontiguousarray(values, dtype=np.float32)
        expected = self._core.parameter(name).shape
        if array.shape != expected:
            raise Error(f"{name}: given shape {list(array.shape)}; expected {list(expected)}")
        self._core.set_parameter(name, array)

    def logits(self, ids: ArrayLike) -> np.ndarray | list[np.ndarray]:
        """Logits after every token: [T,vocab] for ids [T], [B,T,vocab] for [B,T], a list for a ragged list; float32."""
        batch = Batch("ids", ids)
        return batch.unpack(self._core.logits(batch.flat, batch.offsets))

    def loss(self, ids: ArrayLike, labels: ArrayLike | None = None) -> float:
        """Mean cross entropy of each token given those before it; labels as in loss_and_grads."""
        batch = Batch("ids", ids)
        total, count = self._core.loss(batch.flat, batch.targets(labels), batch.offsets)
        if count == 0:
            raise Error("labels: none is left to predict; expected sequences of two tokens or more, not all -100")
        return total / count

    def loss_and_grads(
        self, ids: ArrayLike, labels: ArrayLike | None = None, recompute: bool = False
    ) -> tuple[float, dict[str, np.ndarray]]:
        """Mean loss and its gradient by parameter name.

        labels     like ids, which they are by default: the token at position t+1 is predicted from position t, as in
                   transformers. -100 leaves a position out
        recompute  keep only the inputs of the layers and compute the rest again: less memory for long sequences
        """
        batch = Batch("ids", ids)
        targets = batch.targets(labels)
        total, count, grads = self._core.loss_and_gradients(batch.flat, targets, batch.offsets, bool(recompute))
        return total / count, grads

    def log_probs(self, ids: ArrayLike, labels: ArrayLike | None = None):
        """log p of each label given the tokens before it, and whether it is the most probable token.

        Two arrays (or lists) shaped like ids, aligned with it: entry t is about the token at t. The first entry of a
        sequence, which nothing predicts, and labels of -100 are 0 and False.
        """
        batch = Batch("ids", ids)
        values, greedy = self._core.log_probs(batch.flat, batch.targets(labels), batch.offsets)
        return batch.unpack(batch.shifted(values)), batch.unpack(batch.shifted(greedy))

    def score(self, ids: ArrayLike) -> np.ndarray | list[np.ndarray]:
        """log p of each token given those before it, shaped like ids; 0 for the first of a sequence. float64."""
        return self.log_probs(ids)[0]

    def loglikelihood(
        self,
        contexts: Sequence[Sequence[int]],
        continuations: Sequence[Sequence[int]],
        batch_tokens: int = 2048,
        on_progress: Callable[[int], None] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """log p of each continuation after its context, and whether it is what the model would say greedily.

        Two lists of N sequences of ids, none of them empty; two arrays [N], float64 and bool. What several of them
        begin with, as the choices of a question do, is read once; all that follows goes on from what the model then
        remembers.

        batch_tokens  about how many tokens go through the model at once
        on_progress   called with the number of continuations that are done since the last call
        """
        values, greedy, _ = log_likelihoods(self, contexts, continuations, batch_tokens, on_progress)
        return values, greedy

    def generate(
        self,
        ids: ArrayLike,
        max_new_tokens: int = 128,
        on_token: Callable[[int, int], bool | None] | None = None,
        **sampling: Unpack[Sampling],
    ) -> np.ndarray | list[np.ndarray]:
        """The ids with what the model says after them, as transformers returns them.

        on_token    called with (sequence, id) for every token as it comes; returning False ends that sequence, an
                    exception the call
        **sampling  see Sampling; greedy by default. Sequences of a batch that end early are filled up with eos_token_id
        """
        batch = Batch("ids", ids)
        new = self.session(len(batch.lengths)).generate(batch.sequences(), max_new_tokens, on_token, **sampling)
        whole = [np.concatenate([old, tokens]) for old, tokens in zip(batch.sequences(), new)]
        if batch.ragged:
            return whole
        longest = max(map(len, whole))
        ends = end_ids_of(self._core, sampling.get("eos_token_id"))
        filled = np.full((len(whole), longest), ends[0] if ends else 0, dtype=np.int64)
        for row, tokens in zip(filled, whole):
            row[: len(tokens)] = tokens
        return filled[0] if batch.single else filled

    def stream(self, ids: ArrayLike, max_new_tokens: int = 128, **sampling: Unpack[Sampling]) -> Iterator[int]:
        """The new tokens of one sequence, each computed when it is asked for; may be left at any of them."""
        return self.session().stream(ids, max_new_tokens, **sampling)

    def session(self, sequences: int = 1) -> Session:
        """What the model remembers of some sequences: nothing yet."""
        return Session._wrap(self, self._core.start(sequences))

    def load_session(self, path: str | bytes | os.PathLike) -> Session:
        """A session as Session.save wrote it, bit for bit; the state of another model is refused."""
        return Session._wrap(self, self._core.load_session(os.fsencode(path)))

    def train_step(
        self,
        ids: ArrayLike,
        labels: ArrayLike | None = None,
        lr: float = 4e-4,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        clip: float = 1.0,
        recompute: bool = False,
    ) -> TrainStep:
        """One step of AdamW on the mean loss of a batch; labels and recompute as in loss_and_grads.

        The defaults are the paper's. The first step makes the moments, which the model keeps, and float32 values for
        bf16 weights, from then on the ones that parameter() and save() give. Gradients of a norm above clip are scaled
        down to it; float("inf") for never.
        """
        batch = Batch("ids", ids)
        beta1, beta2 = betas
        return TrainStep(
            *self._core.train_step(
                batch.flat, batch.targets(labels), batch.offsets, float(lr), (float(beta1), float(beta2)), float(eps),
                float(weight_decay), float(clip), bool(recompute),
            )
        )  # fmt: skip

    @property
    def train_steps(self) -> int:
        """How many train_steps changed the model."""
        return self._core.train_steps

    def save_optimizer(self, path: str | bytes | os.PathLike) -> None:
        """The moments of train_step to a file; with save(), training goes on from there."""
        self._core.save_optimizer(os.fsencode(path))

    def load_optimizer(self, path: str | bytes | os.PathLike) -> None:
        self._core.load_optimizer(os.fsencode(path))

    def save(
        self,
        path: str | bytes | os.PathLike,
        dtype: str = "f32",
        max_shard_bytes: int = 50_000_000_000,
        checksums: bool = True,
    ) -> None:
        """Write a checkpoint that upstream's classes load; dtype is "f32", "bf16" or "f16".

        checksums  put one of each tensor into the metadata of its file, for ``deltanet info --check``. Without them the
                   files are what upstream writes, byte for byte
        """
        self._core.save(os.fsencode(path), dtype, max_shard_bytes, bool(checksums))


# ---- from Python's types to those of _core


def _threads(threads):
    if threads is None:
        return 0
    if isinstance(threads, bool) or not isinstance(threads, (int, np.integer)):
        raise TypeError(f"threads: given {type(threads).__name__}; expected int or None")
    if not 1 <= threads <= 4096:
        raise Error(f"threads: given {threads}; expected a number from 1 to 4096, or None")
    return int(threads)

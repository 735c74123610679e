"""Language models run by the C++ engine: load, logits, gradients, generation.

>>> model = deltanet.Model("checkpoints/pgdn-340m", weights="bf16")
>>> model.logits([[1, 415, 2776]]).shape
(1, 3, 32000)
>>> model.generate([[1, 415, 2776]], max_new_tokens=20, temperature=0.8, top_p=0.95)
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from . import _core
from ._core import Error

__all__ = ["Model", "Session", "Tokenizer", "model_presets"]

IGNORED = -100  # a label that is left out of the loss


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
    wait for each other.
    """

    def __init__(self, path: str | os.PathLike, weights: str = "f32", threads: int | None = None):
        self._core = _core.Model.load(os.fspath(path), weights, _threads(threads))

    @classmethod
    def from_preset(cls, name: str, seed: int = 0, weights: str = "f32", threads: int | None = None) -> Model:
        """Random weights in one of the paper's sizes (see model_presets)."""
        return cls._wrap(_core.Model.from_preset(name, _seed(seed), weights, _threads(threads)))

    @classmethod
    def from_config(
        cls, config: str | Mapping, seed: int = 0, weights: str = "f32", threads: int | None = None
    ) -> Model:
        """Random weights for a config.json, given as its text or as a dict."""
        text = config if isinstance(config, str) else json.dumps(dict(config))
        return cls._wrap(_core.Model.from_config(text, _seed(seed), weights, _threads(threads)))

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
        batch = _Batch("ids", ids)
        return batch.unpack(self._core.logits(batch.flat, batch.offsets))

    def loss(self, ids: ArrayLike, labels: ArrayLike | None = None) -> float:
        """Mean cross entropy of each token given those before it; labels as in loss_and_grads."""
        batch = _Batch("ids", ids)
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
        batch = _Batch("ids", ids)
        targets = batch.targets(labels)
        total, count, grads = self._core.loss_and_gradients(batch.flat, targets, batch.offsets, bool(recompute))
        return total / count, grads

    def log_probs(self, ids: ArrayLike, labels: ArrayLike | None = None):
        """log p of each label given the tokens before it, and whether it is the most probable token.

        Two arrays (or lists) shaped like ids, aligned with it: entry t is about the token at t. The first entry of a
        sequence, which nothing predicts, and labels of -100 are 0 and False.
        """
        batch = _Batch("ids", ids)
        values, greedy = self._core.log_probs(batch.flat, batch.targets(labels), batch.offsets)
        return batch.unpack(batch.shifted(values)), batch.unpack(batch.shifted(greedy))

    def generate(
        self,
        ids: ArrayLike,
        max_new_tokens: int = 128,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int = 0,
        eos_token_id: int | Sequence[int] | None = None,
        on_token: Callable[[int, int], bool | None] | None = None,
    ) -> np.ndarray | list[np.ndarray]:
        """The ids with what the model says after them, as transformers returns them.

        temperature   0 takes the most probable token each time
        eos_token_id  end a sequence after one of these; None: what config.json says; () for never. Sequences of a batch
                      that end early are filled up with it
        on_token      called with (sequence, id) for every token as it comes; returning False ends that sequence
        """
        batch = _Batch("ids", ids)
        new = self.session(len(batch.lengths)).generate(
            batch.sequences(), max_new_tokens, temperature, top_k, top_p, min_p, repetition_penalty, seed,
            eos_token_id, on_token,
        )  # fmt: skip
        whole = [np.concatenate([old, tokens]) for old, tokens in zip(batch.sequences(), new)]
        if batch.ragged:
            return whole
        longest = max(map(len, whole))
        ends = _end_ids(self._core, eos_token_id)
        filled = np.full((len(whole), longest), ends[0] if ends else 0, dtype=np.int64)
        for row, tokens in zip(filled, whole):
            row[: len(tokens)] = tokens
        return filled[0] if batch.single else filled

    def session(self, sequences: int = 1) -> Session:
        """What the model remembers of some sequences: nothing yet."""
        return Session._wrap(self, self._core.start(sequences))

    def load_session(self, path: str | os.PathLike) -> Session:
        """A session as Session.save wrote it, bit for bit; the state of another model is refused."""
        return Session._wrap(self, self._core.load_session(os.fspath(path)))

    def save(self, path: str | os.PathLike, dtype: str = "f32", max_shard_bytes: int = 50_000_000_000) -> None:
        """Write a checkpoint that upstream's classes load; dtype is "f32", "bf16" or "f16"."""
        self._core.save(os.fspath(path), dtype, max_shard_bytes)


class Session:
    """The state of some sequences, of constant size; made by Model.session."""

    @classmethod
    def _wrap(cls, model: Model, core) -> Session:
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
        return self._core.read(_Batch("ids", ids).lists())

    def generate(
        self,
        ids: ArrayLike | None = None,
        max_new_tokens: int = 128,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int = 0,
        eos_token_id: int | Sequence[int] | None = None,
        on_token: Callable[[int, int], bool | None] | None = None,
    ) -> list[np.ndarray]:
        """Reads the ids and goes on; the new tokens of each sequence. See Model.generate."""
        prompts = [[]] * self.sequences if ids is None else _Batch("ids", ids).lists()
        options = _core.GenerateOptions.make(
            int(max_new_tokens), float(temperature), int(top_k), float(top_p), float(min_p),
            float(repetition_penalty), _seed(seed), _end_ids(self._model._core, eos_token_id),
        )  # fmt: skip
        return [np.asarray(tokens, dtype=np.int64) for tokens in self._core.generate(prompts, options, on_token)]

    def save(self, path: str | os.PathLike) -> None:
        self._core.save(os.fspath(path))

    def reset(self) -> None:
        """Forgets everything."""
        self._core.reset()


class Tokenizer:
    """tokenizer.json or tokenizer.model of a file or directory; Tokenizer.bytes() for plain bytes."""

    def __init__(self, path: str | os.PathLike):
        self._core = _core.load_tokenizer(os.fspath(path))

    @classmethod
    def bytes(cls) -> Tokenizer:
        tokenizer = cls.__new__(cls)
        tokenizer._core = _core.byte_tokenizer()
        return tokenizer

    def encode(self, text: str | bytes, add_special: bool = False) -> list[int]:
        return self._core.encode(text, add_special)

    def decode(self, ids: Sequence[int], skip_special: bool = True, errors: str = "replace") -> str:
        """The text; bytes that are not UTF-8 are handled as str's decode does with `errors`."""
        return self._core.decode([int(i) for i in ids], skip_special).decode("utf-8", errors)

    @property
    def vocab_size(self) -> int:
        return self._core.vocab_size

    @property
    def bos_token_id(self) -> int | None:
        return self._core.bos

    @property
    def eos_token_id(self) -> int | None:
        return self._core.eos


# ---- from Python's types to those of _core


def _threads(threads):
    if threads is None:
        return 0
    if isinstance(threads, bool) or not isinstance(threads, (int, np.integer)):
        raise TypeError(f"threads: given {type(threads).__name__}; expected int or None")
    if not 1 <= threads <= 4096:
        raise Error(f"threads: given {threads}; expected a number from 1 to 4096, or None")
    return int(threads)


def _seed(seed):
    if not 0 <= int(seed) < 2**64:
        raise Error(f"seed: given {seed}; expected 0 to 2**64 - 1")
    return int(seed)


def _end_ids(core, eos_token_id):
    if eos_token_id is None:
        return core.end_ids
    return [int(i) for i in np.atleast_1d(np.asarray(eos_token_id, dtype=np.int64))]


def _integers(name, values):
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"{name}: given an array of {array.dtype}; expected integers")
    if array.size and (array.max() >= 2**31 or array.min() < -(2**31)):
        raise Error(f"{name}: given numbers beyond 32 bits; expected token ids")
    return array.astype(np.int32)


class _Batch:
    """Sequences of ids in one array, with what is needed to shape results like the input."""

    def __init__(self, name, ids):
        self.name = name
        self.ragged = isinstance(ids, (list, tuple)) and bool(ids) and _lengths_differ(ids)
        if self.ragged:
            rows = [_integers(name, row) for row in ids]
            if any(row.ndim != 1 for row in rows):
                raise Error(f"{name}: expected a list of sequences")
            self.single = False
        else:
            array = _integers(name, ids)
            if array.ndim not in (1, 2):
                raise Error(f"{name}: given shape {list(array.shape)}; expected [T], [B,T] or a list of sequences")
            self.single = array.ndim == 1
            rows = list(array[None] if self.single else array)
        if not rows or any(len(row) == 0 for row in rows):
            raise Error(f"{name}: given an empty sequence; expected at least one token in each")
        self.lengths = [len(row) for row in rows]
        self.offsets = np.concatenate([[0], np.cumsum(self.lengths)]).tolist()
        self.flat = np.ascontiguousarray(np.concatenate(rows), dtype=np.int32)

    def sequences(self):
        return [self.flat[a:b] for a, b in zip(self.offsets, self.offsets[1:])]

    def lists(self):
        return [row.tolist() for row in self.sequences()]

    def targets(self, labels):
        """What should follow each token: the label of the next position."""
        labels = self if labels is None else _Batch("labels", labels)
        if labels.lengths != self.lengths:
            raise Error(f"labels: given lengths {labels.lengths}; expected those of {self.name}, {self.lengths}")
        targets = np.append(labels.flat[1:], IGNORED).astype(np.int32)
        targets[np.asarray(self.offsets[1:]) - 1] = IGNORED
        return targets

    def shifted(self, values):
        """Values about the next token, moved to that token."""
        moved = np.zeros_like(values)
        moved[1:] = values[:-1]
        return moved

    def unpack(self, flat):
        if self.ragged:
            return [flat[a:b] for a, b in zip(self.offsets, self.offsets[1:])]
        shape = (len(self.lengths), self.lengths[0], *flat.shape[1:])
        return flat.reshape(shape)[0] if self.single else flat.reshape(shape)


def _lengths_differ(rows):
    lengths = {len(row) if hasattr(row, "__len__") else None for row in rows}
    return len(lengths) > 1

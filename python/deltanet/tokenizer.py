"""Text to token ids and back, by the C++ engine."""

from __future__ import annotations

import os
from collections.abc import Sequence

from . import _core
from ._core import Error

__all__ = ["Tokenizer"]


class Tokenizer:
    """tokenizer.json or tokenizer.model of a file or directory; Tokenizer.bytes() for plain bytes."""

    def __init__(self, path: str | bytes | os.PathLike):
        self._core = _core.load_tokenizer(os.fsencode(path))

    @classmethod
    def bytes(cls) -> Tokenizer:
        tokenizer = cls.__new__(cls)
        tokenizer._core = _core.byte_tokenizer()
        return tokenizer

    def encode(self, text: str | bytes, add_special: bool = False) -> list[int]:
        """The ids of a text. One with halves of surrogate pairs is refused: tokenizers know characters only."""
        try:
            return self._core.encode(text, add_special)
        except UnicodeEncodeError as error:
            raise ValueError(
                f"text: character {error.start} is half of a surrogate pair, which is no character; expected text as "
                'text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") makes it, or bytes'
            ) from None

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


def tokenizer_of(model, directory: str | os.PathLike | None, given: Tokenizer | str | os.PathLike | None) -> Tokenizer:
    """The tokenizer of a model: the one given, by itself or by its path, "bytes", or that of the model's directory."""
    if isinstance(given, Tokenizer):
        tokenizer = given
    elif given == "bytes":
        tokenizer = Tokenizer.bytes()
    elif given is not None:
        tokenizer = Tokenizer(given)
    elif directory is not None and any(
        os.path.exists(os.path.join(directory, name)) for name in ("tokenizer.json", "tokenizer.model")
    ):
        tokenizer = Tokenizer(directory)
    elif model.vocab_size == 256:  # without a tokenizer this can only be bytes
        tokenizer = Tokenizer.bytes()
    else:
        raise Error(
            f"tokenizer: {directory or 'the model'} has neither tokenizer.json nor tokenizer.model; expected "
            "tokenizer=PATH, or tokenizer=bytes for a model of bytes"
        )
    if tokenizer.vocab_size > model.vocab_size:
        raise Error(
            f"tokenizer: has {tokenizer.vocab_size} tokens; expected at most {model.vocab_size}, "
            "the vocabulary of the model"
        )
    return tokenizer

"""Token ids in the forms that users have them, as the flat arrays that _core takes."""

from __future__ import annotations

import numpy as np

from ._core import Error

IGNORED = -100  # a label that is left out of the loss


def integers(name, values):
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"{name}: given an array of {array.dtype}; expected integers")
    if array.size and (array.max() >= 2**31 or array.min() < -(2**31)):
        raise Error(f"{name}: given numbers beyond 32 bits; expected token ids")
    return array.astype(np.int32)


class Batch:
    """Sequences of ids in one array, with what is needed to shape results like the input."""

    def __init__(self, name, ids):
        self.name = name
        self.ragged = isinstance(ids, (list, tuple)) and bool(ids) and _lengths_differ(ids)
        if self.ragged:
            rows = [integers(name, row) for row in ids]
            if any(row.ndim != 1 for row in rows):
                raise Error(f"{name}: expected a list of sequences")
            self.single = False
        else:
            array = integers(name, ids)
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
        labels = self if labels is None else Batch("labels", labels)
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

"""RWKV-7's layer between two recurrences."""

from __future__ import annotations

import torch
from torch import Tensor


def channel_mixing_rwkv7(
    x: Tensor, x_prev: Tensor, x_k: Tensor, key_weight: Tensor, value_weight: Tensor, inplace: bool = True
) -> tuple[Tensor, Tensor]:
    """relu(m key_weight)^2 value_weight, where m = x + (the token before - x) x_k, of x [B,T,D] with the token before
    the first in x_prev [B,D] or [B,1,D]. Returns it and, as upstream does, the last entry of the batch. inplace saves
    memory on a GPU."""
    before = torch.cat([x_prev.reshape(x.shape[0], 1, x.shape[2]), x[:, :-1]], dim=1)
    mixed = x.addcmul(before - x, x_k)
    return torch.relu(mixed @ key_weight).square() @ value_weight, x[-1, :]

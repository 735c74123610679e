"""The option use_l2warp: logits that pull towards zero while they are trained."""

from __future__ import annotations

import torch

PENALTY = 1e-4  # upstream's


def l2_warp(loss: torch.Tensor, logits: torch.Tensor, num_items_in_batch=None) -> torch.Tensor:
    """The loss as it is, with PENALTY / (B T) times the largest logit of each token added to this logit's gradient.

    logits [B,T,vocabulary]. As upstream has it, num_items_in_batch divides this term as it divides the loss.
    """
    weight = PENALTY / logits.shape[:-1].numel()
    if num_items_in_batch is not None:
        weight = weight / float(num_items_in_batch)
    return _L2Warp.apply(loss, logits, weight)


class _L2Warp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, loss, logits, weight):
        largest, places = logits.max(dim=-1, keepdim=True)
        ctx.save_for_backward(largest * weight, places)
        ctx.shape = logits.shape
        return loss.clone()

    @staticmethod
    def backward(ctx, dloss):
        pull, places = ctx.saved_tensors
        return dloss, pull.new_zeros(ctx.shape).scatter_(-1, places, (pull * dloss).to(pull.dtype)), None

"""Layers of delta-rule language models as torch modules, with upstream's parameter names. Needs torch.

The six mixers are settings of :class:`DeltaMixer`:

>>> from deltanet.layers import PrecondGatedDeltaNet
>>> layer = PrecondGatedDeltaNet(hidden_size=64, num_heads=2, head_dim=32, expand_v=1.0, use_gate=False)
>>> layer(torch.randn(1, 100, 64))[0].shape
torch.Size([1, 100, 64])
"""

from .attention import Attention
from .block import Block
from .cache import RecurrentCache
from .mixer import DeltaMixer
from .mixers import DeltaNet, GatedDeltaNet, KimiDeltaAttention, PrecondDeltaNet, PrecondGatedDeltaNet, PrecondKDA
from .modules import GatedRMSNorm, RMSNorm, ShortConvolution, SwiGLU

__all__ = [
    "Attention",
    "Block",
    "DeltaMixer",
    "DeltaNet",
    "GatedDeltaNet",
    "GatedRMSNorm",
    "KimiDeltaAttention",
    "PrecondDeltaNet",
    "PrecondGatedDeltaNet",
    "PrecondKDA",
    "RMSNorm",
    "RecurrentCache",
    "ShortConvolution",
    "SwiGLU",
]

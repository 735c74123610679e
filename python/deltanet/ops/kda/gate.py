"""The log decay of KDA, under the name and in the place that it has upstream."""

from .._gates import fused_kda_gate

__all__ = ["fused_kda_gate"]

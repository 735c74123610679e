"""The log decay of Gated DeltaNet, under the name and in the place that it has upstream."""

from .._gates import fused_gdn_gate

__all__ = ["fused_gdn_gate"]

"""Log decays from logits, as models compute them in front of the recurrences."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .._core import Error
from ._checks import check_tensor


def fused_gdn_gate(
    g: Tensor,
    A_log: Tensor,
    dt_bias: Tensor | None = None,
    output_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """-exp(A_log) softplus(g + dt_bias) of g [...,HV] with A_log and dt_bias [HV], computed in float32."""
    check_tensor("g", g)
    check_tensor("A_log", A_log, g.shape[-1:], "[HV]")
    g = g.float()
    if dt_bias is not None:
        check_tensor("dt_bias", dt_bias, g.shape[-1:], "[HV]")
        g = g + dt_bias.float()
    return (-A_log.float().exp() * F.softplus(g)).to(output_dtype)


def fused_kda_gate(
    g: Tensor,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    lower_bound: float | None = None,
    output_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """-exp(A_log) softplus(g + dt_bias) of g [...,HV,K] with HV numbers in A_log and HV*K in dt_bias, computed in
    float32; or with a lower bound lower_bound sigmoid(exp(A_log) (g + dt_bias)), where A_log may be absent."""
    check_tensor("g", g)
    if g.dim() < 2:
        raise Error(f"g: given shape {list(g.shape)}; expected [...,HV,K]")
    heads, width = g.shape[-2:]
    g = g.float()
    if dt_bias is not None:
        check_tensor("dt_bias", dt_bias)
        if dt_bias.numel() != heads * width:
            raise Error(f"dt_bias: given shape {list(dt_bias.shape)}; expected [HV*K] = [{heads * width}]")
        g = g + dt_bias.float().reshape(heads, width)
    rate = None
    if A_log is not None or lower_bound is None:
        check_tensor("A_log", A_log)
        if A_log.numel() != heads:
            raise Error(f"A_log: given shape {list(A_log.shape)}; expected [HV] = [{heads}]")
        rate = A_log.float().exp().reshape(heads, 1)
    if lower_bound is None:
        return (-rate * F.softplus(g)).to(output_dtype)
    return (lower_bound * torch.sigmoid(g if rate is None else rate * g)).to(output_dtype)

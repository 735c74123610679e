"""One mixer for every delta rule: what a row needs decides its projections. mixers.py has upstream's six classes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from .. import ops
from .cache import RecurrentCache, states_of
from .modules import GatedRMSNorm, RMSNorm, ShortConvolution, initialize
from .packing import pack, refuse_unknown, unpack


@dataclass(frozen=True)
class Row:
    """What tells the recurrences apart, from the side of their layer."""

    operator: str  # ops.chunk_* and ops.fused_recurrent_*
    decay: str  # "none", "scalar" for each value head, "diagonal" for each of its key dimensions
    preconditioned: bool
    # Upstream's PKDA repeats q, k and beta for each value head, has one preconditioner for each of them, and calls the
    # projection of the preconditioner's decay a_proj.
    repeats_keys: bool = False


ROWS = {
    "delta_net": Row("delta_rule", "none", False),
    "gdn": Row("gated_delta_rule", "scalar", False),
    "kda": Row("kda", "diagonal", False),
    "pdn": Row("precond_delta_rule", "none", True),
    "pgdn": Row("precond_gated_delta_rule", "scalar", True),
    "pkda": Row("precond_kda", "diagonal", True, repeats_keys=True),
}
OUTPUT_GATES = (None, "swish", "silu", "sigmoid", "low_rank")
MODES = ("chunk", "fused_recurrent")


class DeltaMixer(nn.Module):
    """q, k, v = silu(conv(proj x)); the row's recurrence with normalized q and k; a norm of each head; gate; o_proj.

    row               a key of ROWS
    hidden_size       D: x and the result are [B,T,D]
    num_heads         key heads of size head_dim
    num_v_heads       value heads of size head_v_dim; None: num_heads
    output_gate       None, "swish", "silu" or "sigmoid" of a projection, or "low_rank": sigmoid through a bottleneck
    conv_size         width of the convolution; 0: none
    allow_neg_eigval  beta from 0 to 2
    mode              form of the recurrence where there is a choice: "chunk" or "fused_recurrent"
    layer_idx         key of this layer in a cache
    """

    def __init__(
        self,
        row: str,
        hidden_size: int,
        num_heads: int,
        head_dim: int,
        head_v_dim: int,
        num_v_heads: int | None = None,
        output_gate: str | None = None,
        conv_size: int = 4,
        conv_bias: bool = False,
        allow_neg_eigval: bool = False,
        norm_eps: float = 1e-5,
        squash_x: float = 1.5,
        squash_eps: float = 1e-6,
        log_atk_scale_init: float = -0.2,
        a_log_init_lower: float | None = None,
        mode: str = "chunk",
        layer_idx: int | None = None,
    ):
        super().__init__()
        num_v_heads = num_v_heads or num_heads
        for name, value, choices in (
            ("row", row, ROWS),
            ("output_gate", output_gate, OUTPUT_GATES),
            ("mode", mode, MODES),
        ):
            if value not in choices:
                raise ValueError(f"{name}: given {value!r}; expected one of {', '.join(map(repr, choices))}")
        if num_v_heads % num_heads != 0:
            raise ValueError(f"num_v_heads: given {num_v_heads}; expected a multiple of num_heads = {num_heads}")
        self.row, self.mode, self.layer_idx = ROWS[row], mode, layer_idx
        self.num_heads, self.num_v_heads = num_heads, num_v_heads
        self.head_dim, self.head_v_dim = head_dim, head_v_dim
        self.allow_neg_eigval, self.low_rank_gate = allow_neg_eigval, output_gate == "low_rank"
        self.squash_x, self.squash_eps, self.log_atk_scale_init = squash_x, squash_eps, log_atk_scale_init
        self.a_init_lower = float(self.row.decay == "diagonal") if a_log_init_lower is None else a_log_init_lower

        def linear(out, bias=False, inputs=hidden_size):
            return nn.Linear(inputs, out, bias=bias)

        def low_rank(out, bias):
            return nn.Sequential(linear(head_v_dim), linear(out, bias, head_v_dim))

        self.key_dim, self.value_dim = key_width, value_width = num_heads * head_dim, num_v_heads * head_v_dim
        atk_heads = num_v_heads if self.row.repeats_keys else num_heads
        self.q_proj, self.k_proj, self.v_proj = linear(key_width), linear(key_width), linear(value_width)
        self.b_proj = linear(num_heads if self.row.repeats_keys else num_v_heads)
        if self.row.decay == "scalar":
            self.a_proj = linear(num_v_heads)
        elif self.row.decay == "diagonal":
            self.f_proj = low_rank(num_v_heads * head_dim, bias=False)
        if self.row.decay != "none":
            self.A_log = nn.Parameter(torch.empty(num_v_heads))
            self.dt_bias = nn.Parameter(torch.empty(num_v_heads * (head_dim if self.row.decay == "diagonal" else 1)))
        if self.row.preconditioned:
            self.add_module("a_proj" if self.row.repeats_keys else "a_atk_proj", linear(atk_heads))
            self.b_atk_proj = linear(atk_heads)
            self.A_log_atk = nn.Parameter(torch.empty(atk_heads))
            self.dt_bias_atk = nn.Parameter(torch.empty(atk_heads))
            self.log_atk_scale = nn.Parameter(torch.empty(atk_heads))
        self.has_convolutions = conv_size > 0
        if self.has_convolutions:
            self.q_conv1d = ShortConvolution(key_width, conv_size, conv_bias)
            self.k_conv1d = ShortConvolution(key_width, conv_size, conv_bias)
            self.v_conv1d = ShortConvolution(value_width, conv_size, conv_bias)
        if output_gate is None:
            self.g_proj, self.o_norm = None, RMSNorm(head_v_dim, norm_eps)
        elif self.low_rank_gate:
            self.g_proj, self.o_norm = low_rank(value_width, bias=True), GatedRMSNorm(head_v_dim, norm_eps, "sigmoid")
        else:
            self.g_proj, self.o_norm = linear(value_width), GatedRMSNorm(head_v_dim, norm_eps, output_gate)
        self.o_proj = linear(hidden_size, inputs=value_width)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Starts the decays: A uniform in [a_log_init_lower, 16], softplus(dt_bias) log-uniform in [0.001, 0.1]."""

        def log_uniform_a(parameter):
            return torch.empty_like(parameter).uniform_(self.a_init_lower, 16).clamp(min=1e-6).log()

        def inverse_softplus_dt(parameter):
            dt = torch.empty_like(parameter).uniform_(math.log(1e-3), math.log(0.1)).exp()
            return dt + torch.log(-torch.expm1(-dt))

        for suffix in ("", "_atk"):
            if hasattr(self, "A_log" + suffix):
                initialize(getattr(self, "A_log" + suffix), log_uniform_a)
                initialize(getattr(self, "dt_bias" + suffix), inverse_softplus_dt)
        if self.row.preconditioned:
            initialize(self.log_atk_scale, lambda parameter: torch.full_like(parameter, self.log_atk_scale_init))

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        past_key_values: RecurrentCache | None = None,
        use_cache: bool = False,
        output_attentions: bool | None = False,
        cu_seqlens: torch.Tensor | None = None,
        cu_seq_lens_q: torch.Tensor | None = None,
        seq_idx: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        **others,
    ):
        """[B,T,D] to [B,T,D]; returns (result, None, past_key_values) as upstream's layers do.

        attention_mask [B,T] has zeros for padding, on any side. cu_seqlens [N+1] packs sequences into rows, or another
        of transformers' names for their boundaries does: see packing.pack. There are no attention weights to return.
        """
        refuse_unknown(f"{type(self).__name__}.forward", {"output_attentions": output_attentions, **others})
        B, T = hidden_states.shape[:2]
        hidden_states, cu_seqlens, places = pack(
            hidden_states, attention_mask, cu_seqlens, cu_seq_lens_q, seq_idx, position_ids
        )
        states = states_of(self, past_key_values, B if cu_seqlens is None else len(cu_seqlens) - 1)
        keep = bool(use_cache) and past_key_values is not None

        q, k, v, conv_states = self._convolved(hidden_states, states, keep, cu_seqlens)
        o, final = self._recur(hidden_states, q, k, v, states, keep, cu_seqlens)
        if keep:
            past_key_values[self.layer_idx] = {**final, **conv_states}
        if self.g_proj is None:
            o = self.o_norm(o)
        else:
            o = self.o_norm(o, self.g_proj(hidden_states).unflatten(-1, (self.num_v_heads, self.head_v_dim)))
        return unpack(self.o_proj(o.flatten(-2)), places, B, T), None, past_key_values

    def _convolved(self, x, states, keep, cu_seqlens):
        """q, k [B,T,H,K], v [B,T,U,V] and the last inputs of their convolutions."""
        parts, kept = [], {}
        for name, heads in (("q", self.num_heads), ("k", self.num_heads), ("v", self.num_v_heads)):
            part = getattr(self, name + "_proj")(x)
            if self.has_convolutions:
                state = states.get(name + "_conv")
                part, kept[name + "_conv"] = getattr(self, name + "_conv1d")(part, state, keep, cu_seqlens)
            else:
                part = F.silu(part)
            parts.append(part.unflatten(-1, (heads, -1)))
        return *parts, kept

    def _recur(self, x, q, k, v, states, keep, cu_seqlens):
        """o [B,T,U,V] and the final states."""
        row = self.row
        beta = self.b_proj(x).float().sigmoid()
        if self.allow_neg_eigval:
            beta = beta * 2
        if row.repeats_keys and self.num_v_heads > self.num_heads:
            group = self.num_v_heads // self.num_heads
            q, k, beta = (tensor.repeat_interleave(group, dim=2) for tensor in (q, k, beta))
        arguments = dict(q=q, k=k, v=v, beta=beta, initial_state=states.get("S"), output_final_state=keep)
        arguments.update(cu_seqlens=cu_seqlens, use_qk_l2norm_in_kernel=True)
        if row.decay == "scalar":
            arguments["g"] = _decay(self.a_proj(x), self.A_log, self.dt_bias)
        elif row.decay == "diagonal":
            logits = self.f_proj(x).unflatten(-1, (self.num_v_heads, self.head_dim))
            arguments["g"] = _decay(logits, self.A_log[:, None], self.dt_bias.view(self.num_v_heads, self.head_dim))
        if row.preconditioned:
            a_atk_proj = self.a_proj if row.repeats_keys else self.a_atk_proj
            arguments.update(
                g_atk=_decay(a_atk_proj(x), self.A_log_atk, self.dt_bias_atk),
                beta_atk=self.b_atk_proj(x).float().sigmoid(),
                log_atk_scale=self.log_atk_scale.float(),
                initial_A_state=states.get("A"),
                x=self.squash_x,
                eps=self.squash_eps,
            )
        # One token is one step of the recurrence. For more, chunks win; and only they are worth a backward pass.
        recurrent = not torch.is_grad_enabled() and (x.shape[1] == 1 or self.mode == "fused_recurrent")
        operator = getattr(ops, ("fused_recurrent_" if recurrent else "chunk_") + row.operator)
        o, *final = operator(**arguments)
        return o, dict(zip(("S", "A"), final))


def _decay(logits, a_log, dt_bias):
    """g = -exp(A_log) softplus(logits + dt_bias), a log decay."""
    return -a_log.float().exp() * F.softplus(logits.float() + dt_bias.float())

"""Upstream's layer classes and their arguments, as settings of the one mixer."""

from __future__ import annotations

from .mixer import DeltaMixer


def whole(name: str, factor: float, size: float) -> int:
    """A head size, which a factor of a config must make whole."""
    if abs(size - round(size)) > 1e-5 * size:
        raise ValueError(f"{name}: given {factor}; expected a factor that gives whole head sizes, not {size}")
    return round(size)


class _HeadDimMixer(DeltaMixer):
    """What the classes share whose heads have the size head_dim for keys and head_dim * expand_v for values."""

    row_name: str

    def __init__(self, hidden_size, expand_v, head_dim, num_heads, use_short_conv=True, conv_size=4, **options):
        super().__init__(
            self.row_name,
            hidden_size,
            num_heads,
            head_dim,
            whole("expand_v", expand_v, head_dim * expand_v),
            conv_size=conv_size if use_short_conv else 0,
            **options,
        )


class _OptionalGateMixer(_HeadDimMixer):
    def __init__(
        self,
        hidden_size: int = 2048,
        expand_v: float = 2.0,
        head_dim: int = 256,
        num_heads: int = 6,
        use_gate: bool = True,
        output_gate_activation: str = "swish",
        **options,
    ):
        options["output_gate"] = output_gate_activation if use_gate else None
        super().__init__(hidden_size, expand_v, head_dim, num_heads, **options)
        self.output_gate_activation = output_gate_activation


class _LowRankGateMixer(_HeadDimMixer):
    def __init__(
        self, hidden_size: int = 2048, expand_v: float = 1.0, head_dim: int = 128, num_heads: int = 16, **options
    ):
        super().__init__(hidden_size, expand_v, head_dim, num_heads, output_gate="low_rank", **options)


class DeltaNet(DeltaMixer):
    """DeltaNet. Head sizes are shares of hidden_size; there are no grouped heads."""

    def __init__(
        self,
        hidden_size: int = 1024,
        expand_k: float = 1.0,
        expand_v: float = 1.0,
        num_heads: int = 4,
        use_gate: bool = False,
        use_short_conv: bool = True,
        conv_size: int = 4,
        **options,
    ):
        super().__init__(
            "delta_net",
            hidden_size,
            num_heads,
            whole("expand_k", expand_k, hidden_size * expand_k / num_heads),
            whole("expand_v", expand_v, hidden_size * expand_v / num_heads),
            output_gate="swish" if use_gate else None,
            conv_size=conv_size if use_short_conv else 0,
            **options,
        )


class GatedDeltaNet(_OptionalGateMixer):
    """Gated DeltaNet: one decay for each value head."""

    row_name = "gdn"


class KimiDeltaAttention(_LowRankGateMixer):
    """KDA: a decay for each key dimension of each value head."""

    row_name = "kda"


class PrecondDeltaNet(_OptionalGateMixer):
    """Preconditioned DeltaNet: PGDN without the decay of the state."""

    row_name = "pdn"


class PrecondGatedDeltaNet(_OptionalGateMixer):
    """Preconditioned Gated DeltaNet."""

    row_name = "pgdn"


class PrecondKDA(_LowRankGateMixer):
    """Preconditioned KDA."""

    row_name = "pkda"

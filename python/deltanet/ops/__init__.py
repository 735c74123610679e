"""Linear-attention operators for PyTorch on CPUs, under the names, arguments and defaults of flash-linear-attention.

Code moves by changing an import: ``from fla.ops.gated_delta_rule import chunk_gated_delta_rule`` becomes
``from deltanet.ops.gated_delta_rule import chunk_gated_delta_rule``, or ``from deltanet.ops import ...``. Tensors are
float32, bfloat16 or float16 on the CPU, with any strides; states are float32. chunk_* and fused_recurrent_* compute the
same: the faster form is chosen by the number of tokens. Options that only concern a GPU are accepted where they change
nothing, and refused with the reason otherwise.

:func:`recurrence` runs any row of :func:`deltanet.rows`; :func:`short_convolution` is the convolution in front of them.
"""

try:
    import torch  # noqa: F401
except ImportError:
    raise ImportError("deltanet.ops needs PyTorch; run: pip install deltanet[torch]") from None

from ._recurrence import recurrence
from ._short_convolution import short_convolution
from .comba import chunk_comba, fused_recurrent_comba
from .delta_rule import chunk_delta_rule, fused_recurrent_delta_rule
from .gated_delta_rule import (
    chunk_gated_delta_rule,
    chunk_gdn,
    fused_recurrent_gated_delta_rule,
    fused_recurrent_gdn,
)
from .generalized_delta_rule import (
    chunk_dplr_delta_rule,
    chunk_iplr_delta_rule,
    fused_recurrent_dplr_delta_rule,
    fused_recurrent_iplr_delta_rule,
)
from .gla import chunk_gla, fused_recurrent_gla
from .kda import chunk_kda, fused_recurrent_kda
from .linear_attn import chunk_linear_attn, fused_chunk_linear_attn, fused_recurrent_linear_attn
from .mesa_net import chunk_mesa_net, mesa_net_decoding_one_step
from .precond_delta_rule import chunk_precond_delta_rule, fused_recurrent_precond_delta_rule
from .precond_gated_delta_rule import chunk_precond_gated_delta_rule, fused_recurrent_precond_gated_delta_rule
from .precond_gla import (
    chunk_precond_gla,
    chunk_precond_linear_attn,
    chunk_precond_simple_gla,
    fused_recurrent_precond_gla,
    fused_recurrent_precond_linear_attn,
    fused_recurrent_precond_simple_gla,
)
from .precond_kda import chunk_precond_kda, fused_recurrent_precond_kda
from .retention import chunk_retention, fused_chunk_retention, fused_recurrent_retention, parallel_retention
from .rwkv7 import chunk_rwkv7, fused_mul_recurrent_rwkv7, fused_recurrent_rwkv7
from .simple_gla import (
    chunk_simple_gla,
    fused_chunk_simple_gla,
    fused_recurrent_simple_gla,
    parallel_simple_gla,
)

__all__ = [
    "chunk_comba",
    "chunk_delta_rule",
    "chunk_dplr_delta_rule",
    "chunk_gated_delta_rule",
    "chunk_gdn",
    "chunk_gla",
    "chunk_iplr_delta_rule",
    "chunk_kda",
    "chunk_linear_attn",
    "chunk_mesa_net",
    "chunk_precond_delta_rule",
    "chunk_precond_gated_delta_rule",
    "chunk_precond_gla",
    "chunk_precond_kda",
    "chunk_precond_linear_attn",
    "chunk_precond_simple_gla",
    "chunk_retention",
    "chunk_rwkv7",
    "chunk_simple_gla",
    "fused_chunk_linear_attn",
    "fused_chunk_retention",
    "fused_chunk_simple_gla",
    "fused_mul_recurrent_rwkv7",
    "fused_recurrent_comba",
    "fused_recurrent_delta_rule",
    "fused_recurrent_dplr_delta_rule",
    "fused_recurrent_gated_delta_rule",
    "fused_recurrent_gdn",
    "fused_recurrent_gla",
    "fused_recurrent_iplr_delta_rule",
    "fused_recurrent_kda",
    "fused_recurrent_linear_attn",
    "fused_recurrent_precond_delta_rule",
    "fused_recurrent_precond_gated_delta_rule",
    "fused_recurrent_precond_gla",
    "fused_recurrent_precond_kda",
    "fused_recurrent_precond_linear_attn",
    "fused_recurrent_precond_simple_gla",
    "fused_recurrent_retention",
    "fused_recurrent_rwkv7",
    "fused_recurrent_simple_gla",
    "mesa_net_decoding_one_step",
    "parallel_retention",
    "parallel_simple_gla",
    "recurrence",
    "short_convolution",
]

"""deltanet.ops against flash-linear-attention: its naive functions, which run on a CPU, and its signatures."""

import functools
import importlib
import inspect
import re
import warnings

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("fla")

import torch.nn.functional as F  # noqa: E402
from torch_problems import error  # noqa: E402

from deltanet import ops  # noqa: E402

TOLERANCE = 1e-5
B, T, H, K, V = 2, 21, 3, 16, 16


def upstream(module, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it would like to have a GPU
        return getattr(importlib.import_module(f"fla.ops.{module}"), name)


def leaves(names, heads=H, value_heads=H, tokens=T):
    """Leaves by upstream's argument names."""
    generator = torch.Generator().manual_seed(4)
    keys, values = (B, tokens, heads, K), (B, tokens, value_heads, V)
    shapes = {
        **{name: keys for name in ("q", "r", "k", "p", "a", "b", "kk")},
        "v": values,
        **{name: values[:3] for name in ("g", "beta")},
        **{name: keys[:3] for name in ("g_atk", "beta_atk")},
        **{name: (*values[:3], K) for name in ("gk", "w")},
        "log_atk_scale": (heads,),
        "lamb": (heads, K),
        **{name: (B, value_heads, K, V) for name in ("initial_state", "h_kk_init", "h_kv_init")},
        "initial_A_state": (B, heads, K),
        "key_sum": (B, 1, heads, K),
    }
    tensors = {}
    for name in names.split():
        values = torch.randn(shapes[name], generator=generator)
        if name in ("g", "gk", "w", "g_atk"):
            values = F.logsigmoid(values)
        elif name in ("beta", "beta_atk", "initial_A_state"):
            values = values.sigmoid()
        elif name in ("lamb", "key_sum"):
            values = values.abs() + 0.5
        elif name in ("k", "p", "a", "b", "kk"):
            values = F.normalize(values, dim=-1)
        elif name == "h_kk_init":
            values = values @ values.transpose(-1, -2) / K
        tensors[name] = values.requires_grad_()
    return tensors


def compare(ours, theirs, tensors):
    """Both get the same leaves and return tuples of tensors; gradients are those of random weights of the results."""
    sides = []
    for function in (ours, theirs):
        copies = {name: tensor.detach().clone().requires_grad_() for name, tensor in tensors.items()}
        results = function(**copies)
        generator = torch.Generator().manual_seed(5)
        sum((torch.randn(result.shape, generator=generator) * result).sum() for result in results).backward()
        sides.append([*results, *(copy.grad for copy in copies.values())])
    errors = [error(mine, other) for mine, other in zip(*sides)]
    results = [f"result {index}" for index in range(len(errors) - len(tensors))]
    assert max(errors) < TOLERANCE, dict(zip([*results, *(f"d{name}" for name in tensors)], errors))


def heads_first(function, *names):
    """A naive function that wants [B,H,T,...] in this order, without a scale of its own."""

    def call(initial_state, **tensors):
        o, state = function(*(tensors[name].transpose(1, 2) for name in names), initial_state=initial_state)
        return o.transpose(1, 2), state

    return call


def with_final(function, **options):
    return lambda **tensors: function(**tensors, output_final_state=True, **options)


NAIVE = {
    "delta_rule": (
        "q k v beta initial_state",
        lambda: heads_first(upstream("delta_rule.naive", "delta_rule_recurrence"), "q", "k", "v", "beta"),
    ),
    "gated_delta_rule": (
        "q k v g beta initial_state",
        lambda: with_final(upstream("gated_delta_rule.naive", "naive_recurrent_gated_delta_rule")),
    ),
    "simple_gla": (
        "q k v g initial_state",
        lambda: with_final(upstream("simple_gla.naive", "naive_recurrent_simple_gla")),
    ),
    "comba": ("q k v p g beta initial_state", lambda: with_final(upstream("comba.naive", "naive_recurrent_comba"))),
    "dplr_delta_rule": (
        "q k v a b gk initial_state",
        lambda: heads_first(
            upstream("generalized_delta_rule.dplr.naive", "dplr_recurrence"), "q", "k", "v", "a", "b", "gk"
        ),
    ),
    "precond_gated_delta_rule": (
        "q k v g_atk g beta_atk beta log_atk_scale initial_state initial_A_state",
        lambda: with_final(upstream("precond_gated_delta_rule.naive", "naive_recurrent_precond_gated_delta_rule")),
    ),
}


@pytest.mark.parametrize("form", ["chunk", "fused_recurrent"])
@pytest.mark.parametrize("name", NAIVE)
def test_equals_naive(name, form):
    names, naive = NAIVE[name]
    compare(with_final(getattr(ops, f"{form}_{name}")), naive(), leaves(names))


@pytest.mark.parametrize("form", ["chunk", "fused_recurrent"])
@pytest.mark.parametrize("value_heads", [H, 2 * H])
def test_kda_equals_naive(form, value_heads):
    tensors = leaves("q k v gk beta initial_state", value_heads=value_heads)
    tensors["g"] = tensors.pop("gk")
    naive = with_final(upstream("kda.naive", "naive_recurrent_kda"))
    compare(with_final(getattr(ops, f"{form}_kda")), naive, tensors)


@pytest.mark.parametrize("form", ["chunk", "fused_recurrent"])
def test_precond_kda_equals_naive(form):
    tensors = leaves("q k v gk g_atk beta_atk beta log_atk_scale initial_state initial_A_state")
    tensors["g"] = tensors.pop("gk")
    naive = with_final(upstream("precond_kda.naive", "naive_recurrent_precond_kda"))
    ours = with_final(getattr(ops, f"{form}_precond_kda"), use_qk_l2norm_in_kernel=False)
    compare(ours, naive, tensors)


def test_precond_gated_delta_rule_equals_naive_with_grouped_heads():
    names, naive = NAIVE["precond_gated_delta_rule"]
    compare(with_final(ops.chunk_precond_gated_delta_rule), naive(), leaves(names, value_heads=2 * H))


def test_gla_equals_naive():
    naive = with_final(upstream("gla.naive", "naive_recurrent_gla"))
    compare(with_final(ops.fused_recurrent_gla), naive, leaves("q k v gk initial_state"))
    ours = lambda gk, **tensors: ops.chunk_gla(**tensors, g=gk, output_final_state=True)  # noqa: E731
    compare(ours, naive, leaves("q k v gk initial_state"))


@pytest.mark.parametrize("form", ["chunk", "fused_recurrent"])
@pytest.mark.parametrize("normalize", [False, True])
def test_linear_attn_equals_naive(form, normalize):
    tensors = leaves("q k v initial_state key_sum")
    tensors["q"], tensors["k"] = (tensors[name].detach().abs().requires_grad_() for name in ("q", "k"))

    def called(function):
        def call(initial_state, key_sum, **others):
            state = (initial_state, key_sum) if normalize else initial_state
            o, final = function(**others, initial_state=state, output_final_state=True, normalize=normalize)
            return (o, *final) if normalize else (o, final + 0 * key_sum.sum())

        return call

    naive = upstream("linear_attn.naive", "naive_recurrent_linear_attn")
    compare(called(getattr(ops, f"{form}_linear_attn")), called(naive), tensors)


def test_retention_equals_naive():
    naive = upstream("retention.naive", "naive_retention")
    theirs = lambda q, k, v: (naive(*(t.transpose(1, 2) for t in (q, k, v))).transpose(1, 2),)  # noqa: E731
    for function in (ops.chunk_retention, ops.fused_recurrent_retention):
        compare(lambda **tensors: function(**tensors)[:1], theirs, leaves("q k v"))  # noqa: B023


def test_mesa_net_equals_naive():
    naive = upstream("mesa_net.naive", "naive_mesa_net_exact")
    tensors = leaves("q k v g beta lamb h_kk_init h_kv_init")

    compare(with_final(ops.chunk_mesa_net), naive, tensors)


@pytest.mark.parametrize("steps", [1, 2, 5, 30])
def test_mesa_net_decoding_step_equals_naive(steps):
    tensors = leaves("q k v g beta lamb h_kk_init h_kv_init")
    one = {
        name: (t[:, 0] if name in ("q", "k", "v", "g", "beta") else t).detach().requires_grad_()
        for name, t in tensors.items()
    }
    one["prev_h_kk"], one["prev_h_kv"] = one.pop("h_kk_init"), one.pop("h_kv_init")
    naive = upstream("mesa_net.naive", "naive_mesa_net_decoding_one_step")
    ours, theirs = (
        functools.partial(f, max_CG_iteration=steps) for f in (ops.mesa_net_decoding_one_step, naive)
    )
    compare(ours, theirs, one)


def test_rwkv7_equals_naive():
    naive = heads_first(upstream("generalized_delta_rule.dplr.naive", "dplr_recurrence"), "r", "k", "v", "a", "b", "w")
    tensors = leaves("r w k v a b initial_state")
    for function in (ops.chunk_rwkv7, ops.fused_recurrent_rwkv7):
        compare(with_final(function, scale=K**-0.5), naive, tensors)
    compare(
        with_final(ops.fused_mul_recurrent_rwkv7, scale=K**-0.5),
        lambda kk, a, **others: naive(**others, a=-kk, b=kk * a),
        leaves("r w k v kk a initial_state"),
    )


@pytest.mark.parametrize("lower_bound", [None, -4.0])
def test_kda_gate_equals_naive(lower_bound):
    tensors = leaves("q k v gk beta")
    tensors["g"] = tensors.pop("gk")
    tensors["A_log"] = torch.randn(H, requires_grad=True)
    tensors["dt_bias"] = torch.randn(H * K, requires_grad=True)
    gate = upstream("kda.gate", "naive_kda_gate" if lower_bound is None else "naive_kda_lowerbound_gate")
    bound = {} if lower_bound is None else {"lower_bound": lower_bound}

    def theirs(q, k, v, g, beta, A_log, dt_bias):
        beta = 2 * beta.sigmoid()
        return ops.chunk_kda(q, k, v, gate(g, A_log, dt_bias, **bound), beta)[:1]

    def ours(**tensors):
        options = dict(use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True, allow_neg_eigval=True)
        return ops.chunk_kda(**tensors, **options, **bound)[:1]

    compare(ours, theirs, tensors)


def test_gated_delta_rule_gate_equals_naive():
    tensors = leaves("q k v g beta")
    tensors["A_log"], tensors["dt_bias"] = torch.randn(H, requires_grad=True), torch.randn(H, requires_grad=True)
    gate = upstream("gated_delta_rule.gate", "naive_gdn_gate")

    def theirs(q, k, v, g, beta, A_log, dt_bias):
        return ops.chunk_gated_delta_rule(q, k, v, gate(g, A_log, dt_bias), beta.sigmoid())[:1]

    for function in (ops.chunk_gated_delta_rule, ops.fused_recurrent_gated_delta_rule):
        options = dict(use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True)
        compare(lambda **tensors: function(**tensors, **options)[:1], theirs, tensors)  # noqa: B023


OURS_ALONE = {"precond_delta_rule", "precond_gla", "precond_linear_attn", "precond_simple_gla", "short_convolution"}
MODULES = {
    "dplr_delta_rule": "generalized_delta_rule",
    "iplr_delta_rule": "generalized_delta_rule",
    "gdn": "gated_delta_rule",
    "mesa_net_decoding_one_step": "mesa_net",
}


def public_functions():
    for name in ops.__all__:
        operator = re.sub("^(fused_chunk|chunk|fused_recurrent|fused_mul_recurrent|parallel)_", "", name)
        if name != "recurrence" and operator not in OURS_ALONE:
            yield name, MODULES.get(operator, operator)


@pytest.mark.parametrize("name, module", list(public_functions()))
def test_signature_is_upstreams(name, module):
    theirs = inspect.signature(inspect.unwrap(upstream(module, name))).parameters.values()
    ours = inspect.signature(getattr(ops, name)).parameters.values()
    positional = [parameter for parameter in ours if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    expected = [parameter for parameter in theirs if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    assert [(p.name, p.default) for p in positional] == [(p.name, p.default) for p in expected]
    assert all(p.default is not p.empty for p in ours if p.kind is p.KEYWORD_ONLY)
    # The module has it under the same name, too.
    assert getattr(importlib.import_module(f"deltanet.ops.{module}"), name) is getattr(ops, name)

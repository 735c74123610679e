"""deltanet.ops: upstream's options, and wrong arguments to every function."""

import inspect

import pytest

torch = pytest.importorskip("torch")

from torch_problems import error  # noqa: E402

import deltanet  # noqa: E402
from deltanet import ops  # noqa: E402

B, T, H, K, V = 2, 15, 2, 8, 8

# Shapes of the tensors by argument; H is also the number of value heads.
SHAPES = {
    **{name: (B, T, H, K) for name in ("q", "r", "k", "p", "a", "b", "kk", "v", "gk", "w")},
    **{name: (B, T, H) for name in ("g", "beta", "g_atk", "beta_atk")},
    "log_atk_scale": (H,),
    "g_gamma": (H,),
    **{name: (H, K) for name in ("lamb", "ridge")},
    **{name: (B, H, K, V) for name in ("initial_state", "h_kk_init", "h_kv_init", "prev_h_kk", "prev_h_kv")},
    "initial_A_state": (B, H, K),
}
DIAGONAL = {name for name in ops.__all__ if name.endswith(("_kda", "_gla")) and not name.endswith("simple_gla")}
FUNCTIONS = [name for name in ops.__all__ if name not in ("recurrence", "short_convolution")]


def tensors_for(name, packed=False):
    """Every tensor that the function takes and that concerns it alone."""
    generator = torch.Generator().manual_seed(3)
    tensors = {}
    for argument in inspect.signature(getattr(ops, name)).parameters:
        if argument not in SHAPES or name == "fused_recurrent_precond_gated_delta_rule" and argument == "gk":
            continue
        if name in ("fused_recurrent_gated_delta_rule", "fused_recurrent_gdn") and argument == "gk":
            continue
        shape = SHAPES[argument]
        if argument == "g" and name in DIAGONAL:
            shape = (B, T, H, K)
        if name == "mesa_net_decoding_one_step" and len(shape) > 2 and shape[1] == T:
            shape = (shape[0], *shape[2:])
        values = torch.randn(shape, generator=generator)
        if argument in ("g", "gk", "w", "g_atk", "g_gamma"):
            values = -values.abs()
        elif argument in ("beta", "beta_atk", "lamb", "ridge", "initial_A_state"):
            values = values.sigmoid() + 0.1
        elif argument in ("k", "p", "a", "b", "kk"):
            values = 0.3 * values
        elif argument.endswith("h_kk") or argument == "h_kk_init":
            values = values @ values.transpose(-1, -2)
        tensors[argument] = values
    return tensors


def flat(results):
    return [part for result in results for part in (result if isinstance(result, tuple) else (result,))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_runs_with_all_its_tensors(name):
    function, tensors = getattr(ops, name), tensors_for(name)
    results = flat(function(**tensors))
    assert results[0].shape == tensors["v"].shape and torch.isfinite(results[0]).all()
    leaves = {argument: tensor.requires_grad_() for argument, tensor in tensors.items()}
    sum(result.sum() for result in flat(function(**leaves)) if result is not None).backward()
    for argument, leaf in leaves.items():
        assert leaf.grad is not None and torch.isfinite(leaf.grad).all() and leaf.grad.abs().sum() > 0, argument


@pytest.mark.parametrize("name", FUNCTIONS)
def test_wrong_arguments_are_named(name):
    function, tensors = getattr(ops, name), tensors_for(name)
    for argument, tensor in tensors.items():
        wrong = {
            "type": "text",
            "dtype": tensor.double(),
            "device": tensor.to("meta"),
            "rank": tensor.unsqueeze(0),
            "shape": torch.cat([tensor, tensor], dim=-1) if argument not in ("q", "r", "v") else tensor[:1],
        }
        for kind, value in wrong.items():
            with pytest.raises((TypeError, ValueError)) as raised:
                function(**{**tensors, argument: value})
            words = str(raised.value)
            # q (or r) gives the sizes that the others are compared with.
            blamed = words.split(":")[0]
            first = next(iter(tensors))
            assert blamed == argument or kind in ("shape", "rank") and argument in (first, "v") and blamed in tensors, (
                f"{argument}, {kind}: {words}"
            )
            assert "given" in words or "expected" in words


PACKED = [name for name in FUNCTIONS if "cu_seqlens" in inspect.signature(getattr(ops, name)).parameters]


@pytest.mark.parametrize("offsets", [[0, 4, T], [0, 0, T], [0, T, T]])
@pytest.mark.parametrize("name", PACKED)
def test_packed_sequences_equal_separate_ones(name, offsets):
    function, tensors = getattr(ops, name), tensors_for(name)
    parameters = inspect.signature(function).parameters
    options = {"output_final_state": True} if "output_final_state" in parameters else {}
    with_tokens = {argument for argument, t in tensors.items() if t.shape[:2] == (B, T)}
    packed = {argument: t[:1] if argument in with_tokens else t for argument, t in tensors.items()}
    results = flat(function(**packed, cu_seqlens=torch.tensor(offsets), **options))
    for index, (start, end) in enumerate(zip(offsets, offsets[1:])):
        alone = {
            argument: t[:, start:end] if argument in with_tokens else t[index : index + 1] if t.dim() > 2 else t
            for argument, t in packed.items()
        }
        o, *states = flat(function(**alone, **options))
        assert error(results[0][:, start:end], o) < 1e-5
        for together, state in zip(results[1:], states):
            if state is not None:  # functions without states
                assert error(together[index : index + 1], state) < 1e-5


def test_normalized_linear_attention_packed_reversed_and_grouped():
    q, k, v = (tensors_for("chunk_linear_attn")[name].abs() for name in ("q", "k", "v"))
    q, k, v = q[:1], k[:1], torch.cat([v, v + 1], dim=2)[:1]
    state, key_sum = torch.randn(2, 2 * H, K, V).abs(), torch.rand(2, 1, H, K)
    options = dict(normalize=True, reverse=True, output_final_state=True)
    o, (states, sums) = ops.fused_recurrent_linear_attn(
        q, k, v, initial_state=(state, key_sum), cu_seqlens=torch.tensor([0, 5, T]), **options
    )
    # By the definition: weights that are positive and, with the state's share, sum up to one.
    for index, tokens in enumerate((slice(0, 5), slice(5, T))):
        queries, keys = (x[0, tokens].repeat_interleave(2, dim=1).double() for x in (q, k))
        weights = torch.einsum("thk,shk->hts", queries, keys).triu()
        z = key_sum[index, 0].repeat_interleave(2, dim=0).double()
        divisor = weights.sum(-1) + torch.einsum("thk,hk->ht", queries, z)
        sums_of_values = torch.einsum("hts,shv->thv", weights, v[0, tokens].double())
        from_state = torch.einsum("thk,hkv->thv", queries, state[index].double())
        assert error(o[0, tokens], (sums_of_values + from_state) / divisor.T.unsqueeze(-1)) < 1e-5
        assert error(sums[index, 0], key_sum[index, 0] + k[0, tokens].sum(0)) < 1e-5
    assert states.shape == state.shape and sums.shape == key_sum.shape


REVERSIBLE = [name for name in FUNCTIONS if "reverse" in inspect.signature(getattr(ops, name)).parameters]


@pytest.mark.parametrize("name", REVERSIBLE)
def test_reverse_reads_from_the_end(name):
    function, tensors = getattr(ops, name), tensors_for(name)
    turned = {argument: t.flip(1) if t.shape[:2] == (B, T) else t for argument, t in tensors.items()}
    o, state = function(**tensors, output_final_state=True, reverse=True)
    expected, expected_state = function(**turned, output_final_state=True)
    assert error(o, expected.flip(1)) < 1e-6 and error(state, expected_state) < 1e-6
    packed = {argument: t[:1] if t.shape[:2] == (B, T) else t for argument, t in tensors.items()}
    o, states = function(**packed, output_final_state=True, reverse=True, cu_seqlens=torch.tensor([0, 5, T]))
    second = {
        argument: t[:, 5:] if t.shape[:2] == (1, T) else t[1:] if t.dim() > 2 else t for argument, t in packed.items()
    }
    expected, expected_state = function(**second, output_final_state=True, reverse=True)
    assert error(o[:, 5:], expected) < 1e-5 and error(states[1:], expected_state) < 1e-5


LAYOUTS = [
    (name, option)
    for name in FUNCTIONS
    for option in ("state_v_first", "transpose_state_layout")
    if option in inspect.signature(getattr(ops, name)).parameters
]


@pytest.mark.filterwarnings("ignore:transpose_state_layout")
@pytest.mark.parametrize("name, option", LAYOUTS)
def test_states_with_values_first(name, option):
    function, tensors = getattr(ops, name), tensors_for(name)
    o, state, *_ = function(**tensors, output_final_state=True)
    tensors["initial_state"] = tensors["initial_state"].transpose(-1, -2).contiguous()
    turned_o, turned_state, *_ = function(**tensors, output_final_state=True, **{option: True})
    assert error(turned_o, o) < 1e-6 and error(turned_state.transpose(-1, -2), state) < 1e-6


def test_refused_options_give_the_reason():
    gdn, kda, iplr = (tensors_for(f"chunk_{name}") for name in ("gated_delta_rule", "kda", "iplr_delta_rule"))
    refused = [
        (ops.chunk_gated_delta_rule, gdn, dict(cp_context=object()), "cp_context: given .*: context parallelism"),
        (
            ops.chunk_kda,
            kda,
            dict(return_intermediate_states=True),
            "return_intermediate_states: given True; expected it inside torch.inference_mode",
        ),
        (ops.chunk_gated_delta_rule, gdn, dict(allow_neg_eigval=True), "allow_neg_eigval: given True"),
        (ops.chunk_kda, kda, dict(use_gate_in_kernel=True), "A_log: given NoneType; expected a tensor"),
        (ops.chunk_kda, kda, dict(use_gate_in_kernel=True, A_log=torch.zeros(5)), r"A_log: given shape \[5\]"),
        (
            ops.chunk_kda,
            kda,
            dict(use_gate_in_kernel=True, safe_gate=True, lower_bound=-9.0),
            "lower_bound: given -9.0",
        ),
        (ops.fused_recurrent_gated_delta_rule, gdn, dict(gv=torch.zeros(1)), "gv: given a tensor; expected None"),
        (ops.chunk_kda, kda, dict(A_log=torch.zeros(H)), "A_log: given a tensor; expected None: use_gate_in_kernel is"),
        (ops.chunk_gated_delta_rule, gdn, dict(dt_bias=torch.zeros(H)), "dt_bias: given a tensor; expected None"),
        (ops.chunk_gated_delta_rule, gdn, dict(chunk_size=0), "chunk_size: given 0; expected one of 16, 32, 64"),
        (ops.chunk_kda, kda, dict(chunk_size=16), "chunk_size: given 16; expected one of 32, 64 or None"),
        (ops.chunk_iplr_delta_rule, iplr, dict(chunk_size=48), "chunk_size: given 48; expected a power of two or None"),
        (ops.chunk_gated_delta_rule, gdn, dict(cu_seqlens_cpu=torch.tensor([0, T])), "cu_seqlens_cpu: given without"),
    ]
    for function, tensors, options, text in refused:
        with pytest.raises((ValueError, TypeError), match=text):
            function(**tensors, **options)
    with pytest.raises(TypeError, match="head_first"):
        ops.chunk_gated_delta_rule(**gdn, head_first=True)


def test_options_that_change_nothing_here_are_accepted():
    tensors = tensors_for("chunk_kda")
    expected = ops.chunk_kda(**tensors)[0]
    accepted = dict(safe_gate=True, disable_recompute=True, use_graph=True, max_num_seqs=4, chunk_size=32)
    assert torch.equal(ops.chunk_kda(**tensors, **accepted)[0], expected)


def test_absent_gates():
    tensors = tensors_for("fused_recurrent_gated_delta_rule")
    g, beta = tensors.pop("g"), tensors.pop("beta")
    q, k, v, state = tensors.values()
    gk = g.unsqueeze(-1).expand(B, T, H, K)
    ones = torch.ones_like(beta)
    function = ops.fused_recurrent_gated_delta_rule
    for options, expected in (
        (dict(), function(q, k, v, torch.zeros_like(g), beta=ones, initial_state=state)),
        (dict(gk=gk, beta=beta), function(q, k, v, g, beta=beta, initial_state=state)),
        (dict(g=g, gk=gk, beta=beta), function(q, k, v, 2 * g, beta=beta, initial_state=state)),
    ):
        assert error(function(q, k, v, initial_state=state, **options)[0], expected[0]) < 1e-5
    assert error(ops.fused_recurrent_delta_rule(q, k, v)[0], ops.chunk_delta_rule(q, k, v, ones)[0]) < 1e-6
    p = {"p": None, "g": g}
    assert error(ops.chunk_comba(q, k, v, **p)[0], ops.chunk_comba(q, k, v, p=k, g=g)[0]) < 1e-5


def test_comba_normalizes_all_keys_and_groups_heads():
    tensors = tensors_for("chunk_comba")
    tensors["v"], tensors["g"], tensors["beta"] = (
        tensors[name].repeat_interleave(2, dim=2) for name in ("v", "g", "beta")
    )
    tensors["initial_state"] = tensors["initial_state"].repeat_interleave(2, dim=1)
    grouped = ops.chunk_comba(**tensors, use_qk_l2norm_in_kernel=True)[0]
    separate = dict(tensors)
    for name in ("q", "k", "p"):
        key = tensors[name].repeat_interleave(2, dim=2)
        separate[name] = key / (key.square().sum(-1, keepdim=True) + 1e-6).sqrt()
    assert error(grouped, ops.chunk_comba(**separate)[0]) < 1e-5


def test_preconditioned_rules_without_a_center_use_the_paper_s():
    tensors = tensors_for("chunk_precond_delta_rule")
    del tensors["log_atk_scale"]
    expected = ops.chunk_precond_delta_rule(**tensors, log_atk_scale=torch.full((H,), -0.2))[0]
    assert torch.equal(ops.chunk_precond_delta_rule(**tensors)[0], expected)
    assert torch.equal(ops.chunk_precond_delta_rule(**tensors, log_atk_scale=-0.2)[0], expected)


def test_rows_by_name_equal_their_functions():
    tensors = tensors_for("chunk_precond_gla")
    arrays = {name: t.numpy() for name, t in tensors.items()}
    arrays["S0"], arrays["A0"] = arrays.pop("initial_state"), arrays.pop("initial_A_state")
    expected = deltanet.forward("pgla", arrays, mode="reference")
    o, state, A_final = ops.chunk_precond_gla(**tensors, output_final_state=True)
    assert error(o, expected["o"]) < 1e-5
    assert error(state, expected["S_final"]) < 1e-5 and error(A_final, expected["A_final"]) < 1e-5

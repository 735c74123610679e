"""deltanet.ops where code moves by changing an import: the functions beside the two usual forms, and what a caller may
have set or given that must not change a result."""

import gc
import inspect
import weakref

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from test_torch_options import FUNCTIONS, flat, tensors_for  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402
from torch_problems import draw, error  # noqa: E402

from deltanet import layers, ops  # noqa: E402
from deltanet.ops.gated_delta_rule.gate import fused_gdn_gate  # noqa: E402
from deltanet.ops.kda.gate import fused_kda_gate  # noqa: E402
from deltanet.ops.rwkv7.channel_mixing import channel_mixing_rwkv7  # noqa: E402
from deltanet.ops.rwkv7.fused_addcmul import fused_addcmul_rwkv7  # noqa: E402
from deltanet.ops.rwkv7.fused_k_update import fused_k_rwkv7  # noqa: E402
from deltanet.ops.rwkv7.gate_output_correction import gate_output_correction  # noqa: E402

B, T, H, K, V = 2, 21, 3, 8, 6


def gradients_agree(ours, theirs, tensors, tolerance=1e-5):
    """Results and gradients of ours in float32 against theirs in float64, both functions of named leaves."""
    sides = []
    for function, dtype in ((ours, torch.float32), (theirs, torch.float64)):
        leaves = {name: tensor.detach().to(dtype).requires_grad_() for name, tensor in tensors.items()}
        results = function(**leaves)
        generator = torch.Generator().manual_seed(5)
        weights = [torch.randn(result.shape, generator=generator, dtype=torch.float64) for result in results]
        sum((result * weight.to(dtype)).sum() for result, weight in zip(results, weights)).backward()
        sides.append([*results, *(leaf.grad for leaf in leaves.values())])
    errors = [error(mine, exact) for mine, exact in zip(*sides)]
    assert max(errors) < tolerance, errors


# ---- forms


def attention(q, k, v, g, scale):
    """Linear attention with decays as a matrix of weights."""
    sums = g.cumsum(1).transpose(1, 2)
    decays = (sums.unsqueeze(-1) - sums.unsqueeze(-2)).tril().exp().tril()
    weights = torch.einsum("bthk,bshk->bhts", q, k) * scale * decays
    return torch.einsum("bhts,bshv->bthv", weights, v), weights


@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("decays", [True, False])
def test_parallel_simple_gla_is_attention_with_decays(scale, decays):
    tensors = tensors_for("parallel_simple_gla")
    if not decays:
        del tensors["g"]
    k = tensors["k"]

    def theirs(q, k, v, g=torch.zeros(*k.shape[:3], dtype=torch.float64)):
        return attention(q, k, v, g, k.shape[-1] ** -0.5 if scale is None else scale)[:1]

    gradients_agree(lambda **leaves: ops.parallel_simple_gla(**leaves, scale=scale)[:1], theirs, tensors)
    _, weights = ops.parallel_simple_gla(**tensors, scale=scale, output_attentions=True)
    doubles = {name: tensor.double() for name, tensor in tensors.items()}
    g = doubles.setdefault("g", torch.zeros(k.shape[:3], dtype=torch.float64))
    expected = attention(doubles["q"], doubles["k"], doubles["v"], g, K**-0.5 if scale is None else scale)[1]
    assert error(weights, expected) < 1e-6 and not weights.requires_grad
    half = {name: tensor.half() for name, tensor in tensors.items()}
    assert ops.parallel_simple_gla(**half, output_attentions=True)[1].dtype == torch.float16
    with pytest.raises(ValueError, match="output_attentions: given True together with cu_seqlens"):
        ops.parallel_simple_gla(**tensors, output_attentions=True, cu_seqlens=torch.tensor([0, 1]))


def test_attention_weights_of_grouped_heads_and_long_sums():
    q, k, v = torch.randn(1, 300, 2, 8), torch.randn(1, 300, 2, 8), torch.randn(1, 300, 4, 6)
    g = -0.01 * torch.rand(1, 300, 4)
    g[:, :150] -= 30  # float32 would have few digits left for the differences of the last sums
    o, weights = ops.parallel_simple_gla(q, k, v, g, output_attentions=True)
    assert weights.shape == (1, 4, 300, 300)
    assert error((weights @ v.transpose(1, 2)).transpose(1, 2), o) < 1e-5


def test_all_forms_of_retention_simple_gla_and_linear_attention_agree():
    q, k, v = torch.randn(2, T, H, K), torch.randn(2, T, H, K), torch.randn(2, T, H, V)
    decays = torch.log1p(-(2.0 ** (-5.0 - torch.arange(H))))
    state = torch.randn(2, H, K, V)
    expected = ops.chunk_simple_gla(q, k, v, g_gamma=decays, initial_state=state, output_final_state=True)
    for function in (ops.chunk_retention, ops.fused_chunk_retention, ops.fused_recurrent_retention):
        for mine, other in zip(function(q, k, v, initial_state=state, output_final_state=True), expected):
            assert torch.equal(mine, other)
    fused = ops.fused_chunk_simple_gla(q, k, v, g_gamma=decays, initial_state=state, output_final_state=True)
    assert torch.equal(fused[0], expected[0]) and torch.equal(fused[1], expected[1])
    o, weights = ops.parallel_retention(q, k, v, output_attentions=True)
    assert error(o, ops.chunk_retention(q, k, v)[0]) < 1e-5
    assert error((weights @ v.transpose(1, 2)).transpose(1, 2), o) < 1e-5
    assert ops.parallel_retention(q, k, v)[1] is None
    q, k = q.abs(), k.abs()
    for mine, other in zip(ops.fused_chunk_linear_attn(q, k, v), ops.chunk_linear_attn(q, k, v)):
        assert torch.equal(mine, other) if torch.is_tensor(mine) else torch.equal(mine[1], other[1])


@pytest.mark.parametrize("name", ["chunk_iplr_delta_rule", "fused_recurrent_iplr_delta_rule"])
def test_identity_plus_low_rank(name):
    def theirs(q, k, v, a, b, initial_state):
        S, outputs = initial_state, []
        for t in range(q.shape[1]):
            read = torch.einsum("bhkv,bhk->bhv", S, a[:, t])
            S = S + b[:, t].unsqueeze(-1) * read.unsqueeze(-2) + k[:, t].unsqueeze(-1) * v[:, t].unsqueeze(-2)
            outputs.append(torch.einsum("bhkv,bhk->bhv", S, q[:, t] * 0.25))
        return torch.stack(outputs, 1), S

    ours = lambda **leaves: getattr(ops, name)(**leaves, scale=0.25, output_final_state=True)  # noqa: E731
    gradients_agree(ours, theirs, tensors_for(name))


# ---- MesaNet


def mesa_tensors(tokens):
    generator = torch.Generator().manual_seed(1)
    draws = lambda *shape: torch.randn(shape, generator=generator)  # noqa: E731
    root = draws(B, H, K, K)
    return {
        **{name: draws(B, tokens, H, K) for name in ("q", "v")},
        "k": F.normalize(draws(B, tokens, H, K), dim=-1),
        "g": F.logsigmoid(draws(B, tokens, H)),
        "beta": draws(B, tokens, H).sigmoid(),
        "lamb": draws(H, K).abs() + 0.3,
        "h_kk_init": root @ root.mT / K,
        "h_kv_init": draws(B, H, K, K),
    }


def mesa_exact(q, k, v, g, beta, lamb, h_kk_init, h_kv_init):
    h_kk, h_kv, grams, sums = h_kk_init, h_kv_init, [], []
    for t in range(q.shape[1]):
        decay, written = g[:, t, :, None, None].exp(), (beta[:, t].unsqueeze(-1) * k[:, t]).unsqueeze(-1)
        h_kk, h_kv = h_kk * decay + written * k[:, t].unsqueeze(-2), h_kv * decay + written * v[:, t].unsqueeze(-2)
        grams.append(h_kk)
        sums.append(h_kv)
    x = torch.linalg.solve(torch.stack(grams, 1) + torch.diag_embed(lamb), q.unsqueeze(-1))
    return (x * torch.stack(sums, 1)).sum(-2), h_kk, h_kv


@pytest.mark.parametrize("tokens", [1, 13, 40, 270])
def test_gradient_of_the_initial_gram_is_that_of_a_solve(tokens):
    def ours(**leaves):
        return ops.chunk_mesa_net(**leaves, output_final_state=True)

    # The random weights of the final Gram are not symmetric, nor is the gradient of the initial one.
    gradients_agree(ours, mesa_exact, mesa_tensors(tokens), tolerance=2e-5)


@pytest.mark.parametrize("steps", [1, 3, 30])
def test_decoding_step_counts_its_steps_of_conjugate_gradients(steps):
    tensors = {
        name: tensor[:, 0] if name in ("q", "k", "v", "g", "beta") else tensor
        for name, tensor in mesa_tensors(1).items()
    }
    tensors["prev_h_kk"], tensors["prev_h_kv"] = tensors.pop("h_kk_init"), tensors.pop("h_kv_init")

    def theirs(q, k, v, g, beta, lamb, prev_h_kk, prev_h_kv):
        decay, written = g[..., None, None].exp(), (beta.unsqueeze(-1) * k).unsqueeze(-1)
        h_kk, h_kv = prev_h_kk * decay + written * k.unsqueeze(-2), prev_h_kv * decay + written * v.unsqueeze(-2)
        matrix = h_kk + torch.diag_embed(lamb)
        x = q / matrix.diagonal(dim1=-2, dim2=-1)
        direction = residual = q - (x.unsqueeze(-1) * matrix).sum(-2)
        for _ in range(steps):
            image = (direction.unsqueeze(-1) * matrix).sum(-2)
            before = residual.square().sum(-1, keepdim=True)
            step = before / ((direction * image).sum(-1, keepdim=True) + 1e-5)
            x, residual = x + step * direction, residual - step * image
            direction = residual + residual.square().sum(-1, keepdim=True) / (before + 1e-5) * direction
        return (x.unsqueeze(-1) * h_kv).sum(-2), h_kk, h_kv

    def ours(**leaves):
        return ops.mesa_net_decoding_one_step(**leaves, max_CG_iteration=steps)

    gradients_agree(ours, theirs, tensors, tolerance=1e-4)
    with pytest.raises(ValueError, match="max_CG_iteration: given 0"):
        ops.mesa_net_decoding_one_step(**tensors, max_CG_iteration=0)


# ---- KDA's states between chunks


@pytest.mark.parametrize("offsets", [None, [0, 0, 70, 134, 200]])
@pytest.mark.parametrize("chunk_size, state_v_first", [(None, False), (32, True)])
@pytest.mark.parametrize("name", ["chunk_kda", "chunk_precond_kda"])
def test_states_before_every_chunk(name, chunk_size, state_v_first, offsets):
    tokens, size = 200, chunk_size or 64
    tensors = tensors_for(name)
    generator = torch.Generator().manual_seed(7)
    with_tokens = [argument for argument, tensor in tensors.items() if "state" not in argument and tensor.dim() > 2]
    for argument in with_tokens:
        order = torch.randint(tensors[argument].shape[1], (tokens,), generator=generator)
        tensors[argument] = tensors[argument][: 1 if offsets else B, order].to(
            torch.bfloat16 if argument == "k" else torch.float32
        )
    sequences = [(b, 0, tokens) for b in range(B)] if offsets is None else [(0, *pair) for pair in pairs(offsets)]
    states = [argument for argument in tensors if argument.startswith("initial")]
    for argument in states:
        tensors[argument] = tensors[argument].repeat(3, *[1] * (tensors[argument].dim() - 1))[: len(sequences)]
    layout = {"state_v_first" if name == "chunk_kda" else "transpose_state_layout": state_v_first}
    options = {} if offsets is None else {"cu_seqlens": torch.tensor(offsets)}
    function = getattr(ops, name)
    with torch.inference_mode():
        plain = function(**tensors, **layout, output_final_state=True, **options)
        *results, between = function(
            **tensors,
            **layout,
            **options,
            output_final_state=True,
            return_intermediate_states=True,
            chunk_size=chunk_size,
        )
        for mine, other in zip(results, plain):
            assert torch.equal(mine, other)
        assert between.dtype == torch.bfloat16
        found = []
        for n, (b, first, last) in enumerate(sequences):
            for start in range(first, last, size):
                part = {
                    argument: tensor[b : b + 1, first:start]
                    if argument in with_tokens
                    else tensor[n : n + 1]
                    if argument in states
                    else tensor
                    for argument, tensor in tensors.items()
                }
                found.append(function(**part, **layout, output_final_state=True)[1])
        expected = torch.cat(found).view(between.shape)
        assert error(between, expected.bfloat16()) < 1e-3
    with pytest.raises(ValueError, match="return_intermediate_states: given True; expected it inside"):
        function(**tensors, **options, return_intermediate_states=True)
    with torch.inference_mode(), pytest.raises(ValueError, match="disable_recompute: given True together"):
        function(**tensors, **options, return_intermediate_states=True, disable_recompute=True)


def pairs(offsets):
    return zip(offsets, offsets[1:])


# ---- the small functions beside the operators


def test_gates():
    g, A_log, dt_bias = torch.randn(B, T, H, K), torch.randn(1, 1, H, 1), torch.randn(H * K)
    rate, shifted = A_log.view(H, 1).double().exp(), g.double() + dt_bias.view(H, K).double()
    assert error(fused_kda_gate(g, A_log, dt_bias), -rate * F.softplus(shifted)) < 1e-6
    assert error(fused_kda_gate(g, A_log), -rate * F.softplus(g.double())) < 1e-6
    assert error(fused_kda_gate(g[0, 0], A_log, dt_bias, -5.0), -5 * (rate * shifted[0, 0]).sigmoid()) < 1e-6
    assert error(fused_kda_gate(g, None, dt_bias, lower_bound=-5.0), -5 * shifted.sigmoid()) < 1e-6
    with pytest.raises(TypeError, match="A_log: given NoneType; expected a tensor"):
        fused_kda_gate(g)
    heads = torch.randn(B, T, H)
    expected = -torch.ones(H).double().exp() * F.softplus(heads.double() + 0.5)
    assert error(fused_gdn_gate(heads, torch.ones(H), torch.full((H,), 0.5)), expected) < 1e-6
    half = fused_gdn_gate(heads.half(), torch.ones(H), output_dtype=torch.bfloat16)
    assert half.dtype == torch.bfloat16 and fused_kda_gate(g.half(), A_log).dtype == torch.float32
    with pytest.raises(ValueError, match=r"dt_bias: given shape \[4\]; expected \[HV\]"):
        fused_gdn_gate(heads, torch.ones(H), torch.ones(4))


def test_small_functions_of_rwkv7():
    x, delta = torch.randn(B, T, H * K), torch.randn(B, T, H * K)
    mixes = [torch.randn(1, 1, H * K) for _ in range(6)]
    for count in (5, 6):
        mixed = fused_addcmul_rwkv7(x, delta, *mixes[:count])
        assert len(mixed) == 6 and (mixed[5] is None) == (count == 5)
        for mine, mix in zip(mixed, mixes[:count]):
            assert error(mine, x.double() + delta.double() * mix) < 1e-6
    a = torch.rand(B, T, H * K)
    assert error(fused_k_rwkv7(x, a, mixes[0]), x.double() * (1 + (a.double() - 1) * mixes[0])) < 1e-6
    r, k, v = torch.randn(3, B, T, H, K).unbind()
    r_k, o, g = torch.randn(H, K), x, delta
    bonus = torch.einsum("bthk,bthk,hk->bth", r.double(), k.double(), r_k.double()).unsqueeze(-1) * v
    assert error(gate_output_correction(o, r, k, r_k, v, g), (o + bonus.flatten(-2)) * g) < 1e-6
    x_k, key, value = torch.rand(H * K), torch.randn(H * K, 10), torch.randn(10, H * K)
    before = torch.cat([a[:, :1], x[:, :-1]], dim=1)
    expected = F.relu((x + (before - x) * x_k).double() @ key.double()).square() @ value.double()
    for first in (a[:, 0], a[:, :1]):
        y, last = channel_mixing_rwkv7(x, first, x_k, key, value)
        assert error(y, expected) < 1e-5 and torch.equal(last, x[-1, :])


# ---- what must not matter


@pytest.mark.parametrize("name", FUNCTIONS)
def test_default_type_and_device_do_not_matter(name):
    function, tensors = getattr(ops, name), tensors_for(name)
    options = {}
    if "output_final_state" in inspect.signature(function).parameters:
        options["output_final_state"] = True
    if "log_atk_scale" in tensors:
        tensors["log_atk_scale"] = -0.3
    expected = flat(function(**tensors, **options))
    stateless = {key: tensor for key, tensor in tensors.items() if "init" not in key}
    expected_stateless = flat(function(**stateless, **options))
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            results, without_state = flat(function(**tensors, **options)), flat(function(**stateless, **options))
    finally:
        torch.set_default_dtype(torch.float32)
    for mine, other in zip([*results, *without_state], [*expected, *expected_stateless]):
        assert mine is other is None or mine.dtype == other.dtype and torch.equal(mine, other)


def test_scale_may_be_any_number_and_is_taken_as_it_is_now():
    tensors = draw("gdn")
    expected = {scale: ops.recurrence("gdn", **tensors, scale=scale)[0] for scale in (0.5, 0.25)}
    scale = torch.tensor(0.5)
    assert torch.equal(ops.recurrence("gdn", **tensors, scale=scale)[0], expected[0.5])
    scale.fill_(0.25)
    assert torch.equal(ops.recurrence("gdn", **tensors, scale=scale)[0], expected[0.25])
    q, k, v, g = (tensors[name] for name in ("q", "k", "v", "g"))
    for number in (torch.tensor([0.25]), scale.numpy(), scale.double()):
        assert torch.equal(ops.recurrence("gdn", **tensors, scale=number)[0], expected[0.25])
        ops.parallel_simple_gla(q, k.repeat(1, 1, 1, 1), v[:, :, :2], g[:, :, :2], number, True)
    gone = weakref.ref(scale)
    del scale, number
    gc.collect()
    assert gone() is None  # nothing has kept it
    for wrong, text in (
        (torch.tensor(0.5, requires_grad=True), "scale: given a tensor that requires a gradient; expected a number"),
        (torch.ones(2), r"scale: given a tensor of shape \[2\]; expected a number"),
        ("much", "scale: given str; expected a number"),
    ):
        with pytest.raises(TypeError, match=text):
            ops.recurrence("gdn", **tensors, scale=wrong)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "mesa_net_decoding_one_step"])
def test_forward_mode_is_refused(name):
    function, tensors = getattr(ops, name), tensors_for(name)
    for argument in ("v", next(iter(tensors))):
        primal = tensors[argument]
        with pytest.raises(NotImplementedError, match="forward-mode differentiation"):
            torch.func.jvp(lambda x: function(**{**tensors, argument: x})[0], (primal,), (primal,))  # noqa: B023
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(primal, primal)
            with pytest.raises(NotImplementedError, match="expected reverse mode"):
                function(**{**tensors, argument: dual})
            function(**tensors)  # without tangents all is well


def test_forward_mode_of_the_convolution_is_refused():
    x, weight = torch.randn(1, 9, 4), torch.randn(4, 3)
    with pytest.raises(NotImplementedError, match="forward-mode differentiation"):
        torch.func.jvp(lambda x: ops.short_convolution(x, weight)[0], (x,), (x,))


MIXERS = ["Attention", "DeltaNet", "GatedDeltaNet", "KimiDeltaAttention"]
MIXERS += ["PrecondDeltaNet", "PrecondGatedDeltaNet", "PrecondKDA"]


@pytest.mark.parametrize("name", MIXERS)
def test_layers_pass_over_sequences_without_tokens(name):
    layer, x = getattr(layers, name)(hidden_size=32, num_heads=2), torch.randn(1, 12, 32)
    expected = layer(x, cu_seqlens=torch.tensor([0, 5, 12]))[0]
    assert torch.equal(layer(x, cu_seqlens=torch.tensor([0, 0, 5, 5, 12, 12]))[0], expected)
    assert torch.equal(layer(x, cu_seqlens=torch.tensor([0, 5, 12], dtype=torch.int32))[0], expected)

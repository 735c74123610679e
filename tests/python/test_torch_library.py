"""The operators of deltanet.ops as torch.library, torch.compile and torch.export see them."""

import pytest

torch = pytest.importorskip("torch")

from torch_problems import ROWS, draw  # noqa: E402

from deltanet import ops  # noqa: E402
from deltanet.ops._library import INPUTS  # noqa: E402

SMALL = dict(B=1, T=9, H=1, U=2, K=4, V=3)


def forward_arguments(row, tensors, final_states=True):
    return (
        *(tensors.get(name) for name in INPUTS),
        tensors.get("cu_seqlens"),
        row,
        False,
        None,
        None,
        None,
        final_states,
    )


# Tracing with symbolic sizes takes a second; rows with the same inputs and states are alike to it.
TRACED = ("delta_net", "retnet", "comba", "pkda", "pla", "rls", "mesa", "dplr", "rwkv7")
UNTRACED = ("test_schema", "test_autograd_registration", "test_faketensor")


@pytest.mark.parametrize("row", ROWS)
def test_opcheck_of_forward(row):
    kinds = (*UNTRACED, "test_aot_dispatch_dynamic") if row in TRACED else UNTRACED
    arguments = forward_arguments(row, draw(row, **SMALL))
    torch.library.opcheck(torch.ops.deltanet.forward.default, arguments, test_utils=kinds)


def test_opcheck_of_forward_without_final_states_and_with_packing():
    tensors = draw("pgdn", **SMALL, cu_seqlens=[0, 4, 9])
    for final_states in (False, True):
        torch.library.opcheck(torch.ops.deltanet.forward.default, forward_arguments("pgdn", tensors, final_states))


@pytest.mark.parametrize("row", ["gdn", "pkda", "mesa"])
def test_opcheck_of_backward(row):
    tensors = {name: tensor.detach() for name, tensor in draw(row, **SMALL).items()}
    arguments = forward_arguments(row, tensors)
    results = torch.ops.deltanet.forward(*arguments)
    upstream = [torch.randn_like(result) if result.numel() else None for result in results]
    wanted = [name in tensors and name != "v" for name in INPUTS]
    torch.library.opcheck(torch.ops.deltanet.backward.default, (*arguments[:-1], *upstream, wanted))


def block(q, k, v, g, beta, state):
    """An operator between others, with a state and the gate options."""
    o, state = ops.chunk_gated_delta_rule(
        q * 2,
        k,
        v,
        g,
        beta,
        initial_state=state,
        output_final_state=True,
        use_qk_l2norm_in_kernel=True,
        use_beta_sigmoid_in_kernel=True,
        state_v_first=True,
    )
    return o.sigmoid(), state


def problem(tokens=20, requires_grad=True):
    tensors = draw("gdn", T=tokens)
    arguments = [tensors[name] for name in ("q", "k", "v", "g", "beta")]
    arguments.append(tensors["S0"].detach().transpose(-1, -2).contiguous())
    return [argument.detach().requires_grad_(requires_grad) for argument in arguments]


def test_compile_traces_forward_and_backward_in_one_graph():
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    for tokens in (20, 33):  # the second length makes the sizes dynamic
        expected_leaves, leaves = problem(tokens), problem(tokens)
        expected, results = block(*expected_leaves), compiled(*leaves)
        for a, b in zip(expected, results):
            assert torch.allclose(a, b, atol=1e-6)
        (expected[0].sum() + expected[1].square().sum()).backward()
        (results[0].sum() + results[1].square().sum()).backward()
        for a, b in zip(expected_leaves, leaves):
            assert torch.allclose(a.grad, b.grad, rtol=1e-4, atol=1e-5)


def test_compile_without_final_state_and_with_packed_sequences():
    def packed(q, k, v, beta, cu_seqlens):
        return ops.chunk_delta_rule(q, k, v, beta, cu_seqlens=cu_seqlens)

    tensors = draw("delta_net", B=1, cu_seqlens=[0, 10, 37])
    arguments = [tensors[name] for name in ("q", "k", "v", "beta", "cu_seqlens")]
    o, state = torch.compile(packed, fullgraph=True, backend="aot_eager")(*arguments)
    assert state is None
    assert torch.equal(o, packed(*arguments)[0])
    o.sum().backward()
    assert float(tensors["k"].grad.abs().sum()) > 0


@pytest.mark.parametrize("name", ["comba", "kda", "precond_gated_delta_rule", "simple_gla"])
def test_functions_that_prepare_their_inputs_compile(name):
    from test_torch_upstream import leaves

    names = {
        "comba": "q k v p g beta",
        "kda": "q k v gk beta",
        "precond_gated_delta_rule": "q k v g_atk g beta_atk beta",
        "simple_gla": "q k v g",
    }[name]
    tensors = leaves(names)
    if name == "kda":
        tensors["g"] = tensors.pop("gk")
    function = getattr(ops, f"fused_recurrent_{name}")
    compiled = torch.compile(lambda **t: function(**t, output_final_state=True), fullgraph=True, backend="aot_eager")
    for a, b in zip(compiled(**tensors), function(**tensors, output_final_state=True)):
        assert torch.allclose(a, b, atol=1e-5)


class Module(torch.nn.Module):
    def forward(self, *tensors):
        return block(*tensors)


@pytest.mark.parametrize("strict", [False, True])
def test_export_keeps_the_operator(strict):
    arguments = tuple(problem(requires_grad=False))
    tokens = torch.export.Dim("tokens", min=2, max=512)
    shapes = {"tensors": (*[{1: tokens}] * 5, {})}
    program = torch.export.export(Module(), arguments, dynamic_shapes=shapes, strict=strict)
    assert "deltanet.forward" in str(program.graph)
    longer = problem(31, requires_grad=False)
    for a, b in zip(program.module()(*longer), block(*longer)):
        assert torch.allclose(a, b, atol=1e-6)


def test_fake_tensors_and_modes_see_the_operator():
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    with Watch(), torch.no_grad():
        block(*problem())
    assert torch.ops.deltanet.forward.default in seen

    with torch._subclasses.FakeTensorMode() as mode:
        fakes = [mode.from_tensor(tensor) for tensor in problem()]
        o, state = block(*fakes)
    assert o.shape == (2, 20, 4, 20) and state.shape == (2, 4, 20, 12)

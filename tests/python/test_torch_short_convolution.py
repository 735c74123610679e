"""deltanet.ops.short_convolution against its definition in float64: values, gradients, states, packing, tracing."""

import pytest

torch = pytest.importorskip("torch")
from torch.nn import functional as F  # noqa: E402

from deltanet import ops  # noqa: E402


def reference(x, weight, bias=None, activation=None, initial_state=None):
    """In float64, one sequence in each row; returns y and the final state."""
    width, tokens = weight.shape[1], x.shape[1]
    x, weight = x.double(), weight.double()
    before = x.new_zeros(x.shape[0], width - 1, x.shape[2]) if initial_state is None else initial_state.double()
    inputs = torch.cat([before, x], dim=1)
    y = sum(weight[:, j] * inputs[:, j : j + tokens] for j in range(width))
    if bias is not None:
        y = y + bias.double()
    return F.silu(y) if activation else y, inputs[:, tokens:]


def make(B=2, T=37, C=21, W=4, bias=True, state=True):
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(shape, generator=generator, requires_grad=True)

    return [
        normal(B, T, C),
        normal(C, W),
        normal(C) if bias else None,
        "silu",
        normal(B, W - 1, C) if state else None,
    ]


def error(actual, expected):
    return float(((actual.double() - expected).norm() / expected.norm()).detach())


def gradients(outputs, tensors):
    """Of a sum that weighs every element of the outputs differently."""
    weights = [torch.linspace(-1, 1, output.numel()).view(output.shape).to(output.dtype) for output in outputs]
    total = sum((output * weight).sum() for output, weight in zip(outputs, weights))
    return torch.autograd.grad(total, tensors)


@pytest.mark.parametrize(
    "options", [{}, {"bias": False}, {"state": False}, {"W": 1}, {"W": 8, "T": 3}, {"T": 1}], ids=str
)
@pytest.mark.parametrize("activation", [None, "silu"])
def test_values_and_gradients(options, activation):
    arguments = make(**options)
    arguments[3] = activation
    tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
    given = ops.short_convolution(*arguments, output_final_state=True)
    expected = reference(*arguments)
    for actual, wanted in zip(given, expected):
        assert actual.dtype == torch.float32 and actual.shape == wanted.shape
        assert wanted.numel() == 0 or error(actual, wanted) < 1e-6
    for actual, wanted in zip(gradients(given, tensors), gradients(expected, tensors)):
        assert wanted.numel() == 0 or error(actual, wanted) < 1e-5


def test_without_gradients_it_gives_the_same():
    arguments = make()
    expected = ops.short_convolution(*arguments, output_final_state=True)
    with torch.no_grad():
        given = ops.short_convolution(*arguments, output_final_state=True)
    assert all(torch.equal(a, b) and not a.requires_grad for a, b in zip(given, expected))


def test_numbers_that_are_not_in_memory_yet():
    x, weight = (tensor.detach() for tensor in make()[:2])
    negated = torch._neg_view(-x)  # only marked as negative
    assert negated.is_neg() and negated.is_contiguous()
    assert torch.equal(ops.short_convolution(negated, weight)[0], ops.short_convolution(x, weight)[0])
    assert float(ops.short_convolution(torch._efficientzerotensor(x.shape), weight)[0].abs().sum()) == 0


def test_packed_sequences_are_apart():
    x, weight, bias, activation, _ = make(B=1, T=30)
    offsets = [0, 1, 1, 12, 30]
    states = torch.randn(4, 3, 21, requires_grad=True)
    tensors = [x, weight, bias, states]
    given = ops.short_convolution(x, weight, bias, activation, states, True, torch.tensor(offsets, dtype=torch.int32))
    parts = [
        reference(x[:, first:last], weight, bias, activation, states[n : n + 1])
        for n, (first, last) in enumerate(zip(offsets, offsets[1:]))
    ]
    expected = torch.cat([y for y, _ in parts], dim=1), torch.cat([state for _, state in parts])
    assert error(given[0], expected[0]) < 1e-6 and error(given[1], expected[1]) < 1e-6
    for actual, wanted in zip(gradients(given, tensors), gradients(expected, tensors)):
        assert error(actual, wanted) < 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_types_and_strides(dtype):
    x, weight, bias, activation, state = make()
    turned = x.detach().to(dtype).transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()
    y, final = ops.short_convolution(turned, weight, bias, activation, state, output_final_state=True)
    assert y.dtype == dtype and final.dtype == torch.float32
    assert error(y, reference(turned, weight, bias, activation, state)[0]) < 1e-2
    y.float().sum().backward()
    assert turned.grad.dtype == dtype


def test_opcheck_and_compile():
    x, weight, bias, activation, state = make(T=9)
    torch.library.opcheck(torch.ops.deltanet.short_conv.default, (x, weight, bias, state, None, True, True))
    compiled = torch.compile(
        lambda *tensors: ops.short_convolution(*tensors)[0] * 2, backend="aot_eager", fullgraph=True
    )
    expected = 2 * reference(x, weight, bias, activation)[0]
    assert error(compiled(x, weight, bias, activation), expected) < 1e-6


@pytest.mark.parametrize(
    "change, kind, message",
    [
        (dict(x=torch.zeros(2, 3)), ValueError, "x: given shape"),
        (dict(x=[1.0]), TypeError, "x: given list"),
        (dict(x=torch.zeros(2, 3, 21, dtype=torch.int64)), TypeError, "x: given a tensor of torch.int64"),
        (dict(x=torch.zeros(2, 3, 21, device="meta")), ValueError, "x: given a tensor on meta"),
        (dict(weight=torch.zeros(20, 4)), ValueError, "weight: given shape"),
        (dict(weight=torch.zeros(21, 9), initial_state=None), ValueError, "width of 9"),
        (dict(bias=torch.zeros(20)), ValueError, "bias: given shape"),
        (dict(initial_state=torch.zeros(2, 4, 21)), ValueError, "initial_state: given shape"),
        (dict(activation="relu"), ValueError, "activation: given 'relu'"),
        (dict(cu_seqlens=torch.tensor([0, 37]), initial_state=None), ValueError, "cu_seqlens"),
        (dict(cu_seqlens=torch.tensor([0.0, 37.0])), TypeError, "cu_seqlens"),
        (
            dict(x=torch.zeros(1, 37, 21), initial_state=None, cu_seqlens=torch.tensor([0, 38])),
            ValueError,
            "cu_seqlens",
        ),
        (dict(x=torch.zeros(1, 37, 21), initial_state=None, cu_seqlens=torch.tensor([])), TypeError, "cu_seqlens"),
    ],
)
def test_wrong_arguments_are_named(change, kind, message):
    arguments = dict(zip(("x", "weight", "bias", "activation", "initial_state"), make()))
    with pytest.raises(kind, match=message):
        ops.short_convolution(**{**arguments, **change})


def test_gradients_of_gradients_are_refused():
    x, weight = torch.randn(1, 5, 3, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    y, _ = ops.short_convolution(x, weight, activation="silu")
    (dx,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="create_graph"):
        dx.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tensors_without_memory_are_refused(dtype):
    freed = torch.randn(1, 5, 3, dtype=dtype)
    freed.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="x: given a tensor without memory"):
        ops.short_convolution(freed, torch.randn(3, 4))


@pytest.mark.parametrize("default", [torch.bfloat16, torch.float64])
def test_the_default_type_changes_nothing(default):
    x, weight, state = torch.randn(1, 500, 64), torch.randn(64, 4), torch.randn(1, 3, 64)
    expected, expected_state = ops.short_convolution(x, weight, initial_state=state, output_final_state=True)
    torch.set_default_dtype(default)
    try:
        y, final = ops.short_convolution(x, weight, initial_state=state, output_final_state=True)
    finally:
        torch.set_default_dtype(torch.float32)
    assert y.dtype == final.dtype == torch.float32
    assert torch.equal(y, expected) and torch.equal(final, expected_state)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*torch.jit.trace:DeprecationWarning")
def test_a_trace_holds_the_operator():
    weight = torch.randn(3, 4)
    traced = torch.jit.trace(lambda x: ops.short_convolution(x, weight)[0], torch.randn(1, 5, 3))
    x = torch.randn(1, 5, 3)
    assert torch.equal(traced(x), ops.short_convolution(x, weight)[0])

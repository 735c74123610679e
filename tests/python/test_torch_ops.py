"""deltanet.ops: every row against the float64 reference, and the behavior that users of PyTorch expect."""

import pytest

torch = pytest.importorskip("torch")

from torch_problems import ROWS, draw, error, reference  # noqa: E402

import deltanet  # noqa: E402
from deltanet import ops  # noqa: E402

TOLERANCE = 2e-5
STATES = {"S_final", "A_final", "P_final", "G_final"}


def run(row, tensors, **options):
    """Results of ops.recurrence by the names of the library."""
    o, S_final, second = ops.recurrence(row, **tensors, final_states=True, **options)
    results = {"o": o, "S_final": S_final}
    for name in ROWS[row]["outputs"]:
        if name not in results:
            results[name] = second
    return results


def compare(row, tensors, spec=None, tolerance=TOLERANCE, **options):
    results = run(row, tensors, **options)
    generator = torch.Generator().manual_seed(9)
    upstream = {f"d{name}": torch.randn(result.shape, generator=generator) for name, result in results.items()}
    expected, gradients = reference(spec or row, tensors, upstream)
    sum((result * upstream[f"d{name}"]).sum() for name, result in results.items()).backward()
    errors = {name: error(results[name], expected[name]) for name in expected}
    for name, tensor in tensors.items():
        if tensor.is_floating_point():
            assert tensor.grad.dtype == tensor.dtype
            # The reference knows symmetric matrices alone.
            grad = (tensor.grad + tensor.grad.mT) / 2 if name == "G0" else tensor.grad
            errors[f"d{name}"] = error(grad, gradients[name])
    assert max(errors.values()) < tolerance, errors
    return results


@pytest.mark.parametrize("row", ROWS)
def test_row_equals_reference(row):
    compare(row, draw(row))


def test_combinations_without_a_row_of_their_own_equal_the_reference():
    d = draw("comba")["d"]
    for name, choices, more in (
        ("pgdn", {"query": "minus_dk"}, {"d": d}),
        ("kda", {"query": "inverse"}, {"ridge": draw("p_mamba2")["ridge"], "g_atk": None, "beta_atk": None}),
        ("gdn_free", {"gain": "longhorn"}, {}),
        ("pgdn", {"precond": "atk_unstable"}, {"ridge": draw("pgdn_unstable")["ridge"], "log_atk_scale": None}),
    ):
        tensors = {key: value for key, value in {**draw(name), **more}.items() if value is not None}
        if choices == {"query": "inverse"}:
            tensors["A0"] = draw("p_mamba2")["A0"]
        row = {"row": name, **choices}
        outputs = deltanet._make_spec(row).output_names
        results = dict(zip(("o", "S_final", "A_final"), ops.recurrence(row, **tensors, final_states=True)))
        upstream = {key: torch.randn(results[key].shape) for key in outputs}
        expected, gradients = reference(row, tensors, {f"d{k}": v for k, v in upstream.items()})
        sum((results[key] * upstream[key]).sum() for key in outputs).backward()
        for key in outputs:
            assert error(results[key], expected[key]) < 1e-5
        for key, tensor in tensors.items():
            assert error(tensor.grad, gradients[key]) < 1e-4, key
            tensor.grad = None


def test_two_states_beside_S_are_refused_with_the_reason():
    with pytest.raises(ValueError, match="carries A_final and G_final"):
        ops.recurrence({"row": "pgdn", "query": "mesa"}, **{name: draw("pgdn")[name] for name in ("q", "k", "v")})


@pytest.mark.parametrize("row", ["gdn", "pkda", "mesa", "dplr", "retnet"])
def test_packed_sequences_equal_reference(row):
    for dtype in (torch.int64, torch.int32):
        tensors = draw(row, B=1, T=41, cu_seqlens=[0, 3, 30, 41])
        tensors["cu_seqlens"] = tensors["cu_seqlens"].to(dtype)
        compare(row, tensors)


@pytest.mark.parametrize("row", ROWS)
def test_sequences_without_tokens_keep_their_states(row):
    compare(row, draw(row, B=1, T=20, cu_seqlens=[0, 0, 0, 3, 3, 20, 20]))
    compare(row, draw(row, B=1, T=0, cu_seqlens=[0, 0, 0]))


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("B, T", [(0, 5), (2, 0)])
def test_batches_without_tokens_or_sequences_equal_reference(row, B, T):
    compare(row, draw(row, B=B, T=T))
    tensors = {name: tensor for name, tensor in draw(row, B=B, T=T).items() if name not in ("S0", "A0", "G0")}
    compare(row, tensors)


@pytest.mark.parametrize("B, T", [(0, 5), (2, 0)])
def test_shapes_are_checked_where_there_is_nothing_to_compute(B, T):
    for name in ("k", "v", "g", "beta", "S0", "A0", "log_atk_scale"):
        tensors = draw("pgdn", B=B, T=T)
        tensors[name] = torch.cat([tensors[name].detach()] * 2, dim=-1)
        if name == "v":  # its last axis is free
            tensors[name] = torch.zeros(B + 1, T + 1, 4, 20)
        for grad in (False, True):
            leaves = {key: tensor.detach().requires_grad_(grad) for key, tensor in tensors.items()}
            with pytest.raises(deltanet.Error, match=f"^{name}: given shape"):
                ops.recurrence("pgdn", **leaves)


@pytest.mark.parametrize("tokens", [1, 11, 12, 13, 64, 65])
def test_both_forms_equal_reference(tokens):
    compare("pgdn", draw("pgdn", T=tokens))


def test_options_reach_the_library():
    spec = {"row": "pgdn", "l2norm": True, "scale": 0.3, "x": 1.2, "eps": 1e-3}
    compare("pgdn", draw("pgdn"), spec, l2norm=True, scale=0.3, x=1.2, eps=1e-3)


@pytest.mark.parametrize("dtype, tolerance", [(torch.bfloat16, 2e-2), (torch.float16, 2e-3)])
def test_half_precision_computes_in_float32(dtype, tolerance):
    tensors = draw("pgdn", dtype=dtype)
    results = compare("pgdn", tensors, tolerance=tolerance)
    assert results["o"].dtype == dtype
    assert results["S_final"].dtype == results["A_final"].dtype == torch.float32
    wide = run("pgdn", {name: tensor.detach().float() for name, tensor in tensors.items()})
    assert torch.equal(results["o"], wide["o"].to(dtype))
    assert torch.equal(results["S_final"], wide["S_final"])


def test_types_may_differ_between_inputs():
    tensors = draw("gdn", dtype=torch.bfloat16)
    tensors["g"] = tensors["g"].detach().float().requires_grad_()
    compare("gdn", tensors, tolerance=2e-2)


def test_strided_inputs_are_used_where_they_are():
    tensors = draw("kda", B=2, U=2)
    strided = {
        name: torch.stack([tensor.detach(), tensor.detach()], dim=-1)[..., 0].requires_grad_()
        for name, tensor in tensors.items()
    }
    heads_first = {
        name: tensor.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()
        for name, tensor in tensors.items()
    }
    expected = compare("kda", tensors)
    for others in (strided, heads_first):
        assert not others["q"].is_contiguous()
        assert torch.equal(compare("kda", others)["o"], expected["o"])


def test_numbers_that_are_not_in_memory_yet():
    tensors = {name: tensor.detach() for name, tensor in draw("gdn").items()}
    expected = ops.recurrence("gdn", **tensors)[0]
    negated = torch.complex(tensors["q"], -tensors["q"]).conj().imag  # only marked as negative
    assert negated.is_neg()
    assert torch.equal(ops.recurrence("gdn", **{**tensors, "q": negated})[0], expected)
    zeros = torch._efficientzerotensor(tensors["v"].shape)
    o, S_final, _ = ops.recurrence("gdn", **{**tensors, "v": zeros, "S0": None}, final_states=True)
    assert float(o.abs().sum()) == float(S_final.abs().sum()) == 0
    for dtype in (torch.float32, torch.bfloat16):
        freed = tensors["v"].to(dtype, copy=True)
        freed.untyped_storage().resize_(0)
        with pytest.raises(ValueError, match="v: given a tensor without memory"):
            ops.recurrence("gdn", **{**tensors, "v": freed})
    with pytest.raises(ValueError, match="v: given a tensor of layout torch.sparse_coo"):
        ops.recurrence("gdn", **{**tensors, "v": tensors["v"].to_sparse()})


def test_gradients_of_a_subset_only():
    tensors = draw("gdn")
    ops.recurrence("gdn", **tensors)[0].sum().backward()
    chosen = draw("gdn")
    for name in ("q", "v", "g", "S0"):
        chosen[name].requires_grad_(False)
    o, S_final, second = ops.recurrence("gdn", **chosen)
    assert S_final is None and second is None
    o.sum().backward()
    assert chosen["q"].grad is None and chosen["S0"].grad is None
    assert torch.equal(chosen["k"].grad, tensors["k"].grad) and torch.equal(chosen["beta"].grad, tensors["beta"].grad)


def test_output_used_twice_and_graph_kept():
    tensors = draw("gdn")
    o = ops.recurrence("gdn", **tensors)[0]
    (2 * o + o).sum().backward(retain_graph=True)
    first = tensors["k"].grad.clone()
    (3 * o).sum().backward()
    assert torch.allclose(tensors["k"].grad, 2 * first)


def test_only_the_final_state_is_used():
    tensors = draw("pgdn")
    _, _, A_final = ops.recurrence("pgdn", **tensors, final_states=True)
    A_final.sum().backward()
    assert float(tensors["A0"].grad.abs().sum()) > 0
    assert float(tensors["v"].grad.abs().sum()) == 0


def test_no_grad_and_detached_inputs_record_nothing():
    tensors = draw("gdn")
    with torch.no_grad():
        assert not ops.recurrence("gdn", **tensors)[0].requires_grad
    with torch.inference_mode():
        expected = ops.recurrence("gdn", **tensors)[0]
    assert torch.equal(ops.recurrence("gdn", **tensors)[0], expected)


def test_gradients_of_gradients_are_refused():
    tensors = draw("gdn")
    (grad,) = torch.autograd.grad(ops.recurrence("gdn", **tensors)[0].sum(), tensors["k"], create_graph=True)
    with pytest.raises(NotImplementedError, match="gradients of gradients"):
        grad.sum().backward()


def test_a_batch_without_tokens_hands_the_gradient_of_its_state_on():
    tensors = draw("pgdn", T=0)
    results = run("pgdn", tensors)
    assert results["o"].shape == tensors["v"].shape and torch.equal(results["S_final"], tensors["S0"])
    (3 * results["S_final"]).sum().backward()
    assert torch.equal(tensors["S0"].grad, torch.full_like(tensors["S0"], 3.0))
    assert float(tensors["log_atk_scale"].grad.abs().sum()) == 0


def test_threads_follow_torch_and_do_not_change_bits():
    tensors = draw("pkda", T=500)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            leaves = {name: tensor.detach().requires_grad_() for name, tensor in tensors.items()}
            o = ops.recurrence("pkda", **leaves)[0]
            o.sum().backward()
            results.append([o, *(leaf.grad for leaf in leaves.values())])
    finally:
        torch.set_num_threads(before)
    for others in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], others))


def test_number_of_threads_is_that_of_torch(monkeypatch):
    from deltanet.ops import _library

    seen = []
    real = _library._core.torch_forward
    monkeypatch.setattr(_library._core, "torch_forward", lambda *args: seen.append(args[-1]) or real(*args))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    ops.recurrence("gdn", **draw("gdn", T=500))
    ops.recurrence("gdn", **draw("gdn", T=1))  # too little to share
    assert seen == [3, 1]


def test_inputs_changed_in_place_before_backward_are_noticed():
    tensors = draw("gdn")
    k = tensors["k"] * 1.0
    o = ops.recurrence("gdn", **{**tensors, "k": k})[0]
    with torch.no_grad():
        k.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.sum().backward()


@pytest.mark.parametrize(
    "change, kind, text",
    [
        (dict(k="k"), TypeError, r"k: given str; expected a tensor"),
        (dict(q=None), TypeError, r"q: given NoneType; expected a tensor"),
        (dict(k=None), deltanet.Error, r"k: is missing; expected \[B,T,H,K\]"),
        (dict(v=None), TypeError, r"v: given NoneType; expected a tensor"),
        (dict(v=torch.zeros(2, 37, 4, 20, device="meta")), ValueError, r"v: given a tensor on meta; expected .* CPU"),
        (
            dict(g=torch.zeros(2, 37, 4, dtype=torch.float64)),
            TypeError,
            r"g: given a tensor of torch.float64; expected",
        ),
        (dict(beta=torch.zeros(2, 37, 4, dtype=torch.int64)), TypeError, r"beta: given a tensor of torch.int64"),
        (dict(beta=torch.zeros(2, 37, 5)), deltanet.Error, r"beta: given shape \[2,37,5\]; expected \[B,T,HV\]"),
        (dict(q=torch.zeros(2, 37, 12)), deltanet.Error, r"q: given shape \[2, 37, 12\]; expected \[B,T,H,K\]"),
        (dict(k=torch.zeros(2, 37, 2, 2, 12)), deltanet.Error, r"k: given rank 5"),
        (dict(v=torch.zeros(2, 37, 3, 20)), deltanet.Error, r"v: has 3 heads; expected a multiple"),
        (dict(initial_state=torch.zeros(3, 4, 12, 20)), deltanet.Error, r"^initial_state: given shape \[3,4,12,20\]"),
        (dict(cu_seqlens=[0, 37]), TypeError, r"cu_seqlens: given list; expected a tensor"),
        (dict(cu_seqlens=torch.tensor([0.0, 37.0])), TypeError, r"cu_seqlens: given a tensor of torch.float32"),
        (dict(cu_seqlens=torch.tensor([0, 37])), deltanet.Error, r"cu_seqlens: given with a batch of 2"),
        (dict(cu_seqlens=torch.tensor([0])), deltanet.Error, r"cu_seqlens: given shape \[1\]"),
    ],
)
def test_errors_name_the_argument(change, kind, text):
    tensors = draw("gdn")
    arguments = {name: tensors[name] for name in ("q", "k", "v", "g", "beta")}
    for requires_grad in (False, True):
        for tensor in arguments.values():
            tensor.requires_grad_(requires_grad)
        with pytest.raises(kind, match=text):
            ops.chunk_gated_delta_rule(**{**arguments, **change})


def test_unknown_rows_and_inputs_are_refused():
    tensors = draw("gdn")
    with pytest.raises(deltanet.Error, match="gdm"):
        ops.recurrence("gdm", **tensors)
    with pytest.raises(deltanet.Error, match="ridge: is given, but this row does not use it"):
        ops.recurrence("gdn", **tensors, ridge=torch.ones(2, 12))

"""The Python module: results, the ways in which arrays may be given, and what it says about wrong input."""

import doctest
import pathlib
import threading
import time

import numpy as np
import pytest

import deltanet
from conftest import make_inputs, normwise_error


def assert_close(actual, expected, tolerance):
    assert set(actual) == set(expected)
    errors = {name: normwise_error(actual[name].astype(np.float64), expected[name]) for name in expected}
    assert max(errors.values()) <= tolerance, errors


def assert_same_bits(actual, expected):
    assert set(actual) == set(expected)
    for name in expected:
        np.testing.assert_array_equal(actual[name], expected[name], err_msg=name)


# ---- results


@pytest.mark.parametrize("mode", ["chunk", "recurrent"])
def test_forward_agrees_with_golden(golden, mode):
    results = deltanet.forward(golden.spec, golden.inputs, mode=mode)
    assert all(array.dtype == np.float32 for array in results.values())
    assert_close(results, golden.results, 5e-5 if golden.harsh else 2e-5)


def test_backward_agrees_with_golden(golden):
    grads = deltanet.backward(golden.spec, golden.inputs, golden.upstream)
    assert all(array.dtype == np.float32 for array in grads.values())
    assert_close(grads, golden.gradients, 5e-5 if golden.harsh else 2e-5)


def test_reference_agrees_with_golden(golden):
    results = deltanet.forward(golden.spec, golden.inputs, mode="reference")
    assert all(array.dtype == np.float64 for array in results.values())
    assert_close(results, golden.results, 1e-9)
    grads = deltanet.backward(golden.spec, golden.inputs, golden.upstream, mode="reference")
    assert all(array.dtype == np.float64 for array in grads.values())
    assert_close(grads, golden.gradients, 1e-9)


def test_golden_rows_are_rows_of_the_table(golden):
    spec = {row["name"]: row["spec"] for row in deltanet.rows()}[golden.row]
    of_its_run = {key: golden.spec[key] for key in ("l2norm", "l2norm_eps", "scale") if key in golden.spec}
    assert deltanet._make_spec(golden.spec).options == deltanet._make_spec({**spec, **of_its_run}).options
    named = {"row": golden.row, "l2norm": golden.spec["l2norm"], "l2norm_eps": golden.spec["l2norm_eps"]}
    assert_close(deltanet.forward(named, golden.inputs), deltanet.forward(golden.spec, golden.inputs), 1e-6)


def test_documented_example_works():
    failed, attempted = doctest.testmod(deltanet)
    assert attempted > 5 and failed == 0


def test_readme_example_works(capsys):
    readme = (pathlib.Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    code = readme.split("```python\n")[1].split("```")[0]
    exec(compile(code, "README.md", "exec"), {})
    assert float(capsys.readouterr().out) < 1e-5


# ---- rows and options


def test_rows_describe_the_table():
    rows = deltanet.rows()
    names = [row["name"] for row in rows]
    assert len(set(names)) == len(names)
    assert {"delta_net", "gdn", "kda", "pdn", "pgdn", "pkda", "rls", "mesa", "dplr", "rwkv7"} <= set(names)
    for row in rows:
        assert row["paper"] and row["summary"]
        assert {"q", "k", "v", "S0", "cu_seqlens"} <= set(row["inputs"])
        assert {"o", "S_final"} <= set(row["outputs"])
    pgdn = rows[names.index("pgdn")]
    assert pgdn["spec"]["decay"] == "scalar" and pgdn["spec"]["key"] == "stable"
    assert pgdn["spec"]["x"] == 1.5 and pgdn["spec"]["scale"] is None and pgdn["spec"]["l2norm"] is False
    assert "log_atk_scale" in pgdn["inputs"] and "A_final" in pgdn["outputs"]
    assert "log_atk_scale" not in rows[names.index("gdn")]["inputs"]


def test_a_row_can_be_a_name_a_spec_or_changed_options(inputs):
    named = deltanet.forward("pgdn", inputs)
    spec = {row["name"]: row["spec"] for row in deltanet.rows()}["pgdn"]
    assert_same_bits(deltanet.forward(spec, inputs), named)
    assert_same_bits(deltanet.forward({"row": "pgdn"}, inputs), named)
    assert_same_bits(deltanet.forward({"row": "pgdn", "scale": None, "x": np.float64(1.5)}, inputs), named)
    assert_same_bits(deltanet.forward({"decay": "scalar", "key": "stable"}, inputs), named)
    assert_same_bits(deltanet.forward({"precond": "atk_stable", "gain": "beta", "decay": "scalar"}, inputs), named)
    assert not np.array_equal(deltanet.forward({"row": "pgdn", "x": 2}, inputs)["o"], named["o"])


def test_scale_is_an_option(inputs):
    default = deltanet.forward("pgdn", inputs)["o"]
    doubled = deltanet.forward({"row": "pgdn", "scale": 2 * 12**-0.5}, inputs)["o"]
    np.testing.assert_allclose(doubled, 2 * default, rtol=1e-4, atol=1e-5)


# ---- how arrays may be given


def strided_copies(arrays):
    """The same values behind other strides: every second element, reversed, and with axes stored in another order."""
    for name, array in arrays.items():
        wide = np.full((*array.shape[:-1], 2 * array.shape[-1]), np.nan, array.dtype)
        wide[..., ::2] = array
        flipped = np.ascontiguousarray(array[..., ::-1])
        swapped = np.ascontiguousarray(np.moveaxis(array, 0, -1))
        yield name, wide[..., ::2]
        yield name, flipped[..., ::-1]
        yield name, np.moveaxis(swapped, -1, 0)


def test_strided_arrays_give_the_same_bits(inputs):
    expected = deltanet.forward("pgdn", inputs)
    upstream = {"d" + name: np.ones_like(array) for name, array in expected.items()}
    gradients = deltanet.backward("pgdn", inputs, upstream)
    for name, array in strided_copies(inputs):
        assert_same_bits(deltanet.forward("pgdn", {**inputs, name: array}), expected)
        assert_same_bits(deltanet.backward("pgdn", {**inputs, name: array}, upstream), gradients)
    for name, array in strided_copies(upstream):
        assert_same_bits(deltanet.backward("pgdn", inputs, {**upstream, name: array}), gradients)


def test_packed_projection_is_used_without_copies():
    """q, k and v as slices of one array, as a fused projection leaves them."""
    rng = np.random.default_rng(1)
    qkv = rng.standard_normal((2, 50, 3, 2, 16), dtype=np.float32)
    slices = {"q": qkv[:, :, 0], "k": qkv[:, :, 1], "v": qkv[:, :, 2]}
    dense = {name: array.copy() for name, array in slices.items()}
    assert_same_bits(deltanet.forward("linear_attn", slices), deltanet.forward("linear_attn", dense))


def test_large_strided_arrays_are_not_copied():
    import tracemalloc

    wide = np.zeros((1, 4096, 4, 128), np.float32)
    inputs = {"q": wide[..., ::2], "k": wide[..., 1::2], "v": wide[..., :1]}
    tracemalloc.start()
    deltanet.forward("linear_attn", inputs)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < inputs["q"].nbytes / 4


def test_inputs_are_not_written(inputs):
    before = {name: array.copy() for name, array in inputs.items()}
    for array in inputs.values():
        array.flags.writeable = False
    result = deltanet.forward("pgdn", inputs)
    deltanet.backward("pgdn", inputs, {"do": np.ones_like(result["o"])})
    assert_same_bits(inputs, before)


@pytest.mark.parametrize("dtype", [np.float64, ">f4", ">f8"])
def test_other_real_types_are_converted(inputs, dtype):
    converted = {name: array.astype(dtype) for name, array in inputs.items()}
    result = deltanet.forward("pgdn", converted)
    assert result["o"].dtype == np.float32
    assert_same_bits(result, deltanet.forward("pgdn", inputs))


def test_half_precision_integers_and_lists_are_converted():
    rng = np.random.default_rng(2)
    inputs = {name: rng.integers(-2, 3, (1, 9, 1, 4)) for name in "qkv"}
    expected = deltanet.forward("linear_attn", {name: a.astype(np.float32) for name, a in inputs.items()})
    assert_same_bits(deltanet.forward("linear_attn", inputs), expected)
    assert_same_bits(deltanet.forward("linear_attn", {n: a.astype(np.float16) for n, a in inputs.items()}), expected)
    assert_same_bits(deltanet.forward("linear_attn", {n: a.tolist() for n, a in inputs.items()}), expected)


def test_unaligned_arrays_work(inputs):
    raw = np.zeros(inputs["q"].nbytes + 1, np.uint8)[1:]
    q = raw.view(np.float32).reshape(inputs["q"].shape)
    q[...] = inputs["q"]
    record = np.zeros(inputs["k"].shape, np.dtype([("flag", "i1"), ("k", "<f4")]))
    record["k"] = inputs["k"]
    assert_same_bits(
        deltanet.forward("pgdn", {**inputs, "q": q, "k": record["k"]}), deltanet.forward("pgdn", inputs)
    )


def test_none_is_absent(inputs):
    without = {name: array for name, array in inputs.items() if name != "S0"}
    assert_same_bits(deltanet.forward("pgdn", {**inputs, "S0": None}), deltanet.forward("pgdn", without))
    upstream = {"do": np.ones((2, 37, 4, 20), np.float32)}
    gradients = deltanet.backward("pgdn", without, upstream)
    assert "S0" not in gradients
    assert_same_bits(deltanet.backward("pgdn", without, {**upstream, "dS_final": None}), gradients)


def test_packed_sequences_equal_separate_ones(inputs):
    one = make_inputs(B=1, T=60, seed=3)
    lengths = np.array([0, 7, 8, 60])
    states = {"S0": np.repeat(one["S0"], 3, 0), "A0": np.repeat(one["A0"], 3, 0)}
    packed = deltanet.forward("pgdn", {**one, **states, "cu_seqlens": lengths})
    for n, (begin, end) in enumerate(zip(lengths[:-1], lengths[1:])):
        part = {k: v[:, begin:end] if v.ndim >= 3 and v.shape[1] == 60 else v for k, v in one.items()}
        alone = deltanet.forward("pgdn", part)
        np.testing.assert_array_equal(packed["o"][:, begin:end], alone["o"])
        np.testing.assert_array_equal(packed["S_final"][n], alone["S_final"][0])
    for kind in (list, tuple, lambda x: np.array(x, np.int32), lambda x: np.array(x, np.uint64)):
        again = deltanet.forward("pgdn", {**one, **states, "cu_seqlens": kind([0, 7, 8, 60])})
        assert_same_bits(again, packed)


# ---- threads


@pytest.mark.parametrize("row", ["pgdn", {"row": "pgdn", "l2norm": True}])
def test_thread_count_does_not_change_bits(inputs, row):
    one = deltanet.forward(row, inputs, threads=1)
    upstream = {"d" + name: np.ones_like(array) for name, array in one.items()}
    gradients = deltanet.backward(row, inputs, upstream, threads=1)
    for threads in (2, 3, np.int64(2), None):
        assert_same_bits(deltanet.forward(row, inputs, threads=threads), one)
        assert_same_bits(deltanet.backward(row, inputs, upstream, threads=threads), gradients)


def runs_beside(call):
    """How many times another Python thread got a turn while call() ran."""
    turns, done = 0, threading.Event()

    def count():
        nonlocal turns
        while not done.is_set():
            turns += 1
            time.sleep(0.0005)

    other = threading.Thread(target=count)
    other.start()
    time.sleep(0.01)
    before = turns
    call()
    after = turns
    done.set()
    other.join()
    return after - before


@pytest.mark.parametrize("what", ["forward", "backward", "reference"])
def test_gil_is_released(what):
    inputs = make_inputs(B=1, T=60 if what == "reference" else 100_000, H=2, U=2, K=48, V=48)
    upstream = {"do": np.ones((1, inputs["q"].shape[1], 2, 48), np.float32)}
    calls = {
        "forward": lambda: deltanet.forward("pgdn", inputs, threads=1),
        "backward": lambda: deltanet.backward("pgdn", inputs, upstream, threads=1),
        "reference": lambda: deltanet.backward("pgdn", inputs, upstream, mode="reference"),
    }
    started = time.perf_counter()
    calls[what]()
    seconds = time.perf_counter() - started
    assert seconds > 0.01, "too short to tell"
    # On a busy machine the other thread may wait for a core; while the lock is held it has one turn at most.
    assert any(runs_beside(calls[what]) >= 3 for _ in range(50))


def test_calls_from_several_threads_do_not_disturb_each_other():
    problems = [make_inputs(T=200 + 10 * seed, seed=seed) for seed in range(6)]
    expected = [deltanet.forward("pgdn", inputs) for inputs in problems]
    results = [None] * len(problems)

    def work(i):
        for _ in range(5):
            results[i] = deltanet.forward("pgdn", problems[i], threads=2)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(len(problems))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for result, want in zip(results, expected):
        assert_same_bits(result, want)


# ---- SIMD targets and version


def test_simd_targets_can_be_forced(inputs):
    targets = deltanet.simd_targets()
    assert targets and deltanet.simd_target() in targets
    expected = deltanet.forward("pgdn", inputs, mode="reference")
    try:
        for target in targets:
            deltanet.set_simd_target(target)
            assert deltanet.simd_target() == target
            assert_close(deltanet.forward("pgdn", inputs), expected, 2e-5)
    finally:
        deltanet.set_simd_target()
    assert deltanet.simd_target() == targets[0]
    with pytest.raises(ValueError, match="NEON9"):
        deltanet.set_simd_target("NEON9")
    with pytest.raises(TypeError, match="name"):
        deltanet.set_simd_target(3)


def test_version_is_a_version():
    assert len(deltanet.__version__.split(".")) == 3
    assert deltanet.default_threads() >= 1


# ---- wrong input


def cut(array, axis):
    """The array without its last element along an axis."""
    return array.take(range(array.shape[axis] - 1), axis)


WRONG_SHAPES = {
    "q rank 3": ("q", lambda a: a[0]),
    "q rank 5": ("q", lambda a: a[None]),
    "q rank 0": ("q", lambda a: a[0, 0, 0, 0]),
    "k with another K": ("k", lambda a: cut(a, 3)),
    "k with another T": ("k", lambda a: cut(a, 1)),
    "k with another B": ("k", lambda a: cut(a, 0)),
    "v rank 3": ("v", lambda a: a[0]),
    "v with another T": ("v", lambda a: cut(a, 1)),
    "v heads not a multiple": ("v", lambda a: cut(a, 2)),
    "g rank 4": ("g", lambda a: a[..., None]),
    "g with another T": ("g", lambda a: cut(a, 1)),
    "g with key heads": ("g", lambda a: a[:, :, :2]),
    "beta with another U": ("beta", lambda a: cut(a, 2)),
    "g_atk with value heads": ("g_atk", lambda a: a.repeat(2, axis=2)),
    "beta_atk rank 2": ("beta_atk", lambda a: a[..., 0]),
    "log_atk_scale rank 2": ("log_atk_scale", lambda a: a[None]),
    "log_atk_scale with another H": ("log_atk_scale", lambda a: cut(a, 0)),
    "S0 with another N": ("S0", lambda a: cut(a, 0)),
    "S0 transposed": ("S0", lambda a: a.swapaxes(2, 3)),
    "A0 with another K": ("A0", lambda a: cut(a, 2)),
}


@pytest.mark.parametrize("mode", ["chunk", "recurrent", "reference", "backward"])
@pytest.mark.parametrize("case", WRONG_SHAPES)
def test_wrong_shapes_name_the_argument(inputs, case, mode):
    name, change = WRONG_SHAPES[case]
    inputs[name] = change(inputs[name])
    with pytest.raises(ValueError, match=rf"\b({name}|v)\b"):
        if mode == "backward":
            deltanet.backward("pgdn", inputs, {"do": np.ones((2, 37, 4, 20), np.float32)})
        else:
            deltanet.forward("pgdn", inputs, mode=mode)


@pytest.mark.parametrize("mode", ["chunk", "recurrent", "reference"])
@pytest.mark.parametrize("name", ["q", "k", "v", "g", "beta", "log_atk_scale"])
def test_missing_inputs_are_named(inputs, name, mode):
    del inputs[name]
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        deltanet.forward("pgdn", inputs, mode=mode)


WRONG_OFFSETS = {
    "decreasing": [0, 20, 10, 37],
    "not ending at T": [0, 10, 36],
    "beyond T": [0, 10, 38],
    "not starting at 0": [1, 10, 37],
    "negative": [0, -5, 37],
    "one number": [37],
    "none": np.zeros(0, np.int64),
    "two-dimensional": [[0, 37]],
}


@pytest.mark.parametrize("mode", ["chunk", "recurrent", "reference"])
@pytest.mark.parametrize("case", WRONG_OFFSETS)
def test_wrong_cu_seqlens_are_named(case, mode):
    inputs = {name: a for name, a in make_inputs(B=1).items() if name not in ("S0", "A0")}
    with pytest.raises(ValueError, match="cu_seqlens"):
        deltanet.forward("pgdn", {**inputs, "cu_seqlens": WRONG_OFFSETS[case]}, mode=mode)


@pytest.mark.parametrize("mode", ["chunk", "recurrent", "reference"])
def test_packing_needs_one_batch_entry(inputs, mode):
    with pytest.raises(ValueError, match="cu_seqlens|B = "):
        deltanet.forward("pgdn", {**inputs, "cu_seqlens": [0, 10, 37]}, mode=mode)


@pytest.mark.parametrize("mode", ["chunk", "recurrent", "reference"])
@pytest.mark.parametrize(
    "name, value",
    [("q", np.nan), ("v", np.inf), ("g", np.nan), ("g", 0.5), ("g_atk", 1e-3), ("beta", -np.inf), ("S0", np.nan)],
)
def test_values_are_checked_on_request(inputs, name, value, mode):
    inputs[name].flat[7] = value
    deltanet.forward("pgdn", inputs, mode=mode)
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        deltanet.forward("pgdn", inputs, mode=mode, check_values=True)
    if mode != "recurrent":
        with pytest.raises(ValueError, match=rf"\b{name}\b"):
            upstream = {"do": np.ones((2, 37, 4, 20), np.float32)}
            deltanet.backward("pgdn", inputs, upstream, mode=mode, check_values=True)


def test_good_values_pass_the_check(inputs):
    assert_same_bits(deltanet.forward("pgdn", inputs, check_values=True), deltanet.forward("pgdn", inputs))


@pytest.mark.parametrize(
    "row, text",
    [
        ("pgnd", "pgdn"),
        ("", "row"),
        ({"row": "nothing"}, "nothing"),
        ({"row": "gdn", "color": "red"}, "color"),
        ({"decay": "sideways"}, "sideways"),
        ({"row": "gdn", "squash": None}, "squash"),
        ({"row": "pgdn", "x": "wide"}, "wide"),
        ({"row": "pgdn", "x": 3.0}, "x"),
        ({"row": "pgdn", "x": float("nan")}, "x"),
        ({"row": "pgdn", "eps": -1}, "eps"),
        ({"row": "pgdn", "l2norm": "maybe"}, "l2norm"),
        ({"row": "longhorn", "norm": "inv"}, "norm"),
        ({"row": "rls", "decay": "diag"}, "decay"),
    ],
    ids=str,
)
def test_unknown_rows_and_options_are_named(inputs, row, text):
    with pytest.raises(ValueError, match=text):
        deltanet.forward(row, inputs)
    with pytest.raises(ValueError, match=text):
        deltanet.backward(row, inputs, {})


def test_unknown_arrays_are_named_with_what_the_row_takes(inputs):
    with pytest.raises(ValueError, match="'gamma'.*q, k, v.*cu_seqlens"):
        deltanet.forward("pgdn", {**inputs, "gamma": inputs["g"]})
    with pytest.raises(ValueError, match="'log_atk_scale'|'g_atk'|'beta_atk'|'A0'"):
        deltanet.forward("gdn", inputs)
    with pytest.raises(ValueError, match="'dP_final'.*do, dS_final, dA_final"):
        deltanet.backward("pgdn", inputs, {"dP_final": inputs["S0"]})


@pytest.mark.parametrize("mode", ["chunk", "reference"])
def test_wrong_upstream_shapes_are_named(inputs, mode):
    good = {"do": np.ones((2, 37, 4, 20), np.float32), "dS_final": np.ones((2, 4, 12, 20), np.float32)}
    for name in good:
        for wrong in (good[name][0], cut(good[name], 3), good[name][None]):
            with pytest.raises(ValueError, match=name):
                deltanet.backward("pgdn", inputs, {**good, name: wrong}, mode=mode)


def test_modes_and_threads_are_checked(inputs):
    with pytest.raises(ValueError, match="mode.*'chunk', 'recurrent', 'reference'"):
        deltanet.forward("pgdn", inputs, mode="fast")
    with pytest.raises(ValueError, match="mode"):
        deltanet.backward("pgdn", inputs, {}, mode="recurrent")
    for threads in (0, -1, 10**6):
        with pytest.raises(ValueError, match="threads"):
            deltanet.forward("pgdn", inputs, threads=threads)


@pytest.mark.parametrize(
    "change, argument",
    [
        (dict(row=3), "row"),
        (dict(row=None), "row"),
        (dict(row={"row": 3}), "row"),
        (dict(row={"row": "pgdn", "x": [1.5]}), "x"),
        (dict(row={3: "pgdn"}), "row"),
        (dict(inputs=[1, 2]), "inputs"),
        (dict(inputs=None), "inputs"),
        (dict(mode=1), "mode"),
        (dict(threads="two"), "threads"),
        (dict(threads=1.5), "threads"),
        (dict(threads=True), "threads"),
    ],
    ids=str,
)
def test_wrong_types_are_type_errors(inputs, change, argument):
    arguments = {"row": "pgdn", "inputs": inputs, **change}
    with pytest.raises(TypeError, match=argument):
        deltanet.forward(**arguments)


@pytest.mark.parametrize("mode", ["chunk", "reference"])
@pytest.mark.parametrize(
    "value",
    ["text", object(), {"a": 1}, [[1.0], [1.0, 2.0]], np.zeros((2, 37, 2, 12), complex), np.zeros(3, "datetime64[s]")],
    ids=lambda value: type(value).__name__ + str(getattr(value, "dtype", "")),
)
def test_things_that_are_no_arrays_are_type_errors(inputs, value, mode):
    with pytest.raises(TypeError, match="k"):
        deltanet.forward("pgdn", {**inputs, "k": value}, mode=mode)
    with pytest.raises(TypeError, match="do"):
        deltanet.backward("pgdn", inputs, {"do": value}, mode=mode)
    with pytest.raises(TypeError, match="cu_seqlens"):
        deltanet.forward("pgdn", {**inputs, "cu_seqlens": value}, mode=mode)


def test_fractional_cu_seqlens_are_type_errors():
    with pytest.raises(TypeError, match="cu_seqlens.*integers"):
        deltanet.forward("pgdn", {**make_inputs(B=1), "cu_seqlens": [0.0, 37.0]})


def test_error_is_a_value_error():
    assert issubclass(deltanet.Error, ValueError)
    with pytest.raises(deltanet.Error):
        deltanet.forward("no such row", {})


# ---- edges


@pytest.mark.parametrize("T", [1, 2, 15, 16, 17, 63, 64, 65, 129])
def test_every_length_agrees_with_the_reference(T):
    inputs = make_inputs(T=T, seed=T)
    expected = deltanet.forward("pgdn", inputs, mode="reference")
    for mode in ("chunk", "recurrent"):
        assert_close(deltanet.forward("pgdn", inputs, mode=mode), expected, 2e-5)


def test_results_outlive_inputs_and_calls():
    results = [deltanet.forward("pgdn", make_inputs(seed=seed))["o"] for seed in range(20)]
    again = [deltanet.forward("pgdn", make_inputs(seed=seed))["o"] for seed in range(20)]
    for first, second in zip(results, again):
        np.testing.assert_array_equal(first, second)
        assert first.flags.c_contiguous and first.flags.writeable

"""Random problems for the operators of deltanet.ops, and what the float64 reference says about them."""

import numpy as np
import torch

import deltanet

ROWS = {row["name"]: row for row in deltanet.rows()}
_AXES = {
    "v": "BTUV",
    "beta": "BTU",
    "beta_erase": "BTU",
    "d": "H",
    "g_atk": "BTH",
    "beta_atk": "BTH",
    "log_atk_scale": "H",
    "ridge": "HK",
    "S0": "NUKV",
    "A0": "NHK",
    "G0": "NHKK",
}
_DECAY_AXES = {"constant": "U", "const": "U", "scalar": "BTU", "diag": "BTUK", "diagonal": "BTUK"}


def draw(row, B=2, T=37, H=2, U=4, K=12, V=20, cu_seqlens=None, dtype=torch.float32, seed=0):
    """Leaves for every input of the row, initial states included (P0 is not: RLS has its ridge)."""
    spec = ROWS[row]["spec"]
    weighted = spec["key"] == "rls" and (spec["decay"], spec["gain"]) != ("none", "one")
    if spec["tie_gates"] or spec["query"] == "mesa" or weighted:
        U = H
    sizes = dict(B=B, T=T, H=H, U=U, K=K, V=V, N=B if cu_seqlens is None else len(cu_seqlens) - 1)
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name in ROWS[row]["inputs"]:
        if name in ("cu_seqlens", "P0"):
            continue
        axes = _DECAY_AXES[spec["decay"]] if name == "g" else _AXES.get(name, "BTHK")
        if name == "ridge" and spec["key"] == "rls":
            axes = "H"
        shape = [sizes[axis] for axis in axes]
        values = _values(name, shape, generator)
        if name == "g" and spec["key"] == "rls":  # what P forgets is lost to its rounding
            values = values / 8
        if name in ("k_write", "k_erase"):  # near k: along other keys the state grows without end
            values = values * tensors["k"].detach().float()
        tensors[name] = values.to(dtype).requires_grad_()
    if cu_seqlens is not None:
        tensors["cu_seqlens"] = torch.tensor(cu_seqlens)
    return tensors


def _values(name, shape, generator):
    if name in ("g", "g_atk"):
        return -torch.rand(shape, generator=generator)
    if name in ("beta", "beta_erase", "beta_atk", "eta", "A0"):
        return torch.rand(shape, generator=generator)
    if name in ("ridge", "k_write", "k_erase"):
        return 0.5 + torch.rand(shape, generator=generator)
    values = torch.randn(shape, generator=generator)
    if name == "G0":
        return values @ values.transpose(-1, -2) / shape[-1]
    return values / shape[-1] ** 0.5 if name in ("k", "a", "b", "kk") else values


def reference(spec, tensors, upstream):
    """Results and gradients by the names of the library, from the float64 reference. upstream: {"do": ..., ...}."""
    arrays = {name: tensor.detach().double().numpy() for name, tensor in tensors.items() if tensor is not None}
    if "cu_seqlens" in arrays:
        arrays["cu_seqlens"] = arrays["cu_seqlens"].astype(np.int64)
    results = deltanet.forward(spec, arrays, mode="reference")
    grads = {name: tensor.double().numpy() for name, tensor in upstream.items()}
    return results, deltanet.backward(spec, arrays, grads, mode="reference")


def error(actual, expected):
    """The normwise difference; of an expectation that vanishes, the difference itself."""
    actual, expected = (torch.as_tensor(x).detach().double() for x in (actual, expected))
    assert actual.shape == expected.shape
    norm = expected.norm()
    return float((actual - expected).norm() / norm if norm > 1e-6 else (actual - expected).norm())

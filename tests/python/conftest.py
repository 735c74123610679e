"""Golden files of tests/golden as pytest parameters, and a small problem for tests that need any."""

import json
import pathlib
import sys
from dataclasses import dataclass, field

import numpy as np
import pytest

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
DTYPES = {"F32": "<f4", "F64": "<f8", "I64": "<i8"}


@pytest.fixture(autouse=True, scope="module")  # a test of an earlier file may have imported it
def our_models():
    """Some tests import flash-linear-attention, whose models of the same types need a GPU."""
    if "fla" in sys.modules:
        from deltanet import models

        models.register()


def read_safetensors(path):
    """All tensors of a safetensors file by name, and its metadata."""
    data = pathlib.Path(path).read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        tensors[name] = np.frombuffer(data[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors, metadata


@dataclass
class Golden:
    row: str
    spec: dict
    harsh: bool
    inputs: dict = field(default_factory=dict)
    results: dict = field(default_factory=dict)
    upstream: dict = field(default_factory=dict)
    gradients: dict = field(default_factory=dict)

    @staticmethod
    def read(path):
        tensors, metadata = read_safetensors(path)
        golden = Golden(metadata["row"], json.loads(metadata["spec"]), json.loads(metadata["harsh"]))
        for name, tensor in tensors.items():
            if name.startswith("grad."):
                golden.gradients[name.removeprefix("grad.")] = tensor
            elif name == "do" or name.endswith("_final") and name.startswith("d"):
                golden.upstream[name] = tensor
            elif name == "o" or name.endswith("_final"):
                golden.results[name] = tensor
            else:
                golden.inputs[name] = tensor
        return golden


def pytest_generate_tests(metafunc):
    if "golden" in metafunc.fixturenames:
        paths = sorted(GOLDEN.glob("*.safetensors"))
        metafunc.parametrize("golden", paths, ids=[path.stem for path in paths], indirect=True)


@pytest.fixture
def golden(request):
    return Golden.read(request.param)


def normwise_error(actual, expected):
    """||actual - expected|| / ||expected||; where expected vanishes the error itself."""
    assert actual.shape == expected.shape
    difference, norm = np.linalg.norm((actual - expected).ravel()), np.linalg.norm(expected.ravel())
    return difference / norm if norm > 1e-6 else difference


def make_inputs(B=2, T=37, H=2, U=4, K=12, V=20, seed=0):
    """Inputs of the row pgdn, which takes most kinds of them."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return rng.standard_normal(shape, dtype=np.float32)

    def uniform(*shape):
        return rng.random(shape, dtype=np.float32)

    return {
        "q": normal(B, T, H, K),
        "k": normal(B, T, H, K) / np.float32(K**0.5),
        "v": normal(B, T, U, V),
        "g": -uniform(B, T, U),
        "beta": uniform(B, T, U),
        "g_atk": -uniform(B, T, H),
        "beta_atk": uniform(B, T, H),
        "log_atk_scale": normal(H),
        "S0": normal(B, U, K, V),
        "A0": uniform(B, H, K),
    }


@pytest.fixture
def inputs():
    return make_inputs()

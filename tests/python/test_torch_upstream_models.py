"""Checkpoints written here load in the classes of flash-linear-attention: names, shapes and every value."""

import json
import warnings
from pathlib import Path

import pytest

import deltanet

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it would like to have a GPU
    upstream = pytest.importorskip("fla.models")

GOLDEN = Path(__file__).parents[1] / "golden" / "models"
CLASSES = {
    "delta_net": "DeltaNetForCausalLM",
    "gated_deltanet": "GatedDeltaNetForCausalLM",
    "kda": "KDAForCausalLM",
    "precond_gated_deltanet": "PrecondGatedDeltaNetForCausalLM",
    "precond_kda": "PrecondKDAForCausalLM",
}


def model_type(name):
    return json.loads((GOLDEN / name / "config.json").read_text())["model_type"]


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.iterdir() if model_type(path.name) in CLASSES))
def test_written_checkpoints_load_upstream(name, tmp_path):
    ours = deltanet.Model(GOLDEN / name)
    ours.save(tmp_path / "checkpoint")
    theirs, info = getattr(upstream, CLASSES[model_type(name)]).from_pretrained(
        tmp_path / "checkpoint", output_loading_info=True
    )
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    parameters = dict(theirs.named_parameters())
    assert sorted(parameters) == sorted(ours.parameter_names)
    for key, parameter in parameters.items():
        assert torch.equal(parameter, torch.from_numpy(ours.parameter(key))), key

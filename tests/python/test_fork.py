"""Children of fork(): multiprocessing's and those of a DataLoader, after the parent has used its threads."""

import multiprocessing
from pathlib import Path

import numpy as np
import pytest

import deltanet
from conftest import make_inputs

GOLDEN = Path(__file__).parents[1] / "golden"
LIMIT = 60  # seconds for what takes less than one


def calls():
    """What a child may be asked for, with several threads each."""
    model = deltanet.Model(GOLDEN / "models" / "pgdn_grouped_gated", threads=2)
    tokenizer = deltanet.Tokenizer(GOLDEN / "tokenizers" / "gpt2.json")
    inputs = make_inputs(T=600)
    ids = np.arange(200) % model.vocab_size
    d_o = {"do": np.ones((2, 600, 4, 20), np.float32)}
    return {
        "forward": lambda: deltanet.forward("pgdn", inputs, threads=3)["o"],
        "backward": lambda: deltanet.backward("pgdn", inputs, d_o, threads=3)["q"],
        "logits": lambda: model.logits(ids),
        "gradients": lambda: model.loss_and_grads(ids)[1]["model.layers.0.attn.q_proj.weight"],
        "generate": lambda: model.generate(ids[:9], max_new_tokens=5),
        "tokenizer": lambda: np.array(tokenizer.encode("Grüße, мир! " * 9)),
    }


def put_result(queue, call):
    queue.put(call())


@pytest.mark.parametrize("name", ["forward", "backward", "logits", "gradients", "generate", "tokenizer"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_computes_the_same(name):
    call = calls()[name]
    expected = call()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=put_result, args=(queue, call))
    child.start()
    try:
        result = queue.get(timeout=LIMIT)
    finally:
        child.kill()
        child.join()
    # oneDNN has one thread in the child, and may add in another order.
    assert np.allclose(result, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_workers_of_a_data_loader_compute():
    torch = pytest.importorskip("torch")
    from deltanet.ops import chunk_precond_gated_delta_rule

    given = {name: torch.from_numpy(value) for name, value in make_inputs(B=1, T=200).items() if name in ("q", "k", "v", "g")}
    beta, g_atk = torch.rand(1, 200, 4), -torch.rand(1, 200, 2)
    model = deltanet.Model(GOLDEN / "models" / "pgdn_grouped_gated", threads=2)
    tokenizer = deltanet.Tokenizer(GOLDEN / "tokenizers" / "gpt2.json")

    class Items(torch.utils.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            q = given["q"].clone().requires_grad_()
            o, *_ = chunk_precond_gated_delta_rule(
                q, given["k"], given["v"], g_atk, given["g"], g_atk.exp(), beta
            )
            o.sum().backward()
            ids = tokenizer.encode(f"item {i}")
            return o.detach(), q.grad, torch.from_numpy(model.logits(np.arange(100) % model.vocab_size)), len(ids)

    expected = [Items()[i] for i in range(4)]
    loader = torch.utils.data.DataLoader(
        Items(), batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=LIMIT
    )
    for got, want in zip(loader, expected, strict=True):
        for value, other in zip(got[:3], want[:3]):
            torch.testing.assert_close(value, other, rtol=1e-4, atol=1e-5)
        assert got[3] == want[3]

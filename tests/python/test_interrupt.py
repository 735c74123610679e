"""Ctrl-C: every long call ends soon with KeyboardInterrupt, and what it was called on is as it was before.

The calls are made in a process of their own, which says when one begins and, after the signal, when it has ended. Each
would take five seconds and more on two cores; the models are MesaNets, which are slow and need little memory.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import deltanet

# Seconds of CPU time, so that other processes do not matter: half a second of two threads. A fifth is what is promised;
# fresh pages for large results take longer where memory is short.
SOON = 1.0
# Python loses an interrupt that it handles in a finalizer, whose exceptions it ignores. Such a call is made again.
ATTEMPTS = 3

TOKENS = 100_000
CONFIG = {
    "model_type": "dgps", "row": "mesa", "hidden_size": 32, "num_hidden_layers": 2, "num_heads": 1, "head_dim": 256,
    "expand_v": 1.0, "intermediate_size": 32, "vocab_size": 64,
}  # fmt: skip
TOKENIZER = Path(__file__).parents[1] / "golden" / "tokenizers" / "gpt2.json"


def ids(count):
    return np.arange(count) * 7 % 64


def inputs(row, tokens):
    """The same token again and again, in no memory to speak of."""
    rng = np.random.default_rng(0)
    arrays = {"q": rng.standard_normal((1, 1, 1, 256)), "k": rng.standard_normal((1, 1, 1, 256)) / 16,
              "v": rng.standard_normal((1, 1, 1, 8))}  # fmt: skip
    if row == "mesa":
        arrays |= {"g": -np.ones((1, 1, 1)), "beta": np.ones((1, 1, 1))}
    arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
    arrays = {name: np.broadcast_to(array, (1, tokens, *array.shape[2:])) for name, array in arrays.items()}
    return arrays | {"ridge": np.ones((1, 256) if row == "mesa" else 1, np.float32)}


class Called:
    """What is called, and what it should be afterwards."""

    def __init__(self):
        self.model, self.other = (deltanet.Model.from_config(CONFIG, seed=1, threads=2) for _ in range(2))
        self.session, self.expected = (model.session(2) for model in (self.model, self.other))
        for session in (self.session, self.expected):
            session.generate([[1, 2, 3], [4]], max_new_tokens=3)
        self.scorer, self.expected_scorer = self.model.session(), self.other.session()
        for session in (self.scorer, self.expected_scorer):
            session.read([[3, 2, 1]])
        self.said = []
        self.tokenizer = deltanet.Tokenizer(TOKENIZER)

    def stream(self):
        for token in self.session.copy([0]).stream(None, max_new_tokens=10**8):
            self.said.append(token)

    def calls(self):
        model, session = self.model, self.session
        many, steps = [ids(TOKENS).tolist()] * 2, {"max_new_tokens": 10**8, "eos_token_id": ()}
        arrays, some = inputs("rls", 5_000_000), inputs("rls", 150_000)
        gradient = {"do": np.broadcast_to(np.ones(1, np.float32), (1, 150_000, 1, 8))}
        text = np.random.default_rng(0).integers(97, 123, 10**8, dtype=np.uint8)
        text[::8] = ord(" ")
        return {
            "forward": lambda: deltanet.forward("rls", arrays),
            "recurrent": lambda: deltanet.forward("rls", arrays, mode="recurrent", threads=1),
            "backward": lambda: deltanet.backward("rls", some, gradient),
            "reference": lambda: deltanet.forward("mesa", inputs("mesa", 10_000), mode="reference"),
            "logits": lambda: model.logits(ids(TOKENS // 2)),
            "loss": lambda: model.loss(ids(TOKENS)),
            "loss_and_grads": lambda: model.loss_and_grads(ids(TOKENS)),
            "train_step": lambda: model.train_step(ids(TOKENS)),
            "loglikelihood": lambda: model.loglikelihood([ids(TOKENS).tolist()] * 4, [[i] for i in range(4)]),
            "generate": lambda: model.generate([[1, 2]] * 3, **steps),
            "read": lambda: session.read(many),
            "log_probs": lambda: self.scorer.log_probs(ids(TOKENS)),
            "generate_after": lambda: session.generate(many, **steps),
            "stream": self.stream,
            "encode": lambda: self.tokenizer.encode(text.tobytes()),
        }

    def check(self):
        assert np.array_equal(self.model.logits(ids(50)), self.other.logits(ids(50)))
        more = [[5, 6, 7], [8]]  # with the token that each has not read yet, where that was not read meanwhile
        assert np.array_equal(self.session.read(more), self.expected.read(more))
        assert np.array_equal(self.scorer.read([[9]]), self.expected_scorer.read([[9]]))
        a, b = (model.train_step(ids(50)) for model in (self.model, self.other))
        assert a == b and np.array_equal(self.model.logits(ids(50)), self.other.logits(ids(50)))


NAMES = (
    "forward", "recurrent", "backward", "reference", "logits", "loss", "loss_and_grads", "train_step",
    "loglikelihood", "generate", "read", "log_probs", "generate_after", "stream", "encode",
)  # fmt: skip


def child():
    called = Called()
    calls = called.calls()
    for name in NAMES:
        for _ in range(ATTEMPTS):
            print(name, flush=True)
            try:
                calls[name]()
            except KeyboardInterrupt:
                print(time.process_time(), flush=True)
                break
            print("ended by itself", flush=True)
    called.check()
    print("unchanged", flush=True)


def cpu_time(pid):
    """Of a process so far, in seconds, as time.process_time() there."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_every_call_ends_and_leaves_all_as_it_was():
    process = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True)
    late = {}
    try:
        for name in NAMES:
            for _ in range(ATTEMPTS):
                assert process.stdout.readline() == f"{name}\n"
                begin = cpu_time(process.pid)
                while cpu_time(process.pid) < begin + 0.4:
                    time.sleep(0.01)
                sent = cpu_time(process.pid)
                process.send_signal(signal.SIGINT)
                said = process.stdout.readline()
                if said != "ended by itself\n":
                    late[name] = float(said) - sent
                    break
            assert name in late, f"{name} is never ended"
        assert process.stdout.readline() == "unchanged\n"
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.stdout.close()
    assert max(late.values()) < SOON, late


def test_an_exception_of_on_token_ends_the_call():
    model = deltanet.Model.from_config({**CONFIG, "head_dim": 32}, seed=1)
    said = []

    def on_token(sequence, token):
        said.append(sequence)
        if len(said) == 5:
            raise KeyError("mine")

    session = model.session(3)
    with pytest.raises(KeyError, match="mine"):
        session.generate([[1], [2], [3]], max_new_tokens=50, on_token=on_token)
    assert said == [0, 1, 2, 0, 1]
    # Each goes on after the second token that was chosen for it.
    more = session.generate(None, max_new_tokens=4)
    for prompt, tokens in zip(([1], [2], [3]), more):
        assert model.generate(prompt, max_new_tokens=6)[3:].tolist() == tokens.tolist()


if __name__ == "__main__":
    child()

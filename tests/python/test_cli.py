"""The program as a user meets it: checkpoints in and out, generation, chat, and what it says to broken input.

DELTANET_PROGRAM names the program; by default build/release/deltanet.
"""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = Path(os.environ.get("DELTANET_PROGRAM", ROOT / "build/release/deltanet"))
GOLDEN = ROOT / "tests" / "golden"
MODEL = GOLDEN / "models" / "pgdn"  # 256 tokens: bytes

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} is not built")


def run(*arguments, stdin=b"", **more):
    return subprocess.run([PROGRAM, *map(str, arguments)], input=stdin, capture_output=True, timeout=120, **more)


def succeed(*arguments, **more):
    result = run(*arguments, **more)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout


def fail(*arguments, **more):
    """Runs into an error; returns the one line about it."""
    result = run(*arguments, **more)
    text = result.stderr.decode()
    assert result.returncode == 1, (result.returncode, text)
    assert text.startswith("deltanet: [") and text.count("\n") == 1, text
    return text


def generate(*arguments, model=MODEL, **more):
    return succeed("generate", model, "--quiet", *arguments, **more).removesuffix(b"\n")


def files(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture
def checkpoint(tmp_path):
    """A copy to break."""
    target = tmp_path / "checkpoint"
    target.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(MODEL / name, target)
    return target


# ---- info, convert, init


def test_info_of_a_directory_and_of_presets():
    text = succeed("info", MODEL).decode()
    assert "precond_gated_deltanet" in text and "model.embeddings.weight" in text and "F32" in text
    assert "342,184,896" in succeed("info", "--preset", "pgdn-340m").decode()
    assert json.loads(succeed("info", "--preset", "gdn-1b", "--json"))["parameter_count"] == 995_009_952
    assert "pkda-1b" in succeed("info", "--presets").decode().split()
    described = json.loads(succeed("info", MODEL, "--json"))
    assert sum(parameter["count"] for parameter in described["parameters"]) == described["parameter_count"]


def test_convert_there_and_back(tmp_path):
    bf16, sharded, back = (tmp_path / name for name in ("bf16", "sharded", "back"))
    succeed("convert", MODEL, bf16, "--dtype", "bf16")
    assert json.loads((bf16 / "config.json").read_text())["dtype"] == "bfloat16"
    assert (bf16 / "model.safetensors").stat().st_size < 0.6 * (MODEL / "model.safetensors").stat().st_size
    succeed("convert", bf16, sharded, "--dtype", "f32", "--max-shard-gb", "0.0001")
    assert len(list(sharded.glob("model-*.safetensors"))) > 1 and not (sharded / "model.safetensors").exists()
    succeed("convert", sharded, back, "--dtype", "bf16")
    assert files(back) == files(bf16)
    succeed("convert", MODEL, tmp_path / "same", "--no-checksums")
    assert (tmp_path / "same/model.safetensors").read_bytes() == (MODEL / "model.safetensors").read_bytes()
    succeed("convert", MODEL, tmp_path / "f16", "--dtype", "f16")
    assert b'"F16"' in (tmp_path / "f16/model.safetensors").read_bytes()[:4000]
    assert generate("--prompt", "a", model=sharded) == generate("--prompt", "a", model=back)


def values_of(path):
    """The bytes of a safetensors file behind its header."""
    data = path.read_bytes()
    return data[8 + int.from_bytes(data[:8], "little") :]


@pytest.mark.parametrize("shards", [(), ("--max-shard-gb", "0.0001")])
def test_a_flipped_bit_is_found(tmp_path, shards):
    target = tmp_path / "checked"
    succeed("convert", MODEL, target, *shards)
    if not shards:
        assert values_of(target / "model.safetensors") == values_of(MODEL / "model.safetensors")
    count = len(json.loads(succeed("info", MODEL, "--json"))["parameters"])
    assert succeed("info", "--check", target).decode() == f"All {count} tensors are as they were written.\n"
    path = max(target.glob("*.safetensors"))
    whole = path.read_bytes()
    for place in (len(whole) - len(values_of(path)), len(whole) - 1):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        complaint = fail("info", "--check", target)
        assert f"1 of {count} tensors are not what was written" in complaint and f'{path}: tensor "' in complaint
    assert "No checksums" in succeed("info", "--check", MODEL).decode()
    assert "expected a checkpoint directory" in fail("info", "--check", "--preset", "pgdn-340m")


def test_a_checkpoint_is_replaced_only_by_force(tmp_path):
    target = tmp_path / "target"
    succeed("convert", MODEL, target, "--max-shard-gb", "0.0001")
    before = files(target)
    assert "--force" in fail("convert", MODEL, target)
    assert files(target) == before
    succeed("convert", MODEL, target, "--force")
    assert sorted(files(target)) == ["config.json", "model.safetensors"]


def test_init_follows_its_seed(tmp_path):
    config = MODEL / "config.json"
    for name, seed in ("a", 1), ("b", 1), ("c", 2):
        succeed("init", tmp_path / name, "--config", config, "--seed", seed)
    assert files(tmp_path / "a") == files(tmp_path / "b") != files(tmp_path / "c")
    generate("--prompt", "a", model=tmp_path / "a")
    assert "pgdn-7t" in fail("init", tmp_path / "d", "--preset", "pgdn-7t")
    assert "--preset" in fail("init", tmp_path / "d")
    assert not (tmp_path / "d").exists()


# ---- generate


def test_generate_is_greedy_and_stops_where_it_should():
    whole = generate("--prompt", "Hello", "-n", 40)
    assert whole.startswith(b"Hello") and whole == generate("--prompt", "Hello", "-n", 40, "--threads", 1)
    assert generate("--prompt", "Hello", "-n", 0) == b"Hello"
    assert succeed("generate", "-q", "-n", 40, "--prompt", "Hello", MODEL) == whole + b"\n"
    for weights in "bf16", "int8":
        assert generate("--prompt", "Hello", "-n", 3, "--weights", weights).startswith(b"Hello")


def sampled(*arguments):
    """Printable text: letters only are likely enough to be chosen often."""
    return generate("--prompt", "Hello", "-n", 60, "-t", 1.5, *arguments)


def test_seeds_decide_what_is_drawn():
    assert sampled("--seed", 1) == sampled("--seed", 1) != sampled("--seed", 2)
    assert sampled("--seed", 1, "--top-k", 1) == generate("--prompt", "Hello", "-n", 60)
    narrow = sampled("--seed", 1, "--top-p", 0.5, "--min-p", 0.1, "--repetition-penalty", 1.3)
    assert narrow != sampled("--seed", 1)


def test_every_option_of_sampling_reaches_the_sampler():
    greedy, wild = generate("--prompt", "Hello", "-n", 60), sampled("--seed", 1)
    for narrow in (("--top-k", 1), ("--top-p", 0), ("--min-p", 1)):
        assert sampled("--seed", 1, *narrow) == greedy, narrow
    for less in (("--top-k", 3), ("--top-p", 0.3), ("--min-p", 0.3), ("--repetition-penalty", 2)):
        assert sampled("--seed", 1, *less) not in (greedy, wild), less
    assert generate("--prompt", "Hello", "-n", 60, "-t", 0.5, "--seed", 1) not in (greedy, wild)


def test_stop_strings_are_not_shown():
    said = generate("--prompt", "Hello", "-n", 60, "-t", 1.0, "--seed", 3).removeprefix(b"Hello")
    stop = next(said[i : i + 1] for i in range(5, 60) if 32 < said[i] < 127)
    cut = generate("--prompt", "Hello", "-n", 60, "-t", 1.0, "--seed", 3, "--stop", stop.decode(), "--stop", "never")
    assert cut == b"Hello" + said[: said.index(stop)]
    assert "empty" in fail("generate", MODEL, "--prompt", "a", "--stop", "")


def test_a_batch_says_what_each_prompt_says_alone(tmp_path):
    (tmp_path / "long.txt").write_bytes(b"A file\n" * 20 + b"\xe2\x82")  # ends inside of a character
    text = generate("--prompt", "One", "--prompt", "Two, longer", "--prompt-file", tmp_path / "long.txt", "-n", 12)
    alone = [generate(*prompt, "-n", 12) for prompt in (["--prompt", "One"], ["--prompt", "Two, longer"])]
    alone.append(generate("--prompt-file", tmp_path / "long.txt", "-n", 12))
    assert text == b"\n\n".join(b"[%d]\n%s" % (n + 1, said) for n, said in enumerate(alone))


def test_states_continue_exactly(tmp_path):
    state, later = tmp_path / "state", tmp_path / "later"
    whole = generate("--prompt", "Hello", "-n", 30)
    first = generate("--prompt", "Hello", "-n", 12, "--save-state", state)
    assert first + generate("--load-state", state, "-n", 18, "--save-state", later) == whole
    more = generate("--prompt", "Hello", "-n", 30, "--save-state", tmp_path / "once")
    assert more == whole and later.read_bytes() == (tmp_path / "once").read_bytes()
    generate("--load-state", state, "-n", 2, "--weights", "bf16")
    assert "1 sequences" in fail("generate", MODEL, "--load-state", state, "--prompt", "a", "--prompt", "b")


def test_states_of_another_model_are_refused(tmp_path):
    state = tmp_path / "state"
    generate("--prompt", "Hello", "-n", 2, "--save-state", state)
    succeed("init", tmp_path / "other", "--config", MODEL / "config.json", "--seed", 9)
    text = fail("generate", tmp_path / "other", "--load-state", state, "--quiet")
    assert "another model" in text and str(state) in text
    state.write_bytes(state.read_bytes()[:-5])
    assert str(state) in fail("generate", MODEL, "--load-state", state, "--quiet")


def test_speed_is_told_at_the_end():
    result = run("generate", MODEL, "--prompt", "Hello", "-n", 5)
    assert re.search(rb"prompt 5 tokens, [\d.]+ tokens/s; generated 5 tokens, [\d.]+ tokens/s", result.stderr)


# ---- chat


def speaker(directory, words):
    """A model of bytes that says after each byte what comes after it in `words`, whatever stood before.

    Its layers add nothing to the embeddings, one for each byte, of which the head makes the next one.
    """
    deltanet = pytest.importorskip("deltanet")
    np = pytest.importorskip("numpy")
    model = deltanet.Model.from_config(
        {
            "model_type": "dgps", "row": "gdn", "hidden_size": 256, "num_hidden_layers": 1, "num_heads": 2,
            "head_dim": 16, "expand_v": 1.0, "intermediate_size": 16, "vocab_size": 256, "tie_word_embeddings": False,
        },
        seed=1,
    )  # fmt: skip
    head = np.zeros((256, 256), np.float32)
    for before, after in zip(words, words[1:]):
        head[after, before] = 1
    for name in model.parameter_names:
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            model.set_parameter(name, 0 * model.parameter(name))
    model.set_parameter("model.embeddings.weight", np.eye(256, dtype=np.float32))
    model.set_parameter("lm_head.weight", head)
    model.save(directory)
    return model


def heard_by(model, path, text):
    """Whether the state in a file is that of a model that has read the text."""
    session = model.session()
    session.read([list(text)])
    session.save(path.with_suffix(".expected"))
    from conftest import read_safetensors

    state, expected = (read_safetensors(name)[0] for name in (path, path.with_suffix(".expected")))
    assert state.keys() == expected.keys() and state["pending.0"].size == 0
    return all(abs(state[name] - expected[name]).max() < 1e-5 for name in expected if expected[name].dtype.kind == "f")


def test_a_stop_string_is_heard_once(tmp_path):
    # The answer to anything is "hi", after which the model begins our turn itself; one byte comes after another.
    model = speaker(tmp_path / "model", b":hi\nUser:")
    state, later = tmp_path / "state", tmp_path / "later"
    options = ("-t", 0, "-n", 40, "--user-prefix", "User:", "--assistant-prefix", "\nMe:")
    talk = f"one\n/save {state}\ntwo\n/save {later}\n"
    result = run("chat", tmp_path / "model", *options, stdin=talk.encode())
    assert result.stdout == b"hi\nhi\n", result
    first, second = b"User:one\nMe:hi", b"\nUser:two\nMe:hi"
    assert heard_by(model, state, first)
    assert heard_by(model, later, first + second)
    assert not heard_by(model, later, first + b"\nUser:" + second)  # what it was before
    # From a file as from the talk itself.
    talk = f"/load {state}\ntwo\n/save {later}\n"
    assert run("chat", tmp_path / "model", *options, stdin=talk.encode()).stdout == b"hi\n"
    assert heard_by(model, later, first + second)


def test_tokens_that_the_tokenizer_lacks_are_not_said(tmp_path):
    deltanet = pytest.importorskip("deltanet")
    config = json.loads((MODEL / "config.json").read_text()) | {"vocab_size": 2560}
    model = deltanet.Model.from_config(config, seed=1)
    model.save(tmp_path / "model")
    assert max(model.generate(list(b"Hello"), max_new_tokens=30, seed=1, temperature=3.0)) >= 256
    arguments = ("--tokenizer", "bytes", "-n", 30, "--seed", 1, "-t", 3)
    assert len(generate("--prompt", "Hello", *arguments, model=tmp_path / "model")) >= 35
    result = run("chat", tmp_path / "model", *arguments, stdin=b"Hello\n")
    assert result.returncode == 0 and not result.stderr and len(result.stdout) > 5


def test_chat_from_a_pipe(tmp_path):
    state = tmp_path / "state"
    talk = f"Hello\n\n/save {state}\nAgain\n/nonsense\n/load {tmp_path / 'none'}\n/reset\n/load {state}\nAgain\n/quit\nno\n"
    result = run("chat", MODEL, "-n", 8, "-t", 0, stdin=talk.encode())
    assert result.returncode == 0 and state.exists()
    assert b"/reset" in result.stdout  # the list of commands, for one that is none
    assert result.stderr.count(b"\n") == 1 and b"none" in result.stderr  # the talk goes on after an error
    assert run("chat", MODEL, stdin=b"").returncode == 0
    generate("--prompt", "a", "--prompt", "b", "-n", 2, "--save-state", state)
    assert b"2 sequences" in run("chat", MODEL, stdin=f"/load {state}\n".encode()).stderr


# ---- errors


def test_missing_and_broken_files_are_named(checkpoint):
    missing = checkpoint / "missing"
    for command in ["info"], ["generate", "--prompt", "a"], ["convert", checkpoint.parent / "out"], ["chat"]:
        text = fail(command[0], missing, *command[1:])
        assert str(missing) in text
    weights = checkpoint / "model.safetensors"
    whole = weights.read_bytes()
    for broken in whole[:-1], whole[:100], b"", b"\xff" * 8 + whole[8:]:
        weights.write_bytes(broken)
        assert str(weights) in fail("generate", checkpoint, "--prompt", "a")
    weights.write_bytes(whole)
    config = json.loads((checkpoint / "config.json").read_text())
    for field, value in ("hidden_size", -1), ("num_heads", "two"), ("vocab_size", 2**62), ("model_type", "gpt2"):
        (checkpoint / "config.json").write_text(json.dumps(config | {field: value}))
        text = fail("generate", checkpoint, "--prompt", "a")
        assert str(checkpoint / "config.json") in text and field in text
    # Sizes that only the weights can contradict.
    (checkpoint / "config.json").write_text(json.dumps(config | {"vocab_size": 2**24, "intermediate_size": 2**20}))
    assert "embeddings" in fail("generate", checkpoint, "--prompt", "a")
    assert not (checkpoint.parent / "out").exists()


def test_a_missing_shard_is_named(tmp_path):
    succeed("convert", MODEL, tmp_path / "shards", "--max-shard-gb", "0.0001")
    shard = sorted((tmp_path / "shards").glob("model-*.safetensors"))[1]
    shard.unlink()
    assert shard.name in fail("generate", tmp_path / "shards", "--prompt", "a")


def test_wrong_tokenizers_are_refused(checkpoint):
    big = GOLDEN / "tokenizers" / "gpt2.json"
    assert "another model" in fail("generate", checkpoint, "--prompt", "a", "--tokenizer", big)
    (checkpoint / "tokenizer.json").write_text('{"model": 7}')
    assert "tokenizer.json" in fail("generate", checkpoint, "--prompt", "a")
    assert "tokenizer" in fail("generate", GOLDEN / "models" / "pdn_untied", "--prompt", "a")


def test_wrong_options_are_refused():
    for options in ["-n", -1], ["-t", -1], ["--top-p", 2], ["--weights", "f8"], ["--repetition-penalty", 0]:
        fail("generate", MODEL, "--prompt", "a", *options)
    assert "--prompt" in fail("generate", MODEL)
    assert "empty" in fail("generate", MODEL, "--prompt", "")
    for shard in "0", "-1", "nan", "1e30":
        assert run("convert", MODEL, "/nowhere", "--max-shard-gb", shard).returncode != 0


def test_a_full_disk_leaves_no_part_of_a_file(tmp_path, checkpoint):
    def limit():  # 20 kB for each file; without the signal, writing more is an error
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    target, state = tmp_path / "target", tmp_path / "state"
    assert "model.safetensors" in fail("convert", MODEL, target, preexec_fn=limit)
    assert not target.exists() or files(target) == {}
    before = files(checkpoint)
    fail("convert", MODEL, checkpoint, "--force", "--dtype", "bf16", preexec_fn=limit)
    assert files(checkpoint) == before
    text = fail("generate", MODEL, "--prompt", "a", "-n", 1, "--quiet", "--save-state", state, preexec_fn=limit)
    assert str(state) in text and sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == []


def test_tokenize_takes_any_name_of_a_file(tmp_path):
    (tmp_path / "[a,b]").write_text("12345")
    for name in ("[a,b]", "./[a,b]"):
        said = succeed("tokenize", name, "--tokenizer", "bytes", "--out", "out", "--force", cwd=tmp_path)
        assert b"out: 5 tokens" in said


def test_tokenize_counts_halves_of_surrogate_pairs(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "\\ud800 \\ud83d\\ude00"}\n' * 2)
    result = run("tokenize", tmp_path, "--tokenizer", "bytes", "--out", tmp_path / "out")
    assert result.returncode == 0 and b"16 tokens" in result.stdout
    assert result.stderr == b"2 halves of surrogate pairs in JSON stood alone and became U+FFFD\n"


# ---- the table of rows


# Typed from the paper: Eq. 4, 5, 9, D.2.1, Table 2 and App. G.3.
FORMULAS = {
    "dn": "S_t = S_{t-1} + β_t (v_t - S_{t-1} k_t) k_tᵀ,  o_t = S_t q_t    Eq. 4",
    "rls": "S_t = S_{t-1} + (v_t - S_{t-1} k_t) k̃_tᵀ,  o_t = S_t q_t    Eq. 5",
    "pdn": "S_t = S_{t-1} + β_t (v_t - S_{t-1} k_t) k̃_tᵀ,  o_t = S_t q_t    Eq. 9",
    "pgdn": "S_t = α_t S_{t-1} + β_t (v_t - α_t S_{t-1} k_t) k̃_tᵀ,  o_t = S_t q_t    Eq. 9",
    "retnet": "S_t = α S_{t-1} + v_t k_tᵀ,  o_t = S_t q_t    Sec. 5, offline",
    "p_mamba2": "S_t = α_t S_{t-1} + v_t k_tᵀ,  o_t = S_t q̃_t    Sec. 5, offline",
    "kp_mamba2": "S_t = α_t S_{t-1} + v_t k̃_tᵀ,  o_t = S_t q_t    App. G.3",
    "kda": "S_t = S_{t-1} Diag(α_t) + β_t (v_t - S_{t-1} Diag(α_t) k_t) k_tᵀ,  o_t = S_t q_t    Sec. 5, online",
    "longhorn": "S_t = S_{t-1} + ε_t (v_t - S_{t-1} k_t) k_tᵀ,  o_t = S_t q_t    Sec. 5, online",
    "dplr": "S_t = S_{t-1} (Diag(α_t) - a_t b_tᵀ) + v_t k_tᵀ,  o_t = S_t q_t    Eq. D.2.1",
}


@pytest.mark.parametrize("row", FORMULAS)
def test_a_row_is_shown_as_the_paper_has_it(row):
    lines = succeed("rows", row).decode().splitlines()
    assert lines[2] == "  " + FORMULAS[row]


def test_the_parts_of_a_formula_follow_it():
    text = succeed("rows", "pgdn_amplify").decode()
    for part in (
        "A_t = α_tᴾ A_{t-1} + β_tᴾ (k_t ⊙ k_t)    Eq. 9",
        "r_t = log(A_t) - μ,  s_t = r_t / (1 + |r_t|)    Eq. 9",
        "B_t = exp(-log(x) (s_t - 1)/2),  x = 1.5    App. E.3; in [1, x]",
        "k̃_t = B_t ⊙ k_t    Eq. 9",
        "μ = log_atk_scale",
    ):
        assert part in text
    assert "ε_t = β_t / (1 + β_t k_tᵀ k_t)    Table 2" in succeed("rows", "longhorn").decode()
    assert "q̃_t = q_t - d k_t    Table 2" in succeed("rows", "comba").decode()
    assert "q̃_t = (G_t + Λ)⁻¹ q_t    Eq. 3" in succeed("rows", "mesa").decode()


# ---- where what is said goes


CHEAP_COMMANDS = [
    ["rows"],
    ["rows", "pgdn"],
    ["--help"],
    ["--version"],
    ["train", "--help"],
    ["info", "--presets"],
    ["info", MODEL],
    ["info", MODEL, "--json"],
    ["generate", MODEL, "-q", "-p", "a", "-n", 3],
    ["generate", MODEL, "-q", "-p", "a", "-p", "b", "-n", 3],
    ["chat", MODEL, "-n", 3],
    ["bench", "floors", "--help"],
]


@pytest.mark.parametrize("command", CHEAP_COMMANDS, ids=lambda command: " ".join(map(str, command[:2])))
def test_a_full_disk_behind_standard_output_is_an_error(command):
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            [PROGRAM, *map(str, command)], input=b"Hello\n", stdout=full, stderr=subprocess.PIPE, timeout=120
        )
    assert result.returncode == 1
    assert result.stderr.startswith(b"deltanet: [output] standard output") and result.stderr.count(b"\n") == 1


def test_a_state_is_saved_where_nobody_reads_the_text(tmp_path):
    with open("/dev/full", "wb") as full:
        command = [PROGRAM, "generate", MODEL, "-q", "-p", "Hello", "-n", "3", "--save-state", tmp_path / "state"]
        assert subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=120).returncode == 1
    assert b"1 sequences" in run("generate", MODEL, "--load-state", tmp_path / "state", "-p", "a", "-p", "b").stderr


def test_a_closed_pipe_ends_the_program_quietly():
    for command in CHEAP_COMMANDS[:2] + CHEAP_COMMANDS[6:9]:
        reader, writer = os.pipe()
        os.close(reader)
        result = subprocess.run([PROGRAM, *map(str, command)], stdout=writer, stderr=subprocess.PIPE, timeout=120)
        os.close(writer)
        assert (result.returncode, result.stderr) == (-signal.SIGPIPE, b""), command


def test_closed_streams_do_not_get_into_files(tmp_path):
    state = tmp_path / "state"
    generate("--prompt", "Hello", "-n", 3, "--save-state", tmp_path / "expected")
    command = [PROGRAM, "generate", MODEL, "-p", "Hello", "-n", "3", "--save-state", state]
    subprocess.run(["sh", "-c", 'exec "$@" >&- 2>&- <&-', "sh", *command], timeout=120, check=True)
    assert state.read_bytes() == (tmp_path / "expected").read_bytes()


def test_devices_pipes_and_links_are_written_to(tmp_path):
    generate("--prompt", "Hello", "-n", 3, "--save-state", tmp_path / "expected")
    state = (tmp_path / "expected").read_bytes()
    save = ["generate", MODEL, "-q", "--prompt", "Hello", "-n", 0, "--save-state"]
    (tmp_path / "link").symlink_to(tmp_path / "linked")
    generate("--prompt", "Hello", "-n", 3, "--save-state", tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "linked").read_bytes() == state
    assert succeed("generate", MODEL, "--prompt", "Hello", "-n", 3, "--save-state", "/dev/stdout").endswith(state)
    with open(tmp_path / "log", "wb") as log:
        subprocess.run([PROGRAM, *map(str, save), "/dev/stdout"], stdout=log, timeout=120, check=True)
    assert (tmp_path / "log").read_bytes().startswith(b"Hello\n")
    assert "/dev/full: No space" in fail(*save, "/dev/full")
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE) as reader:
        generate("--prompt", "Hello", "-n", 3, "--save-state", tmp_path / "pipe")
        assert reader.stdout.read() == state
    assert (tmp_path / "pipe").is_fifo()


def test_results_are_written_as_a_whole(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "results.json")
    kernels = ["bench", "kernels", "--rows", "gdn", "--lengths", "64", "--heads", 1, "--seconds", 0.01]
    for command in ["verify", "--quick"], kernels:
        succeed(*command, "--json", tmp_path / "link")
        assert (tmp_path / "link").is_symlink() and json.loads((tmp_path / "results.json").read_text())
        assert "/dev/full" in fail(*command, "--json", "/dev/full")

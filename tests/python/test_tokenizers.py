"""Random patterns and texts through Hugging Face's tokenizers and through ours: the same ids, or a refusal."""

import json
import random

import pytest

import deltanet

tokenizers = pytest.importorskip("tokenizers")

ATOMS = r"""a s t k S F f i é ß ſ K 漢 ー 1 ½ _ ' - , \n \t \  \. \u00e9 \x{1F600} . ^ $ \A \z \Z \b \B \s \S \d \D \w \W \h \H \p{L}
    \P{L} \p{Lu} \p{^N} \p{Han} \p{Hira} \p{M} \pL [a-s] [^a-s] [\w'-] [^\s\p{L}] [\W\d] [sdmt] [[:alpha:]_] [^[:punct:]]
    [\p{Lu}ß] [k\n] [-a] [a-] []a] [^]a] { } {,} {2 a{x} \x41 ( ) [ * (?i) (?m) (?-i) (?i) (?s)""".split()
LITERALS = " 's|'t|ll|ss|st|fi|\\s+|\\p{L}+| ?|\\s*".split("|")
REPEATS = "* + ? *? +? ?? ++ *+ ?+ {2} {1,2} {,2} {2,} {1,3}? {2}? {2}+ {1,2}+ {3,2} {0}".split()
GROUPS = "(?: ( (?i: (?m: (?i-m: (?-i: (?= (?! (?<= (?<! (?>".split()
TEXT = "aassstkSF fi'-_,.12½éßſKﬁﬆ漢ーひ\n\r\t \u3000\u0301\u0130İ😀{}2,x[]pL"
MARK = "\ue000"


def random_pattern(rng, depth=0):
    parts = []
    for _ in range(rng.randint(1, 4)):
        kind = rng.random()
        if kind < 0.2 and depth < 3:
            parts.append(rng.choice(GROUPS) + random_pattern(rng, depth + 1) + ")")
        else:
            parts.append(rng.choice(ATOMS if kind < 0.8 else LITERALS))
        if rng.random() < 0.3:
            parts.append(rng.choice(REPEATS))
        if rng.random() < 0.15:
            parts.append("|")
    return "".join(parts)


def random_text(rng):
    return "".join(rng.choices(TEXT, k=rng.randint(0, 12)) + rng.choices(["", "  a", "st", "ss"], k=2) + rng.choices(TEXT, k=4))


def file_with(normalizer=None, pre_tokenizer=None, vocabulary=None, **model):
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer,
            "post_processor": None,
            "decoder": None,
            "model": {"type": "BPE", "vocab": vocabulary or BYTES, "merges": [], **model},
        }
    )


ALPHABET = tokenizers.pre_tokenizers.ByteLevel.alphabet()
BYTES = {character: id for id, character in enumerate(sorted(ALPHABET))}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def files_of(pattern, rng):
    """Files that show matches and pieces: what is replaced, how many pieces there are and where they begin."""
    regex = {"Regex": pattern}
    split = {
        "type": "Split",
        "pattern": regex,
        "behavior": rng.choice(["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]),
        "invert": rng.random() < 0.3,
    }
    mark = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": False}
    yield file_with(normalizer={"type": "Replace", "pattern": regex, "content": MARK}, pre_tokenizer=BYTE_LEVEL)
    yield file_with(pre_tokenizer=split, vocabulary={"?": 0}, unk_token="?", fuse_unk=True)
    yield file_with(pre_tokenizer={"type": "Sequence", "pretokenizers": [split, mark, BYTE_LEVEL]})


def ids_of(tokenizer, text):
    try:
        return tokenizer.encode(text).ids
    except BaseException as error:  # some texts are too much for it
        assert type(error).__name__ == "PanicException"
        return None


def differences(seed, patterns, folder):
    rng, wrong, used = random.Random(seed), [], 0
    for _ in range(patterns):
        pattern = random_pattern(rng)
        texts = [random_text(rng) for _ in range(8)]
        for file in files_of(pattern, rng):
            (folder / "tokenizer.json").write_text(file)
            try:
                ours = deltanet.Tokenizer(folder)
                theirs = tokenizers.Tokenizer.from_str(file)
            except Exception:
                break
            used += 1
            for text in texts:
                expected = ids_of(theirs, text)
                if expected is not None and ours.encode(text) != expected:
                    wrong.append((pattern, text))
                    break
    return wrong, used


def test_random_patterns_give_the_same_ids_or_are_refused(tmp_path):
    wrong, used = differences(seed=1, patterns=400, folder=tmp_path)
    assert not wrong
    assert used > 300

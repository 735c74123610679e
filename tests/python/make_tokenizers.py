"""Makes the files of tests/golden/tokenizers: small tokenizers, a corpus, and what Python's libraries say about it.

    pip install tokenizers sentencepiece
    python tests/python/make_tokenizers.py

Each tokenizer is trained on the text below. corpus.json holds the cases as lists of bytes written in hexadecimal;
<name>.expected.json holds, for each case: the ids; the ids with special tokens; their text; their text including
special tokens. null stands for "the same as before" (for the first text: the same as the case itself). Behind the
cases come ids alone, to be decoded only.
"""

import io
import json
import pathlib
import random

import sentencepiece
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

FOLDER = pathlib.Path(__file__).parent.parent / "golden" / "tokenizers"

TEXTS = [
    "The delta rule writes a value to a key, after it has read what the key held before; what was there is erased.",
    "A linear-attention model reads one token at a time, and its state doesn't grow: it's a matrix, you'll see.",
    "I'VE SEEN THAT THEY'RE HERE, we'd say; 'tis the user's 2nd try at 3.14159 and 1,234,567 things in 2024.",
    "Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva de crapaüter en canoë au delà des îles, près du mälström.",
    "Falsches Üben von Xylophonmusik quält jeden größeren Zwerg. Straße, Fuß, Äpfel.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Щучье, подъезд, объём.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ΟΔΥΣΣΕΥΣ, ὀδυσσεύς.",
    "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر ومغلف بجلد أزرق. ١٢٣٤",
    "דג סקרן שט בים מאוכזב ולפתע מצא לו חברה. שָׁלוֹם",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश। १२३",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน ๑๒๓",
    "天地玄黄，宇宙洪荒。日月盈昃，辰宿列张。いろはにほへと ちりぬるを。カタカナ ﾊﾝｶｸ",
    "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다.",
    "for (int i = 0; i < n; ++i) {\n\tsum += x[i] * y[i];  // dot\n}\nreturn sum;\r\n",
    "def f(x):\n    if x is None:\n        return []\n    return [v ** 2 for v in x]\n\n\n",
    "😀 👍🏽 👨‍👩‍👧‍👦 🇩🇪🇫🇷 ❤️ ½ ² Ⅷ № € — “quoted” …",
]

CASES = [
    "",
    " ",
    "  ",
    "a",
    " a",
    "a ",
    "Hello, world!  Hello   world ",
    "Hello\nworld\n\n\nHello\r\nworld\r\n\r\n  \n \t\n",
    "\t\ttabs\t and     many      spaces          ",
    "it's IT'S you'll YOU'LL we'Ve 'S ’s ' 's",
    "1 12 123 1234 12345 3.14 1e-10 0x1F 1,000,000 ½²Ⅷ١٢٣१२३",
    "caf\u00e9 cafe\u0301 \u212b \u00c5 A\u030a \ufb01 \ufb03 \u1e9b\u0323 \u0130stanbul \u01c5",
    "Привет, мир! Щи да каша — пища наша.",
    "Γειά σου Κόσμε. ΟΔΟΣ ὈΔΥΣΣΕΎΣ",
    "مرحبا بالعالم، كيف الحال؟ لا\u0640\u0640إله",
    "שלום עולם שָׁלוֹם",
    "नमस्ते दुनिया, क्षत्रिय ज्ञान",
    "สวัสดีชาวโลก น้ำ",
    "你好，世界。漢字かな交じり文、ﾊﾝｶｸ。𠀀𪚥",
    "안녕하세요 \u110b\u1161\u11ab\u1102\u1167\u11bc \u1100\u1161\u11a8 ㄱㄴㄷ",
    "👨‍👩‍👧‍👦👍🏽🇩🇪🇫🇷🏴󠁧󠁢󠁥󠁮󠁧󠁿❤️‍🔥 #️⃣ 😀😀",
    "\x00\x01\x02 a\x00b \x1b[0m \x7f \x85 \u200b\u200c\u200d\u2060\ufeff",
    "no\u00a0break\u2003em\u3000ideographic\u180e\u2028\u2029\u202f\u205f\u1680end",
    "<s>Hello</s> <s> </s>  <unk> <|end|> a<|end|>b <|end|>\n  tool  tool atool toolb TOOL Tool\u0301 <mask>  x",
    "\u2581\u2581underline\u2581 \u2581 x\u2581",
    "if (x != y && z >= 0) { a[i++] -= b->c; } /* comment */ #define X(y) y##_z\n",
    "https://example.org/path?q=1&r=%20#frag user@example.com C:\\dir\\file.txt",
    "a\u0301\u0323 a\u0323\u0301 o\u0302\u0323 \u1ed9 \u0344 \u0f73 \u2126 \ud7a3",
    "\ufffd\uffff\U0010ffff\ue000 \u0378 \U000e0001",
    "ſ's K'S 'ſ ǅungla ßtraße STRASSE",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "the" * 60,
    " " * 80 + "x" + "\n" * 70,
    "😀é天" * 25,
]

INVALID = [
    b"\xff", b"\xc3", b"a\xc3(b", b"\xe2\x82", b"\xe2\x82 x", b"\xf0\x9f\x98", b"\xf0\x9f\x98\x80\x80", b"\xed\xa0\x80 \xed\xbf\xbf",
    b"\xc0\x80\xc1\xbf", b"\xf4\x90\x80\x80\xf5\xf8", b"\xe0\x80\x80\xf0\x80\x80\x80", b"ok \xfe\xff ok \x80\x80 \xe5\xa4 \xe5\xa4\xa9",
    b"caf\xe9 na\xefve", b"\xf1\x80\x80 \xf1\x80 \xf1", bytes(range(256)),
]


def cases():
    random.seed(1)
    alphabet = sorted(set("".join(TEXTS + CASES)))
    made = ["".join(random.choices(alphabet, k=30)) for _ in range(10)]
    made += [" ".join(random.choices(" ".join(TEXTS).split(), k=25)) for _ in range(10)]
    return [text.encode() for text in TEXTS + CASES + made] + INVALID


CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def gpt2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 2, trainer)
    tokenizer.add_tokens([AddedToken("<|end|>", rstrip=True, normalized=False), AddedToken("tool", single_word=True)])
    return tokenizer


def llama3():
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(CL100K), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS * 2, trainer)
    tokenizer.add_special_tokens(["<s>", "</s>", AddedToken("<mask>", lstrip=True, rstrip=True)])
    tokenizer.add_tokens(["tool", AddedToken("<|end|>", lstrip=True)])
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<s> $A </s>",
                special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>")],
            ),
        ]
    )
    return tokenizer


BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def llama2():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        special_tokens=["<unk>", "<s>", "</s>", *BYTES],
        limit_alphabet=200,
        show_progress=False,
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(TEXTS * 2, trainer)
    tokenizer.pre_tokenizer = None
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = data["added_tokens"][:3]  # bytes are tokens of the model only
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def metaspace():
    """Everything that the others do not use: metaspace, unknown tokens, NFKC, lower case, digits and punctuation."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.Lowercase(),
            normalizers.Strip(left=False, right=True),
            normalizers.Replace(Regex(r"\s{3,}"), "  "),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(prepend_scheme="first"),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.Punctuation("contiguous"),
            pre_tokenizers.Split("e", "merged_with_previous"),
        ]
    )
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<unk>", "<s>", "</s>"], limit_alphabet=150, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS * 2, trainer)
    tokenizer.add_tokens([AddedToken("Tool", normalized=True), AddedToken("<|end|>", normalized=False, lstrip=True)])
    return tokenizer


def words():
    """Nothing is kept of white space; no decoder."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.NFD()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Whitespace(),
            pre_tokenizers.Split(Regex(r"\d{2}"), "merged_with_next"),
            pre_tokenizers.Split(Regex(r"[a-m]+"), "removed", invert=False),
            pre_tokenizers.Split(Regex(r"\p{Lu}|\W"), "contiguous", invert=True),
        ]
    )
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=["<unk>"], limit_alphabet=120, show_progress=False)
    tokenizer.train_from_iterator(TEXTS * 2, trainer)
    return tokenizer


def shortened(text, ids, special, decoded, decoded_all):
    return [
        ids,
        None if special == ids else special,
        None if decoded.encode() == text else decoded,
        None if decoded_all == decoded else decoded_all,
    ]


def hugging_face(name, tokenizer, texts):
    (FOLDER / f"{name}.json").write_text(tokenizer.to_str())
    tokenizer = Tokenizer.from_file(str(FOLDER / f"{name}.json"))
    results = []
    for text in texts:
        ids, special = (tokenizer.encode(text.decode(errors="replace"), add_special_tokens=flag).ids for flag in (False, True))
        results.append(shortened(text, ids, special, tokenizer.decode(special), tokenizer.decode(special, skip_special_tokens=False)))
    for ids in random_ids(tokenizer.get_vocab_size()):
        results.append([None, ids, tokenizer.decode(ids), tokenizer.decode(ids, skip_special_tokens=False)])
    write_expected(name, results)


def sentence_piece(name, texts, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS * 2), model_writer=model, vocab_size=700, hard_vocab_limit=False,
        normalization_rule_name="identity", minloglevel=2, num_threads=1, **options,
    )
    (FOLDER / f"{name}.model").write_bytes(model.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    results = []
    for text in texts:
        ids = processor.encode(text)
        special = [processor.bos_id(), *ids]
        decoded = processor.decode(special)
        results.append(shortened(text, ids, special, decoded, "<s>" + decoded))
    for ids in random_ids(processor.get_piece_size()):
        ids = [id for id in ids if not processor.is_control(id)]
        results.append([None, ids, processor.decode(ids), None])
    write_expected(name, results)


def random_ids(size):
    """Ids that no text gives: all kinds of broken bytes for the decoder."""
    random.seed(2)
    return [random.choices(range(size), k=20) for _ in range(20)]


def write_expected(name, results):
    text = json.dumps(results, ensure_ascii=False, separators=(",", ":"))
    (FOLDER / f"{name}.expected.json").write_text(text.replace("],[[", "],\n[["))


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    texts = cases()
    (FOLDER / "corpus.json").write_text(json.dumps([text.hex() for text in texts], indent=0))
    for make in (gpt2, llama3, llama2, metaspace, words):
        hugging_face(make.__name__, make(), texts)
    sentence_piece("sentencepiece_bpe", texts, model_type="bpe", byte_fallback=True, character_coverage=0.98,
                   split_digits=True, remove_extra_whitespaces=False)
    sentence_piece("sentencepiece_unigram", texts, model_type="unigram", character_coverage=0.98)
    print(f"tokenizers {tokenizers.__version__}, sentencepiece {sentencepiece.__version__}")


if __name__ == "__main__":
    main()

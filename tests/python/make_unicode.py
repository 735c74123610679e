"""Makes tests/golden/tokenizers/unicode.json: what Hugging Face's tokenizers makes of all characters.

    pip install tokenizers
    python tests/python/make_unicode.py

"properties" and "posix" hold the CRC-32 of the characters of each \\p{name} and [[:name:]]. "normalizers" and
"pre_tokenizers" hold [part as in tokenizer.json, name of the text, CRC-32 of the result]; a zero byte ends each piece. The
texts are all characters in their order ("all"), and most of them between a letter and marks of several kinds ("marked").
"""

import json
import pathlib
import sys
import zlib

from tokenizers import Regex, Tokenizer, models, normalizers

sys.path.append(str(pathlib.Path(__file__).parents[2] / "scripts"))
import make_unicode_tables as tables

FILE = pathlib.Path(__file__).parent.parent / "golden" / "tokenizers" / "unicode.json"
DENSE = [chr(code) for code in tables.CODES if code < 0x3400 or 0xF900 <= code < 0x30000]
TEXTS = {"all": tables.ALL, "marked": "".join(f"e{c}\u0316\u0338\u3099\u1161" for c in DENSE)}

PROPERTIES = """Letter Cased_Letter Uppercase_Letter Lowercase_Letter Titlecase_Letter Modifier_Letter Other_Letter Mark
    Combining_Mark Nonspacing_Mark Spacing_Mark Enclosing_Mark Number Decimal_Number Letter_Number Other_Number Punctuation
    Connector_Punctuation Dash_Punctuation Open_Punctuation Close_Punctuation Initial_Punctuation Final_Punctuation
    Other_Punctuation Symbol Math_Symbol Currency_Symbol Modifier_Symbol Other_Symbol Separator Space_Separator
    Line_Separator Paragraph_Separator Other Control Format Private_Use Unassigned L LC M N P S Z C Any Assigned ASCII
    Alpha Upper Lower Space Digit""".split()
POSIX = "alnum alpha digit lower punct space upper word xdigit".split()
PATTERNS = [
    r"\w", r"\W", r"[\w]", r"[\W]", r"[^\w]", r"\s", r"[^\S]", r"\d", r"\D", r"\h", r".", r"(?m:.)", r"[\p{Han}\p{^N}]",
    r"[^\r\n\p{L}\p{N}]", r"(?i)[a-z]", r"(?i:k|'S|[^x])", r"\u0041-\x{1F600}*", r"\b", r"a\B", "^.|.$", r"[[:^punct:]é-]",
]  # fmt: skip
SPLITS = [
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|\p{N}| ?[\p{P}\p{S}]+[\r\n/]*",
    r"\p{Han}+|[\p{Latin}&]+|(?<=\p{Greek})\P{Greek}{2,5}?|\b",
]


def crc(text):
    return zlib.crc32(text.encode())


def members(outside):
    return crc(normalizers.Replace(Regex(outside), "").normalize_str(tables.ALL))


def part(kind, value):
    tokenizer = Tokenizer(models.BPE())
    tokenizer = Tokenizer.from_str(json.dumps(json.loads(tokenizer.to_str()) | {kind: value}))
    return getattr(tokenizer, kind)


def normalizer(value, text="all"):
    return [value, text, crc(part("normalizer", value).normalize_str(TEXTS[text]))]


def pre_tokenizer(value):
    pieces = part("pre_tokenizer", value).pre_tokenize_str(TEXTS["all"])
    return [value, "all", crc("".join(piece + "\0" for piece, _ in pieces))]


def main():
    names = tables.CATEGORIES + tables.BINARY + [name for script in tables.scripts() for name in script] + PROPERTIES
    result = {
        "properties": {name: members(r"\P{%s}" % name) for name in names},
        "posix": {name: members("[[:^%s:]]" % name) for name in POSIX},
        "normalizers": [
            *(normalizer({"type": name}, text) for name in ("NFC", "NFD", "NFKC", "NFKD") for text in TEXTS),
            normalizer({"type": "Lowercase"}),
            *(normalizer({"type": "Replace", "pattern": {"Regex": text}, "content": "·"}) for text in PATTERNS),
        ],
        "pre_tokenizers": [
            *(pre_tokenizer({"type": "Digits", "individual_digits": flag}) for flag in (False, True)),
            pre_tokenizer({"type": "Punctuation", "behavior": "Isolated"}),
            pre_tokenizer({"type": "Whitespace"}),
            pre_tokenizer({"type": "WhitespaceSplit"}),
            *(
                pre_tokenizer({"type": "Split", "pattern": {"Regex": text}, "behavior": "Isolated", "invert": False})
                for text in SPLITS
            ),
        ],
    }
    FILE.write_text(json.dumps(result, indent=0, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

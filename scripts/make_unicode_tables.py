"""Makes src/data/unicode/unicode_tables.cc: what the parts of Hugging Face's tokenizers mean by their sets of characters.

    pip install tokenizers
    python scripts/make_unicode_tables.py

The parts of that library stand on different versions of Unicode: its regular expressions (Oniguruma) on another one than
its normal forms. So the library itself is asked about every character; only which characters the normal forms know, those
of Unicode 9, is asked from Perl, since a character without properties tells nothing.
"""

import pathlib
import re
import subprocess

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

FILE = pathlib.Path(__file__).parents[1] / "src" / "data" / "unicode_tables.cc"
CODES = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]  # surrogates are no characters
ALL = "".join(map(chr, CODES))
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-"

CATEGORIES = "Cc Cf Cn Co Ll Lm Lo Lt Lu Mc Me Mn Nd Nl No Pc Pd Pe Pf Pi Po Ps Sc Sk Sm So Zl Zp Zs".split()
BINARY = """Alphabetic Lowercase Uppercase White_Space Ideographic Unified_Ideograph Emoji Emoji_Presentation Emoji_Modifier
    Emoji_Modifier_Base Emoji_Component Extended_Pictographic""".split()
NEW_SCRIPTS = [  # since the Unicode that Perl knows
    ("Kawi", "Kawi"), ("Nagm", "Nag_Mundari"), ("Gara", "Garay"), ("Gukh", "Gurung_Khema"), ("Krai", "Kirat_Rai"),
    ("Onao", "Ol_Onal"), ("Sunu", "Sunuwar"), ("Todr", "Todhri"), ("Tutg", "Tulu_Tigalari"),
]  # fmt: skip


def perl(program):
    return subprocess.run(["perl", "-C", "-e", program], check=True, capture_output=True, text=True).stdout


def scripts():
    lines = perl(
        "use Unicode::UCD qw(prop_values prop_value_aliases);"
        'for (prop_values("sc")) { print join(" ", prop_value_aliases("sc", $_)), "\\n" }'
    )
    return sorted({tuple(line.split()) for line in lines.splitlines() if line} | set(NEW_SCRIPTS))


def of_property(name):
    """The characters that Oniguruma gives a property."""
    return set(normalizers.Replace(Regex(r"\P{%s}" % name), "").normalize_str(ALL))


def of_pre_tokenizer(pre_tokenizer):
    """The characters that are cut off from the letters around them."""
    split = pre_tokenizer.pre_tokenize_str
    return {character for character in ALL if len(split(f"a{character}a")) > 1}


def rust_word():
    split = pre_tokenizers.Whitespace().pre_tokenize_str
    return {character for character in ALL if len(split(f"a{character}a")) == 1}


def unknown_to_normal_forms():
    ranges = perl(
        r'for (0 .. 0x10FFFF) { next if $_ >= 0xD800 && $_ < 0xE000; print "$_ " if chr($_) !~ /\p{Present_In: 9.0}/ }'
    )
    return {chr(int(code)) for code in ranges.split()}


def number(value):
    """In base 32, lowest digit first; all digits but the last have 32 added."""
    digits = ""
    while value >= 32:
        digits += DIGITS[32 + value % 32]
        value //= 32
    return digits + DIGITS[value]


def encoded_set(characters):
    """The places where membership begins or ends, each as the distance to the one before."""
    codes = set(map(ord, characters))
    text, before = "", 0
    for code in range(0x110000):
        if (code in codes) != (code - 1 in codes):
            text += number(code - before)
            before = code
    return text + (number(0x110000 - before) if 0x10FFFF in codes else "")


def encoded_lower():
    """Runs of characters with the same distance to their small letter: gap, count - 1, step - 1, distance with its sign last."""
    lower = normalizers.Lowercase().normalize_str
    pairs = [(ord(c), ord(lower(c)) - ord(c)) for c in ALL if lower(c) != c and len(lower(c)) == 1]
    runs = []  # first, count, step, distance
    for code, distance in pairs:
        if runs and runs[-1][3] == distance:
            first, count, step, _ = runs[-1]
            gap = code - (first + (count - 1) * step)
            if gap <= 2 and (count == 1 or gap == step):
                runs[-1] = (first, count + 1, gap, distance)
                continue
        runs.append((code, 1, 1, distance))
    text, before = "", 0
    for first, count, step, distance in runs:
        text += number(first - before) + number(count - 1) + number(step - 1) + number(abs(distance) * 2 + (distance < 0))
        before = first
    return text


def literal(text):
    return [f'"{line}"' for line in re.findall(".{1,110}", text)]


def rows(entries):
    """As many entries in a line as fit."""
    row, result = "   ", []
    for entry in entries:
        if len(row) + len(entry) > 118:
            result.append(row)
            row = "   "
        row += " " + entry
    return [*result, row]


def set_entries(sets):
    for name, members in sorted(sets.items()):
        first, *others = literal(encoded_set(members))
        parts = [f'{{"{name}", {first}', *others]
        yield from parts[:-1]
        yield parts[-1] + "},"


def key(name):
    return name.lower().replace("_", "")


def main():
    sets = {key(name): of_property(name) for name in CATEGORIES + BINARY}
    aliases = {}
    for short, name, *others in scripts():
        sets[key(name)] = of_property(name)
        aliases.update({key(other): key(name) for other in (short, *others) if key(other) != key(name)})
    sets["rust word"] = rust_word()
    sets["rust numeric"] = of_pre_tokenizer(pre_tokenizers.Digits(individual_digits=True))
    sets["rust punctuation"] = of_pre_tokenizer(pre_tokenizers.Punctuation())
    sets["unknown to normal forms"] = unknown_to_normal_forms()

    lines = [
        f"// Made by scripts/make_unicode_tables.py with tokenizers {tokenizers.__version__}; not to be edited. The script says",
        "// how sets and mappings are encoded.",
        "",
        '#include "data/unicode.h"',
        "",
        "namespace deltanet::data {",
        "",
        "// clang-format off",
        "const std::span<const EncodedSet> kUnicodeSets = [] {",
        "  static constexpr EncodedSet kSets[] = {",
        *rows(set_entries(sets)),
        "  };",
        "  return std::span<const EncodedSet>(kSets);",
        "}();",
        "",
        "const std::span<const UnicodeAlias> kUnicodeAliases = [] {",
        "  static constexpr UnicodeAlias kAliases[] = {",
    ]
    lines += [
        *rows(f'{{"{short}", "{name}"}},' for short, name in sorted(aliases.items())),
        "  };",
        "  return std::span<const UnicodeAlias>(kAliases);",
        "}();",
        "",
        "const std::string_view kLowerRuns =",
        "\n".join("    " + line for line in literal(encoded_lower())) + ";",
        "// clang-format on",
        "",
        "}  // namespace deltanet::data",
    ]
    FILE.write_text("\n".join(lines) + "\n")
    by_property = {name: sets[name] for name in ("alphabetic", "nd", "pc", "mn", "mc", "me")}
    print("rust word as Oniguruma's:", sets["rust word"] - set("\u200c\u200d") == set().union(*by_property.values()))
    print("rust numeric as Oniguruma's:", sets["rust numeric"] == sets["nd"] | sets["nl"] | sets["no"])


if __name__ == "__main__":
    main()

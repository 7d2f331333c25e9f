"""Parts of a text that are no language: addresses, markup, code, emoji, numbers. They are copied.

`mask` puts a placeholder token (⟦0⟧, ⟦1⟧ ...) in place of each such part, `unmask` puts the parts back, in
whatever order the tokens stand. A model that was trained with `text.placeholders` has these tokens in its
vocabulary and learns to move them like words; `mask_pair` makes its training pairs.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable
from typing import Literal, NamedTuple, cast, get_args
from zlib import crc32

Kind = Literal[
    "token", "url", "email", "tag", "placeholder", "word", "path", "emoji", "code", "number", "script"
]
SCRIPT: frozenset[Kind] = frozenset({"script"})  # words in a script that is not Latin, in a text that is
KINDS: frozenset[Kind] = frozenset(get_args(Kind)) - SCRIPT  # of all texts, also those that train a model
TOKEN = re.compile("⟦[0-9]{1,3}⟧")
PLACEHOLDERS = 10  # of models that do not have them as tokens: marks for what is cut out

# --- what software texts must preserve: %s, %(name)s, {0}, <b>, &amp;, ${home}, URLs

TAG = r"<!--(?:(?!<!--|-->).)*+-->|</?[A-Za-z][^<>]*>|</?\d+/?>"
ENTITY = r"&(?:[A-Za-z][A-Za-z0-9]*|#\d+|#[xX][0-9A-Fa-f]+);"
BRACES = r"[%$#]?\{(?:[^{}]|\{[^{}]*\})*+\}"  # {name}, {{ name }}, ${name}, and ICU's {n, plural, one {..}}
CONVERSION = r"(?:\*|\d+)?(?:\.(?:\*|\d+))?(?:hh|h|ll|l|L|q|j|z|t)?[diouxXeEfFgGaAcCsSpnr@]"
PRINTF = rf"%%|%(?:\([^()\s]*\))?(?:\d+\$)?[-+#0']*{CONVERSION}|%L?\d+"  # C, Python, PHP, Objective-C, Qt
VARIABLE = r"\$[A-Za-z_]\w*"
ADDRESS = r"\bhttps?://[^\s<>\"']*[\w/]"

# --- the same in running text, where "50% off" is no conversion, and more

_URL = rf"{ADDRESS}|\b(?:ftp|file)://[^\s<>\"']*[\w/]|\bwww\.[\w-]+\.[^\s<>\"']*[\w/]"
_EMAIL = r"[\w.+-]++@[\w-]+(?:\.[\w-]+)+"
_IN_BRACES = r"\{\{[^{}\n]{1,60}\}\}|[%$#]?\{[^{}\s]{0,60}\}"
_FORMAT = rf"(?<![\d%])%(?:(?:\([^()\s]*\))?(?:\d+\$)?[-+#0']*{CONVERSION}|L?\d+)(?!\w)"
# A chunk without a space that no word is as long as; not in scripts that are written without spaces.
_SPACELESS = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\ua000-\ua4cf\uac00-\ud7ff\uf900-\ufaff"
_LONG = rf"(?<!\S)[^\s⟦{_SPACELESS}]{{60,}}+(?!\S)"
_SUFFIXES = (
    "com|org|net|edu|gov|info|io|dev|de|at|ch|fr|eu|uk|pdf|txt|docx?|xlsx?|pptx?|od[tsp]|csv|tsv|json|xml|ya?ml|toml|"
    "ini|cfg|conf|log|md|html?|css|js|ts|py|c|h|cpp|java|rs|go|sh|bat|exe|dll|so|zip|gz|tar|tgz|png|jpe?g|gif|svg|"
    "mp[34]|wav|avi|mov|iso|db|sql|po|srt|lock|bak"
)
_PATH = (
    r"(?<![\w/.<])(?:~|\.{1,2})?/[\w.+-]*\w(?:/[\w.+-]*\w)*/?"  # /etc/fstab, ~/notes, ./run
    r"|\b[A-Za-z]:\\[^\s\"<>|?*]*[\w\\]|\\\\[\w.-]+\\[^\s\"<>|?*]*\w"  # C:\Windows, \\host\share
    rf"|(?<![\w/.@])[\w-]+(?:[./][\w-]+)*\.(?:{_SUFFIXES})(?:/[\w./?=&%#-]*[\w/])?(?![\w-])"  # a/b.py
)
_EMOJI_BASE = (
    r"(?:[\U0001F1E6-\U0001F1FF]{2}|[0-9#*]\ufe0f?\u20e3|[\u00a9\u00ae\u203c\u2049\u2122\u2139]\ufe0f"
    r"|[\u2190-\u21ff\u2300-\u27bf\u2900-\u297f\u2b00-\u2bff\U0001F000-\U0001FAFF])"
)
_EMOJI_MORE = r"[\ufe0e\ufe0f\U0001F3FB-\U0001F3FF\U000E0020-\U000E007F]*"
_EMOJI = rf"(?:{_EMOJI_BASE}{_EMOJI_MORE}(?:\u200d{_EMOJI_BASE}{_EMOJI_MORE})*)+"
_CODE = (
    r"`[^`\n]+`"
    r"|(?<![\w-])--[A-Za-z][\w-]*(?:=[^\s,;]*\w)?"  # --option=3
    r"|(?<![\w.])(?:__\w+__|[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+)(?:\(\))?(?!\w)"  # snake_case
    r"|(?<![\w.])[a-z]+(?:[A-Z][A-Za-z0-9]*)(?:\(\))?(?!\w)"  # camelCase
    r"|(?<![\w.])[A-Za-z_][\w.]*\(\)"  # call()
    r"|(?<![\w-])[A-Z]{1,6}-?\d+[A-Z\d]*(?![\w-])"  # A380, GPT-2
    r"|(?<!\w)[@#][A-Za-z_]\w+"  # @name, #topic
)
_CURRENCY = r"[$€£¥₹₽]|(?:EUR|USD|GBP|CHF|JPY|CNY|CAD|AUD|SEK|NOK|DKK|PLN|CZK|INR)\b"
_UNIT = (
    r"(?:[kMG]?Hz|km/h|m/s|mph|[kcmµn]?m[²³]?|[kmµ]?g|[mcd]?l|[kM]?Wh?|m?V|mA|[kMGTP]i?B|dpi|px|pt|ha|min|dB|k?cal|k?J|t)(?!\w)"
    r"|°[CF]?|[%‰]"
)
_DIGITS = r"\d{1,3}(?:[ \u00a0\u202f]\d{3})+(?!\d)|\d+(?:[.,:'’/-]\d+)*"
_NUMBER = (
    r"(?<![\w.])(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?Z?"
    rf"|(?P<before>(?:{_CURRENCY})[ \u00a0]?)?(?P<sign>[-+±#]|v(?=\d+\.))?(?P<digits>{_DIGITS})"
    rf"(?P<behind>[ \u00a0\u202f]?(?:{_CURRENCY}|{_UNIT}))?)(?!\w|[ \u00a0]?[ap]\.?m\b)"  # 5:30 p.m. is 17.30
)
SPAN = re.compile(
    rf"(?P<token>{TOKEN.pattern})|(?P<url>{_URL})|(?P<email>{_EMAIL})|(?P<tag>{TAG}|\x1b\[[0-9;]*[A-Za-z])"
    rf"|(?P<placeholder>{_IN_BRACES}|{_FORMAT}|{VARIABLE}|{ENTITY})"
    rf"|(?P<word>{_LONG})|(?P<path>{_PATH})|(?P<emoji>{_EMOJI})|(?P<code>{_CODE})|(?P<number>{_NUMBER})"
)
_LETTER = r"[^\W\d_A-Za-z\u00aa-\u02ff\u1e00-\u1eff]"  # not Latin
_WORD = rf"{_LETTER}(?:{_LETTER}|[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0eff\u200c\u200d])*+"
SPAN_OR_SCRIPT = re.compile(rf"{SPAN.pattern}|(?P<script>(?<!\w){_WORD}(?:[ \u00a0]{_WORD})*+(?!\w))")
OTHER_LETTER = re.compile(_LETTER)
# A text without any of these has no span; most texts need no more than this search.
ANY = re.compile(
    r"[0-9@<{%$&`_/\\⟦#€£¥₹₽°\x1b\u203c\u2049\u20e3\u2190-\u21ff\u2300-\u27bf\u2900-\u297f\u2b00-\u2bff"
    r"\ufe0f\U0001F000-\U0001FAFF]|--|\(\)|\w\.\w|[a-z][A-Z]|\S{60}"
)
_FEW_DIGITS = 2


class Span(NamedTuple):
    start: int
    end: int
    kind: Kind


class Masked(NamedTuple):
    text: str  # with placeholder tokens
    items: tuple[tuple[str, str], ...]  # each token, and what it stands for, in order


def find_spans(text: str, kinds: Collection[Kind] = KINDS) -> list[Span]:
    """The parts of a text that are no language, from left to right; numbers of one or two digits are."""
    scripts = "script" in kinds and OTHER_LETTER.search(text) is not None
    if not scripts and ANY.search(text) is None:
        return []
    spans = []
    for match in (SPAN_OR_SCRIPT if scripts else SPAN).finditer(text):
        kind = cast(Kind, match.lastgroup)  # the outermost group
        if kind in kinds and not (kind == "number" and _is_small(match)):
            spans.append(Span(match.start(), match.end(), kind))
    return spans


def _is_small(number: re.Match[str]) -> bool:
    digits = number["digits"]
    is_short = bool(digits) and len(digits) <= _FEW_DIGITS
    return is_short and not (number["before"] or number["sign"] or number["behind"])


def placeholder_tokens(count: int) -> tuple[str, ...]:
    return tuple(f"⟦{number}⟧" for number in range(count))


def mask(text: str, count: int = PLACEHOLDERS, kinds: Collection[Kind] = KINDS) -> Masked:
    """The text with a token for each span, numbered modulo `count` from a hash of the text on.

    So training uses all tokens equally, and a text is always masked in the same way. A text that spells such
    a token has a span there: it is never taken for one of ours.
    """
    spans = find_spans(text, {*kinds, "token"})
    tokens = _tokens(text, len(spans), count)
    items = tuple((token, text[start:end]) for token, (start, end, _) in zip(tokens, spans))
    return Masked(_replace(text, zip(spans, tokens)), items)


def unmask(text: str, items: Iterable[tuple[str, str]]) -> str:
    """The text with the items in place of their tokens; of equal tokens the first stands for the first.

    A space goes between an item and a letter or digit beside it: a model may leave it out, and no span that
    ends in one is followed by another.
    """
    waiting: dict[str, deque[str]] = defaultdict(deque)
    for token, item in items:
        waiting[token].append(item)

    def item_of(match: re.Match[str]) -> str:
        if not waiting[match[0]]:
            return match[0]
        item = waiting[match[0]].popleft()
        before, after = text[: match.start()][-1:], text[match.end() :][:1]
        left = " " if before.isalnum() and item[0].isalnum() else ""
        right = " " if after.isalnum() and item[-1].isalnum() else ""
        return f"{left}{item}{right}"

    return TOKEN.sub(item_of, text)


def mask_pair(source: str, target: str, count: int = PLACEHOLDERS, every: bool = False) -> tuple[str, str]:
    """A training pair with equal tokens for the spans that stand on both sides, equally often.

    Numbers are equal if their digits are: 1,234.50 and 1.234,50. What only one side has stays text; with
    `every` the source is masked as `mask` does it, as it is when a text is translated.
    """
    left, right = ([(span, _key(text, span)) for span in find_spans(text)] for text in (source, target))
    counts = [Counter(key for _, key in side) for side in (left, right)]
    shared = {key for key, times in counts[0].items() if counts[1][key] == times}
    left = left if every else [(span, key) for span, key in left if key in shared]
    tokens = _tokens(source, len(left), count)
    waiting: dict[str, deque[str]] = defaultdict(deque)
    for (_, key), token in zip(left, tokens):
        waiting[key].append(token)
    return (
        _replace(source, zip((span for span, _ in left), tokens)),
        _replace(target, ((span, waiting[key].popleft()) for span, key in right if key in shared)),
    )


def is_complete(source: str, output: str) -> bool:
    """Whether an output has the placeholder tokens of its source, each as often."""
    return ("⟦" not in source and "⟦" not in output) or (
        Counter(TOKEN.findall(source)) == Counter(TOKEN.findall(output))
    )


def _key(text: str, span: Span) -> str:
    item = text[span.start : span.end]
    digits = "".join(filter(str.isdigit, item))
    return digits if span.kind == "number" and len(digits) > _FEW_DIGITS else "".join(item.split())


def _tokens(text: str, needed: int, count: int) -> list[str]:
    first = crc32(text.encode(errors="surrogatepass")) if needed else 0
    return [f"⟦{(first + number) % count}⟧" for number in range(needed)]


def _replace(text: str, tokens: Iterable[tuple[Span, str]]) -> str:
    parts, at = [], 0
    for (start, end, _), token in tokens:
        parts += [text[at:start], token]
        at = end
    return "".join([*parts, text[at:]])

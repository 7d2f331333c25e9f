"""Texts for tokenizers: a small corpus, and what has broken tokenizers before."""

from __future__ import annotations

CORPUS = [
    "A man in a blue shirt is standing on a ladder, cleaning a window.",
    "Two young men are outside near many bushes; it's a sunny day!",
    "Ein Mann in einem blauen Hemd steht auf einer Leiter und putzt ein Fenster.",
    "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.",
    "Des gens regardent le défilé près de l'église à 10 h 30.",
    "Два молодых человека гуляют по улице.",
    "今天天气很好。我们去公园。",
    "def f(x):\n    return x + 1  # </s>",
] * 4

NASTY = [
    "",
    " ",
    "   ",
    " a",
    "a ",
    "  two  spaces  ",
    "\n",
    "\r\n",
    "a\nb\r\nc\u2028d\u2029e\x85f",
    "\x00",
    "a\x00b\x1f\x7f",
    "▁▁a▁b",
    "ĠaĠb",
    "</s>",
    "<pad><s></s><unk>",
    "x </s> y<s>z",
    "<0x41>",
    "👩‍👩‍👧‍👦 family 🏳️‍🌈",
    "e\u0301 vs é, a\u0308\u0323",
    "שלום עולם \u202bمرحبا بالعالم\u202c",
    "漢字かな交じり文。한국어",
    "\ufeffmark \ufffd \uffff \U0010ffff",
    "'s 't don't I'LL we've",
    "\u00a0\u2003\u3000space",
    "Zürich—naïve… “quotes” „Anführung“",
    "\t\ttabs\t",
    "1234567890 12.5%",
]

"""Sentence splitting: hand-written cases in three languages, and the laws that hold for any text."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.inputs.text import split_sentences, split_words

# The bar marks where a sentence ends; the text is the line without the bars.
CASES = r"""
Hello there.| How are you?| Fine!
Mr. Smith met Dr. Jones.| They talked.
Prof. Miller and Mrs. Brown left early.| It rained.
J. R. R. Tolkien wrote it.| C. S. Lewis read it.
He likes fruit, e.g. Apples and pears.| She does not.
That is, i.e. Monday, too late.| Sorry.
It costs 3.50 dollars.| Pi is 3.14159.
The value is 3.5.| The other is 4.| Done.
"Stop!" said the man.| "Why?" asked she.
He said "Go."| Then he left.
(This is a note.)| This is not.
Wait...| What was that?
Well… maybe.| Well…| Maybe.
We sell pens, paper, etc.| Peter buys them.
We sell pens, paper, etc. and more.| Fine.
The U.S. Army came at 5 p.m. on Monday.| Good.
He lives in the U.S.| She lives in Spain.
I got up at 6 a.m.| The sun was up.
Smith et al. Nature paper was cited.| It won.
See Fig. 3 and No. 7 in vol. 2 of it.| Thanks.
Did you say no.| No.| I said yes.
It was World War II.| The end came in 1945.| Then peace.
So do I.| We agree.
Is that you?!| Yes!!!| Good.
Go to example.com now.| Version 2.0.1 is out.
Martin Luther King Jr. Day is in January.| It is cold.
St. Louis and Mt. Everest are far apart.| Lt. Col. Kim knows.
That was for me.| Thank you.
Vitamin C.| It helps.
1. First item.| 2. Second item.
the 5. item is here.| Look.
He is 12.| Mary is 14.
Take it (or leave it).| 42 is enough.
Er kommt z. B. Montag oder Dienstag.| Das ist gut.
Er kommt z.B. Montag.| Das ist gut.
Das heißt, d. h. Berlin, ist groß.| Ja.
Hr. Müller bzw. Fr. Meier kommt.| Wer noch?
Am 3. Oktober ist Feiertag.| Niemand arbeitet.
Im 19. Jahrhundert war das anders.| Heute nicht.
Vom 1. bis 3. Mai ist zu.| Dann ist offen.
Er feiert seinen 50. Geburtstag.| Sie nicht.
Äpfel, Birnen usw. sind da.| Äpfel usw.| Die Preise steigen.
Ca. 5 Mio. Euro fehlen.| Vgl. Abs. 2 und Art. 5 dazu.
„Komm her!“, rief er.| „Nein.“| Sie ging.
»Wirklich?«| Er nickte.
Prof. Dr. med. Schmidt hilft u. a. Kindern.| Gut so.
Im Jahr 1990.| Danach kam er zurück.
Über allem.| Öfter mal was Neues.
M. Dupont et Mme. Durand sont là.| Ils parlent.
M. Le Pen arrive.| Il parle.
Vraiment ?| Oui !| C'est vrai.
« Bonjour. »| Il sourit.
« Où vas-tu ? » demanda-t-il.| Elle rit.
Mlle. Martin lit, p. ex. Proust et Gide.| Élise aussi.
Il a 3,5 euros.| À demain.
Le Dr. Petit a vu le Pr. Blanc.| Ça va.
Il y a des pommes, etc.| Nous en achetons.
¿Qué tal?| ¡Muy bien!
你好。|今天天气很好！|你呢？|很好
「行く。」と言った。|「はい。」|彼は笑った。
यह एक वाक्य है।| यह दूसरा है।
هل أنت بخير؟| نعم.| شكرا
One line\n|Another line\n\n|A third. \n |end
Mr.\n|Smith
""".strip().splitlines()


@pytest.mark.parametrize("case", CASES)
def test_hand_written(case: str) -> None:
    marked = case.replace("\\n", "\n")
    expected = [part.strip() for part in marked.split("|")]
    assert [sentence for sentence, _ in split_sentences(marked.replace("|", ""))] == expected


def test_number_of_cases() -> None:
    assert len(CASES) >= 40


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", []),
        ("   ", [("", "   ")]),
        ("  Hi. \n", [("", "  "), ("Hi.", " \n")]),
        ("Ab cd.  Ef gh.", [("Ab cd.", "  "), ("Ef gh.", "")]),
    ],
)
def test_whitespace_is_kept(text: str, pairs: list[tuple[str, str]]) -> None:
    assert split_sentences(text) == pairs


TEXTS = st.one_of(st.text(), st.text(alphabet="aB1. \n!?…。»«\"')(\u00a0\u2028\r", max_size=60))


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_round_trip(text: str) -> None:
    pairs = split_sentences(text)
    assert "".join(sentence + space for sentence, space in pairs) == text
    for number, (sentence, space) in enumerate(pairs):
        assert sentence == sentence.strip() and "\n" not in sentence
        assert not space or space.isspace()
        assert sentence or number == 0


@pytest.mark.parametrize(
    "unit", ["a. ", "...", "... ", "Ab. ", " ", "\n", "x\n ", "。", "!)", "1. ", '" .', "\t ", "z"]
)
@pytest.mark.timeout(30)  # quadratic time would take hours
def test_linear_time(unit: str) -> None:
    text = unit * (1_000_000 // len(unit) // 4)
    pairs = split_sentences(text)
    assert "".join(sentence + space for sentence, space in pairs) == text


def test_cut_words_is_greedy() -> None:
    text = " one two  three four"
    pairs = split_words(text, lambda part: len(part) <= 8)
    assert pairs == [("", " "), ("one two", "  "), ("three", " "), ("four", "")]


def test_cut_words_cuts_a_long_word() -> None:
    assert split_words("abcdefgh ij k", lambda part: len(part) <= 5) == [
        ("abcde", ""),
        ("fgh", " "),
        ("ij k", ""),
    ]
    assert split_words("ab", lambda part: False) == [("a", ""), ("b", "")]
    assert split_words("", lambda part: True) == []


@settings(max_examples=200, deadline=None)
@given(TEXTS, st.integers(1, 12))
def test_cut_words_laws(text: str, limit: int) -> None:
    pairs = split_words(text, lambda part: len(part) <= limit)
    assert "".join(part + space for part, space in pairs) == text
    assert all(len(part) <= limit for part, _ in pairs)
    # Greedy: no part could have taken in the first word of the next one.
    for (part, space), (following, _) in pairwise(pairs):
        if part and space:
            word = following.split()[0]
            assert len(part + space + word) > limit or len(word) == limit


def test_cut_words_asks_rarely() -> None:
    calls = 0

    def fits(part: str) -> bool:
        nonlocal calls
        calls += 1
        return len(part) <= 1000

    parts = split_words("word " * 20_000, fits)
    assert len(parts) == 100
    assert calls < 25 * len(parts)

"""Translators' files: learned from, filled, and nothing else in them changed."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import polib
import pytest
import srt
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from conftest import Command, Refused
from regard.config import Task
from regard.data.formats import (
    BRACED,
    FORMATS,
    PERCENT,
    PLAIN,
    open_document,
    put_accelerator,
    read_pairs,
    same_language,
    take_accelerator,
)
from regard.data.formats.subtitles import wrap
from regard.errors import UsageError
from regard.tasks.documents import FilledCounts, fill_document

TASK = Task(source="en", target="de")
Translate = Callable[[list[str]], list[str]]

PO = """\
# Words of a small shop.
# Copyright (C) nobody.
msgid ""
msgstr ""
"Project-Id-Version: shop 1\\n"
"PO-Revision-Date: 2024-05-01 12:00+0200\\n"
"Last-Translator: nobody <nobody@example.org>\\n"
"Language-Team: none\\n"
"Language: de\\n"
"MIME-Version: 1.0\\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Content-Transfer-Encoding: 8bit\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

#. shown at the till
#: till.c:12 till.c:90
msgid "Thank you"
msgstr "Danke"

#: till.c:13
#, c-format
msgid "%d apples cost %s, 100% sure"
msgstr ""

# a person was here
#, fuzzy, python-format
#| msgid "Hello %(name)s"
msgid "Good day %(name)s"
msgstr "Hallo %(name)s"

msgctxt "menu"
msgid "&Open the shop"
msgstr ""

msgid ""
"\\n"
"Two lines of <b>help</b>,\\n"
"the second one with a backslash \\\\ and a \\"quote\\".\\n"
msgstr ""

#, c-format
msgid "One apple"
msgid_plural "%d apples"
msgstr[0] ""
msgstr[1] ""

#, python-brace-format
msgid "{count} of {{all}} &amp; more"
msgstr "{count} von {{all}} &amp; mehr"

#~ msgid "Gone"
#~ msgstr "Weg"
"""


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    raw = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


def pairs(path: Path, task: Task = TASK) -> list[tuple[str, str]]:
    return [(source, target) for _, source, target in read_pairs(path, task)]


def shout(lines: list[str]) -> list[str]:
    """A translator that copies nothing but what it is kept from."""
    return [line.upper() for line in lines]


def fill(
    path: Path,
    translate: Translate = shout,
    everything: bool = False,
    review: bool = False,
    task: Task = TASK,
) -> tuple[str, FilledCounts]:
    document = open_document(path, task)
    outcome = fill_document(document, translate, everything, review)
    return document.content().decode(), outcome


def msgfmt(path: Path) -> str:
    """What gettext's own checker says; nothing is good."""
    program = shutil.which("msgfmt")
    if program is None:
        pytest.skip("gettext's msgfmt is not installed")
    done = subprocess.run([program, "-c", "-o", "-", path], capture_output=True, timeout=60)
    return done.stderr.decode()


# .po


def test_translated_entries_are_pairs(tmp_path: Path) -> None:
    lines = ["", *PO.split("\n")]
    found = list(read_pairs(write(tmp_path, "de.po", PO), TASK))
    assert found == [
        (lines.index("#. shown at the till"), "Thank you", "Danke"),
        (
            lines.index("#, python-brace-format"),
            "{count} of {{all}} &amp; more",
            "{count} von {{all}} &amp; mehr",
        ),
    ]
    assert list(read_pairs(write(tmp_path, "de.po.gz", PO), TASK)) == found
    with pytest.raises(UsageError, match=r'de.po: its target language is "de", not "fr"'):
        pairs(tmp_path / "de.po", Task(source="en", target="fr"))


def test_plurals_are_pairs_by_the_formula_of_the_language(tmp_path: Path) -> None:
    forms = '"Plural-Forms: nplurals=3; plural=(n==1 ? 1 : n==5 ? 2 : 0);\\n"\n'
    text = (
        f'msgid ""\nmsgstr ""\n{forms}\nmsgid "a"\nmsgid_plural "b"\n'
        'msgstr[0] "zero"\nmsgstr[1] "one"\nmsgstr[2] "five"\n'
    )
    assert pairs(write(tmp_path, "x.po", text)) == [("a", "one"), ("b", "five")]
    only = text.replace(forms, '"Plural-Forms: nplurals=1; plural=0;\\n"\n')
    assert pairs(write(tmp_path, "y.po", only)) == [("b", "zero")]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_only_filled_entries_change(tmp_path: Path, newline: str) -> None:
    """A file with nothing to fill keeps every byte, and an entry that is not filled keeps its lines."""
    path = write(tmp_path, "de.po", PO.replace("\n", newline))
    assert open_document(path, TASK).content() == path.read_bytes()
    text, outcome = fill(path)
    assert outcome == FilledCounts(filled=4, left=0, kept=3)
    assert text.count("\n") == text.count(newline)
    before, after = (re.split(r"\n\n", each.replace(newline, "\n")) for each in (PO, text))
    assert [one == other for one, other in zip(before, after, strict=True)] == [
        *(True, True, False, True, False, False, False, True, True)
    ]
    assert after[2] == (
        "# Machine translated by Regard.\n#: till.c:13\n#, c-format\n"
        'msgid "%d apples cost %s, 100% sure"\nmsgstr "%d APPLES COST %s, 100% sURE"'
    )
    assert after[5].endswith(
        'msgstr ""\n"\\n"\n"TWO LINES OF <b>HELP</b>,\\n"\n'
        '"THE SECOND ONE WITH A BACKSLASH \\\\ AND A \\"QUOTE\\".\\n"'
    )
    assert after[6].endswith('msgstr[0] "ONE APPLE"\nmsgstr[1] "%d APPLES"')
    again, second = fill(write(tmp_path, "again.po", text))
    assert (again, second) == (text, FilledCounts(0, 0, 7))


def test_all_and_fuzzy(tmp_path: Path) -> None:
    path = write(tmp_path, "de.po", PO)
    filled = polib.pofile(fill(path, everything=True)[0])
    entry = filled.find("Good day %(name)s")
    assert entry is not None
    assert (entry.msgstr, entry.flags, entry.previous_msgid) == ("GOOD DAY %(name)s", ["python-format"], None)
    assert entry.tcomment == "Machine translated by Regard.\na person was here"
    assert len(filled.fuzzy_entries()) == 0
    reviewed = polib.pofile(fill(path, review=True)[0])
    assert {entry.msgid for entry in reviewed.fuzzy_entries()} == {
        entry.msgid for entry in polib.pofile(PO) if not entry.translated() and not entry.obsolete
    }
    assert [entry.msgid for entry in reviewed.obsolete_entries()] == ["Gone"]


def test_what_cannot_be_translated_is_left_and_marked(tmp_path: Path) -> None:
    """A model that says a placeholder of its own in every part of an entry."""
    path = write(tmp_path, "de.po", PO)
    text, outcome = fill(path, lambda lines: [f"{line} %d" for line in lines])
    assert outcome == FilledCounts(filled=0, left=4, kept=3)
    found = {entry.msgid: entry for entry in polib.pofile(text)}
    entry = found["%d apples cost %s, 100% sure"]
    assert (entry.msgstr, entry.flags) == ("", ["fuzzy", "c-format"])
    assert msgfmt(write(tmp_path, "left.po", text)) == ""


WRONG: dict[str, Translate] = {
    "shouts": shout,
    "backwards": lambda lines: [line[::-1] for line in lines],
    "says nothing": lambda lines: ["" for _ in lines],
    "drops signs": lambda lines: [re.sub(r"\W", " ", line) for line in lines],
    "twice": lambda lines: [line + line for line in lines],
    "adds": lambda lines: [f"{line} %s {{x}} <i> 5 % %%\n" for line in lines],
    "newlines": lambda lines: ["\n" + line.replace(" ", "\n") + "\t" for line in lines],
}
HEADERS = {
    "de": "nplurals=2; plural=(n != 1);",
    "fr": "nplurals=2; plural=(n > 1);",
    "ja": "nplurals=1; plural=0;",
    "mk": "nplurals=2; plural=(n%10==1 && n%100!=11) ? 0 : 1;",
    "ru": "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && n%100/10!=1 ? 1 : 2);",
    "sl": "nplurals=4; plural=(n%100==1 ? 1 : n%100==2 ? 2 : n%100==3 || n%100==4 ? 3 : 0);",
}


@pytest.mark.parametrize("language", HEADERS)
@pytest.mark.parametrize("habit", WRONG)
def test_gettext_accepts_what_any_translator_says(tmp_path: Path, language: str, habit: str) -> None:
    text = PO.replace(HEADERS["de"], HEADERS[language]).replace("Language: de", f"Language: {language}")
    path = write(tmp_path, "messages.po", text)
    filled, _ = fill(path, WRONG[habit], everything=True, task=Task(source="en", target=language))
    assert msgfmt(write(tmp_path, "filled.po", filled)) == ""
    for entry in polib.pofile(filled):
        said = [text for text in (entry.msgstr, *entry.msgstr_plural.values()) if text]
        if said and not entry.msgid_plural and not entry.obsolete:
            assert Counter(PLAIN.findall(said[0])) == Counter(PLAIN.findall(entry.msgid))


def test_a_template_gets_the_header_of_its_language(tmp_path: Path) -> None:
    text = (
        'msgid ""\nmsgstr ""\n"Project-Id-Version: x\\n"\n"Language: \\n"\n"MIME-Version: 1.0\\n"\n'
        '"Content-Type: text/plain; charset=CHARSET\\n"\n"Content-Transfer-Encoding: 8bit\\n"\n'
        '"Plural-Forms: nplurals=INTEGER; plural=EXPRESSION;\\n"\n\n'
        'msgid "%d cup"\nmsgid_plural "%d cups"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    )
    path = write(tmp_path, "messages.pot", text)
    filled, _ = fill(path, lambda lines: [line + " ж" for line in lines], task=Task(source="en", target="ru"))
    found = polib.pofile(filled)
    assert (found.metadata["Language"], found.metadata["Plural-Forms"][:10]) == ("ru", "nplurals=3")
    assert found[0].msgstr_plural == {0: "%d cup ж", 1: "%d cups ж", 2: "%d cups ж"}
    assert "charset=UTF-8" in filled
    unknown, outcome = fill(path, task=Task(source="en", target="tlh"))
    assert "nplurals=INTEGER" in unknown
    assert outcome.filled == 1  # in as many forms as the file has room for


WORDS = st.text(
    st.characters(
        codec="utf-8", exclude_categories=["Cs", "Cc"], include_characters='\n\t"\\%{}<>&\u2028\x85'
    ),
    min_size=1,
)


@settings(deadline=None)
@given(st.dictionaries(WORDS.filter(lambda text: text.strip() == text), st.just("") | WORDS, max_size=5))
def test_any_catalogue_is_read_as_polib_wrote_it(
    tmp_path_factory: pytest.TempPathFactory, texts: dict[str, str]
) -> None:
    written = polib.POFile(wrapwidth=0)
    written.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    written += [polib.POEntry(msgid=source, msgstr=target) for source, target in texts.items()]
    path = write(tmp_path_factory.getbasetemp(), "any.po", f"{written}\n")
    assert open_document(path, TASK).content() == path.read_bytes()
    assert pairs(path) == [(source, target) for source, target in texts.items() if target.strip()]
    path.write_bytes(fill(path, lambda lines: [f"{line} {line}" for line in lines])[0].encode())
    said = polib.pofile(str(path))
    expected = {source: target for source, target in texts.items() if target}
    assert {entry.msgid: entry.msgstr for entry in said if entry.msgid in expected} == expected


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'msgid "a"\nnonsense\n', "bad.po, line 2: not valid in gettext's format"),
        (b'msgid "a "quote""\nmsgstr ""\n', "bad.po, line 1: a quote inside a string"),
        (
            b'msgid ""\nmsgstr "charset=UTF-8\\n"\n\nmsgid "\xff"\nmsgstr ""\n',
            "bad.po, line 4: byte 0xff is not UTF-8",
        ),
        (
            b'msgid ""\nmsgstr "charset=klingon\\n"\n',
            'bad.po: its header names the unknown charset "klingon"',
        ),
    ],
)
def test_a_broken_catalogue_is_refused_with_its_line(tmp_path: Path, content: bytes, says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        pairs(write(tmp_path, "bad.po", content))


def test_a_charset_that_lacks_a_letter(tmp_path: Path) -> None:
    path = write(tmp_path, "x.po", 'msgid ""\nmsgstr "charset=ISO-8859-1\\n"\n\nmsgid "a"\nmsgstr ""\n')
    with pytest.raises(UsageError, match='its charset ISO-8859-1 has no "ж"; convert it to UTF-8'):
        fill(path, lambda lines: ["ж" for _ in lines])
    assert open_document(path, TASK).content() == path.read_bytes()


# placeholders and accelerators


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%s and %(name)s, %1$d of %-5.2f%%", ["%s", "%(name)s", "%1$d", "%-5.2f", "%%"]),
        (
            "{} {0} {name!r:>10} ${home} $user {{ x }}",
            ["{}", "{0}", "{name!r:>10}", "${home}", "$user", "{{ x }}"],
        ),
        ("{n, plural, one {# cat} other {# cats}}!", ["{n, plural, one {# cat} other {# cats}}"]),
        (
            '<a href="x y">here</a> <br/> 1 < 2 &nbsp;&#39; R&D',
            ['<a href="x y">', "</a>", "<br/>", "&nbsp;", "&#39;"],
        ),
        ("see https://example.org/a?b=c&d=%s.", ["https://example.org/a?b=c&d=%s"]),
        ("100% sure, $5, a { b", []),
    ],
)
def test_placeholders(text: str, expected: list[str]) -> None:
    assert PLAIN.findall(text) == expected


def test_a_format_counts_every_sign() -> None:
    assert PERCENT.findall("100% sure %d") == ["% s", "%d"]
    assert BRACED.findall("{a} { b") == ["{a}", "{"]


@pytest.mark.parametrize(
    ("text", "translation", "expected"),
    [
        ("&File", "Datei", "&Datei"),
        ("E&xit", "Ende", "&Ende"),
        ("Save _As", "Sichern als", "Sichern _als"),
        ("_Open <b>", "<b> Öffnen", "<b> _Öffnen"),
        ("&File", "ファイル", "ファイル(&F)"),
        ("R&D", "F und E", "F und E"),
        ("a_b and &amp;", "x", "x"),
        ("&a &b", "x", "x"),
    ],
)
def test_accelerators(text: str, translation: str, expected: str) -> None:
    bare, sign = take_accelerator(text, PLAIN)
    assert (bare == text) == (sign is None)
    assert (put_accelerator(translation, sign, PLAIN) if sign else translation) == expected


def test_languages_match_loosely() -> None:
    assert same_language("en", "EN_us") and same_language("en-US", "en")
    assert not same_language("en-GB", "en-US") and not same_language("en", "eng")


# .tmx

TMX = """\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<!-- a memory -->
<tmx version="1.4">
  <header srclang="en-US" adminlang="en" datatype="xml" segtype="sentence" o-tmf="x"/>
  <body>
    <tu tuid="1">
      <tuv xml:lang="en-US"><seg>Good &amp; old</seg></tuv>
      <tuv xml:lang="de-DE"><seg>Gut &amp; alt</seg></tuv>
    </tu>
    <tu>
      <tuv xml:lang="de-DE"><seg>Klick <bpt i="1">&lt;b&gt;</bpt>hier<ept i="1">&lt;/b&gt;</ept></seg></tuv>
      <tuv xml:lang="en-US"><seg>Click <bpt i="1">&lt;b&gt;</bpt>here<ept i="1">&lt;/b&gt;</ept></seg></tuv>
    </tu>
    <tu>
      <tuv xml:lang="en-US"><seg>Take <hi>one <ph x="7">%s</ph></hi> &lt;1> cup</seg></tuv>
    </tu>
    <tu>
      <tuv xml:lang="fr"><seg>rien</seg></tuv>
    </tu>
  </body>
</tmx>
"""


def test_a_memory_gives_pairs_in_both_directions(tmp_path: Path) -> None:
    path = write(tmp_path, "memory.tmx", TMX)
    expected = [("Good & old", "Gut & alt"), ("Click <1/>here<2/>", "Klick <1/>hier<2/>")]
    assert pairs(path) == expected
    turned = pairs(path, Task(source="de", target="en"))
    assert turned == [(target, source) for source, target in expected]
    assert [line for line, _, _ in read_pairs(path, TASK)] == [7, 11]
    assert pairs(write(tmp_path, "memory.tmx.gz", TMX)) == expected
    with pytest.raises(UsageError, match='no pair of "en" and "it"; its languages are de-DE, en-US, fr'):
        pairs(path, Task(source="en", target="it"))


def test_a_memory_is_filled_where_a_language_lacks(tmp_path: Path) -> None:
    path = write(tmp_path, "memory.tmx", TMX)
    text, outcome = fill(path, lambda lines: [line.replace("cup", "Tasse") for line in lines])
    assert outcome == FilledCounts(filled=1, left=0, kept=3)
    added = (
        '\n      <tuv xml:lang="de-DE" creationtool="Regard"><seg>Take <hi>one <ph x="7">%s</ph></hi> '
        "&lt;1&gt; Tasse</seg></tuv>"
    )
    assert added in text
    assert text.replace(added, "").replace("&gt; cup", "> cup") == TMX
    shouted, _ = fill(path)
    assert '<seg>TAKE <hi>ONE <ph x="7">%s</ph></hi> &lt;1&gt; CUP</seg>' in shouted


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_memory_that_is_not_filled_keeps_its_bytes(tmp_path: Path, encoding: str, newline: str) -> None:
    text = TMX.replace("&lt;1>", "ü").replace("UTF-8", encoding).replace("\n", newline)
    path = write(tmp_path, "memory.tmx", text.encode(encoding))
    assert open_document(path, TASK).content() == path.read_bytes()
    document = open_document(path, TASK)
    fill_document(document, lambda lines: [f"ж {line}" for line in lines], False, False)
    path.write_bytes(document.content())
    assert ("Take <1>one <2/></1> ü cup", "ж Take <1>one <2/></1> ü cup") in pairs(path)


def test_a_memory_needs_a_model_with_languages(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the model names no languages"):
        open_document(write(tmp_path, "memory.tmx", TMX), Task())


# .xliff

XLIFF1 = """\
<?xml version='1.0' encoding='utf-8'?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2">
  <file original="a.html" source-language="en-US" datatype="html">
    <body>
      <trans-unit id="1">
        <source>Hello <g id="1">old <x id="2"/> friend</g></source>
        <target state="final">Hallo <g id="1">alter <x id="2"/> Freund</g></target>
        <alt-trans><source>no</source><target>nein</target></alt-trans>
      </trans-unit>
      <trans-unit id="2"><source>Good <g id="1">old <x id="2"/> day</g></source></trans-unit>
      <trans-unit id="3">
        <source>Perhaps</source>
        <target state="needs-review-translation">Vielleicht</target>
      </trans-unit>
      <trans-unit id="4" translate="no"><source>Regard</source></trans-unit>
      <trans-unit id="5">
        <source>One. Two.</source>
        <seg-source><mrk mtype="seg" mid="0">One.</mrk> <mrk mtype="seg" mid="1">Two.</mrk></seg-source>
        <note>a note</note>
      </trans-unit>
      <trans-unit id="6">
        <source>copy</source>
        <target state="new">copy</target>
      </trans-unit>
    </body>
  </file>
</xliff>
"""
XLIFF2 = """\
<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en">
 <file id="f">
  <unit id="1">
   <segment state="final">
    <source>Yes <pc id="1">my</pc> dear</source><target>Ja <pc id="1">mein</pc> Lieber</target>
   </segment>
   <segment><source>Press <ph id="1" equiv="%s"/> now</source></segment>
   <ignorable><source> </source></ignorable>
  </unit>
  <unit id="2" translate="no"><segment><source>Regard</source></segment></unit>
 </file>
</xliff>
"""


def test_interchange_files_give_pairs(tmp_path: Path) -> None:
    old, new = write(tmp_path, "a.xlf", XLIFF1), write(tmp_path, "b.xliff", XLIFF2)
    assert pairs(old) == [("Hello <1>old <2/> friend</1>", "Hallo <1>alter <2/> Freund</1>")]
    assert pairs(new) == [("Yes <1>my</1> dear", "Ja <1>mein</1> Lieber")]
    for path in (old, new):
        with pytest.raises(UsageError, match=r'its source language is "en.*", not "fr"'):
            pairs(path, Task(source="fr", target="de"))


def tree(text: str) -> etree._Element:
    return etree.fromstring(text.encode())


def test_interchange_files_are_filled(tmp_path: Path) -> None:
    path = write(tmp_path, "a.xlf", XLIFF1)
    assert open_document(path, Task()).content().decode() == XLIFF1
    text, outcome = fill(path)
    assert outcome == FilledCounts(filled=3, left=0, kept=2)
    assert 'datatype="html" target-language="de">' in text
    assert text.startswith("<?xml version='1.0' encoding='utf-8'?>\n<xliff")
    assert '<target state="translated">GOOD <g id="1">OLD <x id="2"/> DAY</g></target></trans-unit>' in text
    assert (
        '\n        <target state="translated"><mrk mtype="seg" mid="0">ONE.</mrk> '
        '<mrk mtype="seg" mid="1">TWO.</mrk></target>\n        <note>' in text
    )
    assert '<target state="translated">COPY</target>' in text
    reviewed = fill(path, review=True)[0]
    assert reviewed.count('state="needs-review-translation"') == 4
    learned = pairs(write(tmp_path, "filled.xlf", text))
    assert ("One.", "ONE.") in learned and ("Two.", "TWO.") in learned and len(learned) == 5


def test_interchange_two_is_filled(tmp_path: Path) -> None:
    path = write(tmp_path, "b.xliff", XLIFF2)
    text, outcome = fill(path)
    assert outcome == FilledCounts(filled=1, left=0, kept=1)
    assert 'srcLang="en" trgLang="de">' in text
    assert (
        '<segment state="translated"><source>Press <ph id="1" equiv="%s"/> now</source>'
        '<target>PRESS <ph id="1" equiv="%s"/> NOW</target></segment>' in text
    )
    assert 'subState="regard:needs-review"' in fill(path, review=True)[0]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_all_that_is_not_filled_keeps_its_bytes(tmp_path: Path, encoding: str, newline: str) -> None:
    """Quotes of attributes, empty elements, CDATA, comments and references were written anew."""
    text = (
        f"<?xml version='1.0' encoding='{encoding.removesuffix('-sig')}' ?>\n<!-- ä & < -->\n"
        "<xliff version = '1.2'><file source-language='en'\n  target-language=\"de\" ><body>\n"
        "<trans-unit id='1'><source>a &#228; <![CDATA[<b>]]></source><target >ja&gt;</target></trans-unit>\n"
        "<trans-unit id='2' ><source>go <x id='3' /> &amp; <g\nid='4'>ä</g></source><target state='new'/>"
        "<note></note></trans-unit></body></file></xliff >\n<?end?>\n"
    ).replace("\n", newline)
    path = write(tmp_path, "a.xlf", text.encode(encoding))
    document = open_document(path, TASK)
    assert document.content() == path.read_bytes()
    fill_document(document, shout, False, False)
    target = "<target state=\"translated\">GO <x id='3' /> &amp; <g\nid='4'>Ä</g></target>"
    expected = text.replace("<target state='new'/>", target.replace("\n", newline))
    assert document.content() == expected.encode(encoding)


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "a.xlf", "<xliff>" + "<g>" * 100_000)
    for use in (lambda: pairs(path), lambda: open_document(path, TASK)):
        with pytest.raises(UsageError) as caught:
            use()
        assert caught.value.code == "E_DATA_FORMAT"


def test_tags_that_come_back_out_of_order_are_put_in_order(tmp_path: Path) -> None:
    """The same marks as the source, closed before they open: the parts are translated instead."""
    text, outcome = fill(
        write(tmp_path, "b.xliff", XLIFF2.replace("Press <ph", "Press <pc id='9'>it</pc> <ph")),
        lambda lines: [
            line.replace("<1>", "@").replace("</1>", "<1>").replace("@", "</1>") for line in lines
        ],
    )
    assert outcome.left == 0
    target = tree(text).findall(".//{*}target")[1]
    assert [etree.QName(each).localname for each in target] == ["pc", "ph"]
    assert (target[0].text, target.text) == ("it", "Press ")


# hostile XML

BOMB = '<!DOCTYPE tmx [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
OUTSIDE = '<!DOCTYPE tmx [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
PARAMETER = '<!DOCTYPE tmx [<!ENTITY % x SYSTEM "http://127.0.0.1:9/x"> %x;]>'


@pytest.mark.parametrize("doctype", [BOMB, OUTSIDE, PARAMETER])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("name", ["x.tmx", "x.xliff", "x.tmx.gz"])
def test_entities_are_refused(tmp_path: Path, doctype: str, encoding: str, name: str) -> None:
    text = f'<?xml version="1.0" encoding="{encoding}"?>{doctype}<tmx a="&b;">&x;</tmx>'
    path = write(tmp_path, name, text.encode(encoding))
    for use in (lambda: pairs(path), lambda: open_document(path, TASK)):
        with pytest.raises(UsageError, match=r'x\..*: declares the entity "."; this is not allowed'):
            use()


@pytest.mark.parametrize("content", ["", "<tmx><tu>", "no xml", "<tmx>&nothing;</tmx>", "<a/><b/>"])
def test_broken_xml_is_refused_with_its_line(tmp_path: Path, content: str) -> None:
    path = write(tmp_path, "x.tmx", content)
    for use in (lambda: pairs(path), lambda: open_document(path, TASK)):
        with pytest.raises(UsageError, match=r"x.tmx, line \d+: not well-formed XML"):
            use()


def test_other_faults_are_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="its root is <html>, not <xliff>"):
        open_document(write(tmp_path, "x.xlf", "<html/>"), TASK)
    for suffix in FORMATS:
        with pytest.raises(UsageError, match=r"no such file|subtitles have one language"):
            pairs(tmp_path / f"none{suffix}")
        with pytest.raises(UsageError, match="no such file"):
            open_document(tmp_path / f"none{suffix}", TASK)
    path = write(tmp_path, "cut.tmx.gz", TMX)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UsageError, match="the gzip file is damaged or cut short"):
        pairs(path)


# .srt

SRT = """\
1
00:00:01,000 --> 00:00:02,500
I think that this is
a <i>rather long</i> line

2
00:00:03,000 --> 00:00:04,000
- Who is it?
- Nobody.

7
00:00:05,000 --> 00:00:06,000
{\\an8}Yes
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_subtitles_keep_times_and_lines(tmp_path: Path, newline: str) -> None:
    path = write(tmp_path, "a.srt", b"\xef\xbb\xbf" + SRT.replace("\n", newline).encode())
    text, outcome = fill(path)
    assert outcome == FilledCounts(3, 0, 0)
    assert text.startswith("\ufeff1")
    assert text.count("\n") == text.count(newline)
    before, after = (list(srt.parse(each.replace("\r\n", "\n").lstrip("\ufeff"))) for each in (SRT, text))
    for one, other in zip(before, after, strict=True):
        assert (one.index, one.start, one.end) == (other.index, other.start, other.end)
    assert [each.content for each in after] == [
        "I THINK THAT THIS IS A\n<i>RATHER LONG</i> LINE",
        "- WHO IS IT?\n- NOBODY.",
        "{\\an8}YES",
    ]


@given(st.lists(st.text("ab<i> ", min_size=1, max_size=9), max_size=12), st.integers(1, 4))
def test_wrapping_keeps_words_and_the_number_of_lines(words: list[str], lines: int) -> None:
    text = " ".join(" ".join(words).split())
    found = wrap(text, lines)
    assert found.replace("\n", " ") == text
    assert len(found.split("\n")) <= lines


def test_what_is_no_subtitle(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"not a subtitle|has no subtitle"):
        open_document(write(tmp_path, "a.srt", "1\nsome text\n"), TASK)
    with pytest.raises(UsageError, match="byte 0xe4 is not utf-8"):
        open_document(write(tmp_path, "a.srt", SRT.encode() + b"\xe4"), TASK)
    with pytest.raises(UsageError, match="subtitles have one language"):
        pairs(write(tmp_path, "a.srt", SRT))


# the command

TOY = """\
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"

msgid "ba be"
msgstr "kept"

msgid "%s de fi"
msgstr ""

#, python-format
msgid "ba be %(x)s\\n"
msgstr ""
"""


@pytest.mark.usefixtures("same_threads")
def test_the_command_fills_a_catalogue(regard: Command, tiny_model: Path, tmp_path: Path) -> None:
    path = write(tmp_path, "messages.po", TOY)
    shown = regard("translate", "-m", tiny_model, path)
    assert shown.err == f"{path}: 2 translated, 1 not touched\n"
    found = {entry.msgid: entry.msgstr for entry in polib.pofile(shown.out)}
    assert found["ba be"] == "kept"
    assert found["%s de fi"] in ("%s If Ed", "If Ed %s")
    assert found["ba be %(x)s\n"] in ("Eb Ab %(x)s\n", "%(x)s Eb Ab\n")
    out = tmp_path / "out.po.gz"
    regard("translate", "-m", tiny_model, path, "-o", out, "--all", "--fuzzy")
    filled = polib.pofile(gzip.decompress(out.read_bytes()).decode())
    assert next((entry.msgstr[:5], entry.fuzzy) for entry in filled) == ("Eb Ab", True)
    assert path.read_text() == TOY


@pytest.mark.usefixtures("same_threads")
def test_the_command_says_what_does_not_go_together(
    refused: Refused, regard: Command, tiny_model: Path, tmp_path: Path
) -> None:
    path, other = write(tmp_path, "messages.po", TOY), write(tmp_path, "a.srt", SRT)
    assert "one such file at a time" in refused("translate", "-m", tiny_model, path, other)
    assert "--num-results, --json: for lines" in refused(
        "translate", "-m", tiny_model, path, "--num-results", 2, "--json"
    )
    assert "--fuzzy" in refused("translate", "-m", tiny_model, other, "--fuzzy")
    assert "are for documents" in refused("translate", "-m", tiny_model, "ba", "--all")
    assert "--on-too-long skip" in refused("translate", "-m", tiny_model, path, "--on-too-long", "skip")
    long = write(tmp_path, "long.po", f'msgid ""\nmsgstr ""\n\nmsgid "{"ba " * 300}"\nmsgstr ""\n')
    assert "more than the 63 tokens" in refused(
        "translate", "-m", tiny_model, long, "--on-too-long", "error", "--split", "never"
    )
    told = regard("translate", "-m", tiny_model, long, "--split", "never", "--no-check").err
    assert "1 of its texts split between words" in told  # it was filled in as good as any other
    german = write(tmp_path, "de.po", PO)
    assert 'its target language is "de", not "TOY"' in refused("translate", "-m", tiny_model, german)
    lines: Sequence[str] = regard("translate", "-m", tiny_model, "ba", "de fi").lines
    assert list(lines) == ["Ab", "If Ed"]

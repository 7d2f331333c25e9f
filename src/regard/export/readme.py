"""README.md of an export: what it is, what it was checked with, and a program that uses it."""

from __future__ import annotations

from regard.export.check import Figures
from regard.models import EncoderDecoder, EncoderOnly, LanguageModel
from regard.storage import Folder

PAGE = """\
# {title}

A {family} model for the task "{task}", written by Regard for {engine} in {precision}.

Checked against Regard with {origin}: {figures}.

```python
{program}```

{notes}
"""
MOST = 60  # pieces of a text that is gone on with
TITLES = {"ctranslate2": "CTranslate2", "onnx": "ONNX Runtime"}

TRANSLATE_CTRANSLATE2 = """\
import ctranslate2, tokenizers

translator = ctranslate2.Translator(".")
source = tokenizers.Tokenizer.from_file("tokenizer.json")
target = tokenizers.Tokenizer.from_file("{target}")
pieces = source.encode("A sentence.", add_special_tokens=False).tokens
found = translator.translate_batch(
    [pieces], beam_size=4, min_decoding_length=0, return_end_token=True,{limits}
    suppress_sequences={never_names}
)
print(target.decode([target.token_to_id(piece) for piece in found[0].hypotheses[0]]))
"""
GENERATE_CTRANSLATE2 = """\
import ctranslate2, tokenizers

generator = ctranslate2.Generator(".")
tokenizer = tokenizers.Tokenizer.from_file("tokenizer.json")
pieces = [{start_name!r}, *tokenizer.encode("A sentence.", add_special_tokens=False).tokens]
found = generator.generate_batch([pieces], max_length={most}, suppress_sequences={never_names})
print(tokenizer.decode(found[0].sequences_ids[0]))
"""
TRANSLATE_ONNX = """\
import numpy, onnxruntime, tokenizers

encoder, decoder = (onnxruntime.InferenceSession(f"{{name}}.onnx") for name in ("encoder", "decoder"))
source, target = (tokenizers.Tokenizer.from_file(name) for name in ("tokenizer.json", "{target}"))
ids = numpy.array([[*source.encode("A sentence.", add_special_tokens=False).ids, {source_end}]])
mask = numpy.ones_like(ids)
read = {{"encoder_hidden_states": encoder.run(None, {{"input_ids": ids, "attention_mask": mask}})[0]}}
said = [{start}]
while len(said) <= {longest}:
    logits = decoder.run(None, {{"input_ids": [said], "encoder_attention_mask": mask, **read}})[0][0, -1]
    logits[{never}] = -numpy.inf
    if (piece := int(logits.argmax())) == {end}:
        break
    said.append(piece)
print(target.decode(said[1:]))
"""
GENERATE_ONNX = """\
import numpy, onnxruntime, tokenizers

model = onnxruntime.InferenceSession("model.onnx")
tokenizer = tokenizers.Tokenizer.from_file("tokenizer.json")
said = [{start}, *tokenizer.encode("A sentence.", add_special_tokens=False).ids]
while len(said) <= {most}:
    logits = model.run(None, {{"input_ids": [said], "attention_mask": [[1] * len(said)]}})[0][0, -1]
    logits[{never}] = -numpy.inf
    if (piece := int(logits.argmax())) == {end}:
        break
    said.append(piece)
print(tokenizer.decode(said))
"""
UNDERSTAND_ONNX = """\
import onnxruntime, tokenizers

model = onnxruntime.InferenceSession("model.onnx")
tokenizer = tokenizers.Tokenizer.from_file("tokenizer.json")
labels = {labels}
found = tokenizer.encode("A sentence."{pair})
inputs = {{"input_ids": [found.ids], "token_type_ids": [found.type_ids]}}
logits = model.run(None, inputs | {{"attention_mask": [found.attention_mask]}})[0][0]
{show}
"""
SHOW = {
    "sentence": "print(labels[logits[0].argmax()])",
    "tokens": "print([(piece, labels[row.argmax()]) for piece, row in zip(found.tokens, logits)])",
    "span": "first, last = logits.argmax(axis=0)\nprint(tokenizer.decode(found.ids[first : last + 1]))",
    "words": "print([tokenizer.id_to_token(int(row.argmax())) for row in logits])",
}
MANY = "print([label for label, logit in zip(labels, logits[0]) if logit > 0])"

NOTES = {
    "ctranslate2": "In float32 the program gives Regard's text for the same beam; CTranslate2 ends a search "
    "as soon as so many translations have ended (in Regard: `early_stopping = true`). The pieces in "
    "`suppress_sequences` stand in no text, and Regard never says them either.",
    "onnx": "Rows and lengths are free. `attention_mask` is 0 at padding, on either side. A decoder reads "
    "all that was said so far and answers for every place; the last is the next piece.",
}


def readme(folder: Folder, form: str, precision: str, origin: str, figures: Figures, names: list[str]) -> str:
    return PAGE.format(
        title=f"{folder.path.resolve().name} for {TITLES[form]}",
        family=folder.config.family,
        task=folder.task.name,
        engine=TITLES[form],
        precision=precision,
        origin=origin,
        figures=figures.told,
        program=program(folder, form, names),
        notes=NOTES[form],
    )


def program(folder: Folder, form: str, names: list[str]) -> str:
    """A few lines that use the export with the engine and `tokenizers` alone."""
    own = folder.special
    ids = {"start": own.start, "end": own.end, "never": list(own.suppressed)}
    spelt = {"start_name": names[own.start], "never_names": [[names[number]] for number in own.suppressed]}
    target = "tokenizer.json" if folder.target is folder.source else "target_tokenizer.json"
    common = {**ids, **spelt, "target": target, "source_end": folder.source.end, **lengths(folder)}
    if isinstance(folder.model, EncoderDecoder):
        return (TRANSLATE_ONNX if form == "onnx" else TRANSLATE_CTRANSLATE2).format(**common)
    if isinstance(folder.model, LanguageModel):
        return (GENERATE_ONNX if form == "onnx" else GENERATE_CTRANSLATE2).format(**common)
    head = folder.config.head or "words"
    text = UNDERSTAND_ONNX.format(
        labels=list(folder.labels),
        pair=', "The text that it is about."' if head == "span" else "",
        show=MANY if folder.task.multi_label else SHOW[head],
    )
    return text if folder.labels else text.replace("labels = []\n", "")


def lengths(folder: Folder) -> dict[str, object]:
    """How far a program may go: learned positions have an end."""
    limit = None if isinstance(folder.model, EncoderOnly) else folder.model.longest_target
    if limit is None:
        return {"most": MOST, "longest": "ids.size + 50", "limits": ""}
    read = f" max_decoding_length={limit}, max_input_length={limit},"
    return {"most": min(MOST, limit), "longest": f"min(ids.size + 50, {limit})", "limits": read}

"""A tiny language model with a chat template, as transformers saves it, and templates in use."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from hf_models import byte_pairs, llama, shaken

CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
INST = """{{- bos_token }}
{%- for message in messages %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('roles must alternate') }}
    {%- elif message.role == 'user' %}
        {{- ' [INST] ' ~ message.content | trim ~ ' [/INST]' }}
    {%- else %}
        {{- ' ' ~ message.content ~ eos_token }}
    {%- endif %}
{%- endfor %}"""
THINKING = """{%- macro turn(role, text) %}
{{- '<|im_start|>' ~ role ~ '\\n' ~ text ~ '<|im_end|>\\n' }}{% endmacro %}
{%- set ns = namespace(last=-1, seen=[]) %}
{%- for m in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if m.role == "user" and ns.last < 0 %}{% set ns.last = index %}{% continue %}{% endif %}
    {%- set ns.seen = ns.seen + [m.role] %}
{%- endfor %}
{%- if tools %}{{ tools | tojson(indent=2) }}{% endif %}
{%- for m in messages %}
    {%- set content = m.content is string and m.content or '' %}
    {%- if m.role == 'assistant' and '</think>' in content %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n').replace('a', 'A') %}
    {%- endif %}
    {%- generation %}{{ turn(m['role'], content) }}{% endgeneration -%}
{%- endfor %}
{%- set roles %}{{ messages | map(attribute='role') | unique | join(', ') }}
{{- {'a': ns.seen} | tojson }}{% endset %}
{{- roles | upper }} {{ ns.last }} {{ strftime_now('%Y') | length }}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
TEMPLATES = {"chatml": CHATML, "inst": INST, "thinking": THINKING}
SPECIALS = ("<|im_start|>", "<|im_end|>")
NAMES = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "unk_token": "<|endoftext|>"}


def chat_folder(path: Path, template: str = CHATML, width: int = 16) -> Path:
    torch.manual_seed(1)
    pipeline = byte_pairs()
    pipeline.add_special_tokens(list(SPECIALS))
    ids = {"bos_token_id": 320, "eos_token_id": 321}
    shape = {"hidden_size": width, "intermediate_size": 2 * width, "max_position_embeddings": 256}
    shaken(llama(**shape, **ids)).save_pretrained(path)
    pipeline.save(str(path / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **NAMES, "chat_template": template}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return path

"""Chat templates by the names that llama.cpp gives them, for models whose file has none, or a wrong one.

Each writes what llama.cpp (src/llama-chat.cpp) writes for that name: text, no tools. BOS is the tokenizer's to add.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from ggpy.text.chat import CHATML

CONTENT, TRIMMED, ROLE = "{content}", "{trimmed}", "{role}"     # what stands for parts of a message in the forms below
_EXPRESSIONS = {CONTENT: "(message.content or '')", TRIMMED: "(message.content or '') | trim", ROLE: "message.role"}


def _written(form: str) -> str:
    """Jinja that writes `form`, whose placeholders become expressions."""
    parts = [form]
    for placeholder in _EXPRESSIONS:
        parts = [piece for part in parts for piece in _split(part, placeholder)]
    return "".join("{{ " + _EXPRESSIONS.get(part, json.dumps(part, ensure_ascii=False)) + " }}" for part in parts)


def _split(text: str, separator: str) -> Iterable[str]:
    """The pieces of `text`, its separators too, without empty ones."""
    before, found, after = text.partition(separator)
    return filter(None, (before, found, *(_split(after, separator) if found else ())))


def _choice(forms: dict[str, str]) -> str:
    """Jinja that writes a message in the form of its role; roles that have none are left out."""
    branches = "".join(f"{{% elif message.role == '{role}' %}}{_written(form)}" for role, form in forms.items())
    return branches.replace("{% elif", "{% if", 1) + "{% endif %}"


def _loop(body: str, prompt: str = "", begin: str = "") -> str:
    """Jinja that writes `begin`, `body` for each message, and `prompt` where the assistant is to answer."""
    ask = "{% if add_generation_prompt %}" + _written(prompt) + "{% endif %}" if prompt else ""
    return (_written(begin) if begin else "") + "{% for message in messages %}" + body + "{% endfor %}" + ask


def _roles(system: str, user: str, assistant: str, prompt: str = "", begin: str = "") -> str:
    """A form for each role."""
    return _loop(_choice({"system": system, "user": user, "assistant": assistant}), prompt, begin)


def _any_role(form: str, prompt: str, begin: str = "") -> str:
    """One form that names the role."""
    return _loop(_written(form), prompt, begin)


def _renamed(form: str, system: str, user: str, assistant: str, prompt: str) -> str:
    """One form that names the role, but calls it otherwise."""
    return _roles(form.replace(ROLE, system), form.replace(ROLE, user), form.replace(ROLE, assistant), prompt)


def _instructions(opening: str, system: str, user: str, assistant: str, again: str | None = None) -> str:
    """`opening` in front of all that one answer is for; `again` is the later ones, where they differ."""
    start = ("{% if loop.first %}" + _written(opening) + "{% elif loop.previtem.role == 'assistant' %}"
             + _written(opening if again is None else again) + "{% endif %}")
    return _loop(start + _choice({"system": system, "user": user, "assistant": assistant}))


def _merged(system: str, user: str, assistant: str, prompt: str = "") -> str:
    """System messages become the beginning of the next question; {system} is where."""
    before, after = map(_written, user.split("{system}"))
    question = before + "{% if ns.system %}{{ ns.system + '\\n\\n' }}{% set ns.system = '' %}{% endif %}" + after
    return "{% set ns = namespace(system='') %}" + _loop(
        "{% if message.role == 'system' %}{% set ns.system = ns.system + " + _EXPRESSIONS[system] + " %}"
        "{% elif message.role == 'assistant' %}" + _written(assistant)
        + "{% else %}" + question + "{% endif %}", prompt)


def _with_default_system(default: str, template: str) -> str:
    """`template`, behind `default` where the conversation does not begin with a system message."""
    return "{% if messages[0].role != 'system' %}" + _written(default) + "{% endif %}" + template


def _tagged(tag: str) -> str:
    """A message of that role between EXAONE's marks."""
    return f"[|{tag}|]{TRIMMED}[|endofturn|]\n"


_EXAONE = _roles(_tagged("system"), f"[|user|]{TRIMMED}\n", _tagged("assistant"), "[|assistant|]")
_GRANITE = _any_role(f"<|start_of_role|>{ROLE}<|end_of_role|>{CONTENT}<|end_of_text|>\n",
                     "<|start_of_role|>assistant<|end_of_role|>")
_BAILING = _renamed(f"<role>{ROLE}</role>{CONTENT}", "SYSTEM", "HUMAN", "ASSISTANT", "<role>ASSISTANT</role>")
_SYS = "<<SYS>>\n" + CONTENT + "\n<</SYS>>\n\n"

BUILTIN_TEMPLATES = {
    "chatml": CHATML,
    "llama2": _instructions("[INST] ", CONTENT + "\n", CONTENT + " [/INST]", CONTENT + "</s>"),
    "llama2-sys": _instructions("[INST] ", _SYS, CONTENT + " [/INST]", CONTENT + "</s>"),
    "llama2-sys-bos": _instructions("[INST] ", _SYS, CONTENT + " [/INST]", CONTENT + "</s>", again="<s>[INST] "),
    "llama2-sys-strip": _instructions("[INST] ", _SYS.replace(CONTENT, TRIMMED), TRIMMED + " [/INST]",
                                      TRIMMED + "</s>"),
    "llama3": _any_role(f"<|start_header_id|>{ROLE}<|end_header_id|>\n\n{TRIMMED}<|eot_id|>",
                        "<|start_header_id|>assistant<|end_header_id|>\n\n"),
    "llama4": _any_role(f"<|header_start|>{ROLE}<|header_end|>\n\n{TRIMMED}<|eot|>",
                        "<|header_start|>assistant<|header_end|>\n\n"),
    "mistral-v1": _instructions(" [INST] ", CONTENT + "\n\n", CONTENT + " [/INST]", f" {CONTENT}</s>"),
    "mistral-v3": _instructions("[INST] ", CONTENT + "\n\n", CONTENT + "[/INST]", f" {TRIMMED}</s>"),
    "mistral-v3-tekken": _instructions("[INST]", CONTENT + "\n\n", CONTENT + "[/INST]", CONTENT + "</s>"),
    "mistral-v7": _roles(f"[SYSTEM_PROMPT] {CONTENT}[/SYSTEM_PROMPT]", f"[INST] {CONTENT}[/INST]", f" {CONTENT}</s>"),
    "mistral-v7-tekken": _roles(f"[SYSTEM_PROMPT]{CONTENT}[/SYSTEM_PROMPT]", f"[INST]{CONTENT}[/INST]",
                                CONTENT + "</s>"),
    "phi3": _any_role(f"<|{ROLE}|>\n{CONTENT}<|end|>\n", "<|assistant|>\n"),
    "phi4": _any_role(f"<|im_start|>{ROLE}<|im_sep|>{CONTENT}<|im_end|>", "<|im_start|>assistant<|im_sep|>"),
    "falcon3": _any_role(f"<|{ROLE}|>\n{CONTENT}\n", "<|assistant|>\n"),
    "zephyr": _any_role(f"<|{ROLE}|>\n{CONTENT}<|endoftext|>\n", "<|assistant|>\n"),
    "monarch": _loop("{% if not loop.first %}<s>{% endif %}" + _written(f"{ROLE}\n{CONTENT}</s>\n"), "<s>assistant\n"),
    "gemma": _merged(TRIMMED, "<start_of_turn>user\n{system}" + TRIMMED + "<end_of_turn>\n",
                     f"<start_of_turn>model\n{TRIMMED}<end_of_turn>\n", "<start_of_turn>model\n"),
    "orion": _merged(CONTENT, "Human: {system}" + CONTENT + "\n\nAssistant: </s>", CONTENT + "</s>"),
    "openchat": _roles(CONTENT + "<|end_of_turn|>", f"GPT4 Correct User: {CONTENT}<|end_of_turn|>",
                       f"GPT4 Correct Assistant: {CONTENT}<|end_of_turn|>", "GPT4 Correct Assistant:"),
    "vicuna": _roles(CONTENT + "\n\n", f"USER: {CONTENT}\n", f"ASSISTANT: {CONTENT}</s>\n", "ASSISTANT:"),
    "vicuna-orca": _roles(f"SYSTEM: {CONTENT}\n", f"USER: {CONTENT}\n", f"ASSISTANT: {CONTENT}</s>\n", "ASSISTANT:"),
    "deepseek": _roles(CONTENT, f"### Instruction:\n{CONTENT}\n", f"### Response:\n{CONTENT}\n<|EOT|>\n",
                       "### Response:\n"),
    "deepseek2": _roles(CONTENT + "\n\n", f"User: {CONTENT}\n\n", f"Assistant: {CONTENT}<｜end▁of▁sentence｜>",
                        "Assistant:"),
    "deepseek3": _roles(CONTENT + "\n\n", f"<｜User｜>{CONTENT}", f"<｜Assistant｜>{CONTENT}<｜end▁of▁sentence｜>",
                        "<｜Assistant｜>"),
    "command-r": _renamed(f"<|START_OF_TURN_TOKEN|><|{ROLE}_TOKEN|>{TRIMMED}<|END_OF_TURN_TOKEN|>", "SYSTEM", "USER",
                          "CHATBOT", "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"),
    "chatglm3": _any_role(f"<|{ROLE}|>\n {CONTENT}", "<|assistant|>", begin="[gMASK]sop"),
    "chatglm4": _any_role(f"<|{ROLE}|>\n{CONTENT}", "<|assistant|>\n", begin="[gMASK]<sop>"),
    "glmedge": _any_role(f"<|{ROLE}|>\n{CONTENT}", "<|assistant|>"),
    "minicpm": _roles(TRIMMED, f"<用户>{TRIMMED}<AI>", TRIMMED),
    "exaone3": _EXAONE,
    "exaone4": _EXAONE,
    "exaone-moe": _any_role(f"<|{ROLE}|>\n{TRIMMED}<|endofturn|>\n", "<|assistant|>\n"),
    "granite": _GRANITE,
    "granite-4.0": _GRANITE,
    "granite-4.1": _GRANITE,
    "gigachat": "<s>" + _roles(
        CONTENT + "<|message_sep|>",
        f"user<|role_sep|>{CONTENT}<|message_sep|>available functions<|role_sep|>[]<|message_sep|>",
        f"assistant<|role_sep|>{CONTENT}<|message_sep|>", "assistant<|role_sep|>"),
    "megrez": _any_role(f"<|role_start|>{ROLE}<|role_end|>{CONTENT}<|turn_end|>",
                        "<|role_start|>assistant<|role_end|>"),
    "bailing": _BAILING,
    "bailing-think": _BAILING + "{% if add_generation_prompt %}<think>{% endif %}",
    "bailing2": _with_default_system(
        "<role>SYSTEM</role>detailed thinking off<|role_end|>",
        _renamed(f"<role>{ROLE}</role>{CONTENT}<|role_end|>", "SYSTEM", "HUMAN", "ASSISTANT",
                 "<role>ASSISTANT</role>")),
    "smolvlm": _roles(CONTENT + "\n\n", f"User: {CONTENT}<end_of_utterance>\n",
                      f"Assistant: {CONTENT}<end_of_utterance>\n", "Assistant:", begin="<|im_start|>"),
    "hunyuan-moe": _roles(f"<|startoftext|>{CONTENT}<|extra_4|>", f"<|startoftext|>{CONTENT}<|extra_0|>",
                          CONTENT + "<|eos|>"),
    "gpt-oss": _roles(f"<|start|>system<|message|>{CONTENT}<|end|>", f"<|start|>user<|message|>{CONTENT}<|end|>",
                      f"<|start|>assistant<|message|>{CONTENT}<|return|>", "<|start|>assistant"),
    "hunyuan-dense": _roles(CONTENT + "<｜hy_place▁holder▁no▁3｜>", f"<｜hy_User｜>{CONTENT}<｜hy_Assistant｜>",
                            f"<｜hy_Assistant｜>{CONTENT}<｜hy_place▁holder▁no▁2｜>"),
    "kimi-k2": _roles(f"<|im_system|>system<|im_middle|>{CONTENT}<|im_end|>",
                      f"<|im_user|>user<|im_middle|>{CONTENT}<|im_end|>",
                      f"<|im_assistant|>assistant<|im_middle|>{CONTENT}<|im_end|>",
                      "<|im_assistant|>assistant<|im_middle|>"),
    "seed_oss": _roles(f"<seed:bos>system\n{CONTENT}<seed:eos>", f"<seed:bos>user\n{CONTENT}<seed:eos>",
                       f"<seed:bos>assistant\n{TRIMMED}<seed:eos>", "<seed:bos>assistant\n"),
    "solar-open": _any_role(f"<|begin|>{ROLE}<|content|>{CONTENT}<|end|>", "<|begin|>assistant"),
    "pangu-embedded": _with_default_system(
        "[unused9]系统：[unused10]",
        _renamed(f"[unused9]{ROLE}：{CONTENT}[unused10]", "系统", "用户", "助手", "[unused9]助手：")),
    "rwkv-world": _roles(f"System: {TRIMMED}\n\n", f"User: {TRIMMED}\n\n", f"Assistant: {TRIMMED}\n\n", "Assistant:"),
    "grok-2": _roles(f"System: {TRIMMED}<|separator|>\n\n", f"Human: {TRIMMED}<|separator|>\n\n",
                     f"Assistant: {CONTENT}<|separator|>\n\n", "Assistant:"),
}


def jinja_source(text: str) -> str | None:
    """The Jinja source that a name of these, or a source itself, means; None for another name, which is one word."""
    source = BUILTIN_TEMPLATES.get(text, text)
    return source if "{" in source or " " in source.strip() else None

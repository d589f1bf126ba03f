"""Sound requests of every dialect, and mutations of them.

A mutation is a wrong type, an enormous number, list or text, deep nesting, bytes that are no UTF-8 or no JSON, an
unknown role, NaN, a control character, a header that does not fit, or several of these.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

Dialect = Literal["llama", "openai", "anthropic", "ollama"]
Path = tuple[str | int, ...]        # of keys and indices, from the body down

MODEL = "tiny"
DEPTH = 3000                        # of nesting, beyond what a reader in Python can follow
LONG = 20_000                       # items of a list, characters of a text
FUNCTION = {"name": "look", "description": "looks", "parameters": {
    "type": "object", "properties": {"where": {"type": "string", "maxLength": 4}}, "required": ["where"]}}
TOOL = {"type": "function", "function": FUNCTION}
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="


@dataclass(frozen=True, slots=True)
class Seed:
    """A request that is answered."""

    dialect: Dialect
    path: str
    body: Any
    method: str = "POST"


@dataclass(frozen=True, slots=True)
class Sent:
    """A request, byte for byte, and what was done to it."""

    seed: Seed
    data: bytes
    headers: dict[str, str] = field(default_factory=dict)
    mutations: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.seed.method} {self.seed.path} {self.mutations} {self.headers} {self.data[:300]!r}"


CALLS = [{"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"where": "up"}'}}]
TALK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": CALLS},
        {"role": "tool", "tool_call_id": "call_1", "content": "the sky"}, {"role": "user", "content": "And?"}]
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}

SEEDS: tuple[Seed, ...] = (
    Seed("llama", "/completion", {
        "prompt": [40, "ab", 41], "n_predict": 3, "temperature": 0, "top_k": 4, "seed": 1, "stop": ["zz"],
        "n_probs": 2, "logit_bias": [[40, 1.5], ["a", False]], "samplers": ["top_k", "temperature"], "stream": False,
        "dry_sequence_breakers": ["\n"], "response_fields": ["content", "timings/prompt_n"], "id_slot": 0,
        "lora": [], "return_tokens": True, "cache_prompt": True, "t_max_predict_ms": 1000}),
    Seed("llama", "/completion", {"prompt": "ab", "n_predict": 3, "temperature": 0, "stream": True,
                                  "grammar": 'root ::= "a" | "b"', "return_progress": True, "n": 2}),
    Seed("llama", "/completion", {"prompt": ["a", [40]], "n_predict": 3, "json_schema": SCHEMA, "temperature": 0}),
    Seed("llama", "/infill", {"input_prefix": "a", "input_suffix": "b", "prompt": "", "n_predict": 2,
                              "input_extra": [{"filename": "f", "text": "t"}]}),
    Seed("llama", "/tokenize", {"content": "ab", "add_special": True, "with_pieces": True}),
    Seed("llama", "/detokenize", {"tokens": [40, 41]}),
    Seed("llama", "/apply-template", {"messages": TALK, "tools": [TOOL], "chat_template_kwargs": {"a": 1}}),
    Seed("llama", "/embedding", {"content": ["ab", "c"], "embd_normalize": 2}),
    Seed("llama", "/lora-adapters", []),
    Seed("llama", "/slots/0?action=save", {"filename": "a"}),
    Seed("llama", "/slots/1?action=erase", {}),
    Seed("openai", "/v1/completions", {
        "model": MODEL, "prompt": "ab", "max_tokens": 3, "temperature": 0, "logprobs": 2, "echo": True, "n": 1,
        "best_of": 2, "stop": "zz", "stream": False, "logit_bias": {"40": 3}, "user": "me"}),
    Seed("openai", "/v1/completions", {"model": MODEL, "prompt": ["ab", "c"], "max_tokens": 3, "temperature": 0,
                                       "stream": True, "stream_options": {"include_usage": True}}),
    Seed("openai", "/v1/chat/completions", {
        "model": MODEL, "messages": TALK, "max_completion_tokens": 4, "temperature": 0, "tools": [TOOL],
        "tool_choice": "auto", "parallel_tool_calls": False, "logprobs": True, "top_logprobs": 2, "stream": True,
        "stream_options": {"include_usage": True}, "reasoning_effort": "low", "metadata": {"a": "b"}}),
    Seed("openai", "/v1/chat/completions", {
        "model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 12, "temperature": 0, "n": 2,
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}}),
    Seed("openai", "/v1/chat/completions", {
        "model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 24, "temperature": 0,
        "tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "look"}}}),
    Seed("openai", "/v1/responses", {
        "model": MODEL, "instructions": "Be brief.", "max_output_tokens": 3, "temperature": 0, "store": False,
        "stream": True, "tools": [{"type": "function", **FUNCTION}], "text": {"format": {"type": "text"}},
        "reasoning": {"effort": "low", "summary": "auto"}, "include": ["reasoning.encrypted_content"],
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
                  {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "H"}]},
                  {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
                  {"type": "function_call_output", "call_id": "c", "output": "sky"}]}),
    Seed("openai", "/v1/responses/input_tokens", {"model": MODEL, "input": "Hi"}),
    Seed("openai", "/v1/embeddings", {"model": MODEL, "input": ["ab", [40]], "encoding_format": "base64",
                                      "dimensions": 4}),
    Seed("openai", "/v1/rerank", {"model": MODEL, "query": "a", "documents": ["b", "c"], "top_n": 1}),
    Seed("anthropic", "/v1/messages", {
        "model": MODEL, "max_tokens": 4, "temperature": 0, "stream": True, "stop_sequences": ["zz"],
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "ttl": "5m"}}],
        "thinking": {"type": "enabled", "budget_tokens": 1024}, "metadata": {"user_id": "u"},
        "tools": [{"name": "look", "description": "looks", "input_schema": FUNCTION["parameters"]}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            {"type": "tool_use", "id": "t", "name": "look", "input": {"where": "up"}}]}, {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "sky"}]},
                {"type": "text", "text": "And?"}]}]}),
    Seed("anthropic", "/v1/messages", {"model": MODEL, "max_tokens": 4, "temperature": 0,
                                       "messages": [{"role": "user", "content": "Hi"}]}),
    Seed("anthropic", "/v1/messages", {"model": MODEL, "max_tokens": 4, "messages": [{"role": "user", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}, "title": "t"}]}]}),
    Seed("anthropic", "/v1/messages/count_tokens", {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}),
    Seed("ollama", "/api/chat", {
        "model": MODEL, "messages": [{"role": "user", "content": "Hi", "images": []}, {
            "role": "assistant", "content": "", "thinking": "Hm.",
            "tool_calls": [{"function": {"name": "look", "arguments": {"where": "up"}}}]},
            {"role": "tool", "content": "sky", "tool_name": "look"}],
        "tools": [TOOL], "think": False, "stream": True, "logprobs": True, "top_logprobs": 1, "options": {
            "num_predict": 3, "temperature": 0, "stop": ["zz"], "seed": 1, "num_ctx": 4096, "top_k": 3}}),
    Seed("ollama", "/api/chat", {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "stream": False,
                                 "format": SCHEMA, "options": {"num_predict": 12, "temperature": 0}}),
    Seed("ollama", "/api/generate", {"model": MODEL, "prompt": "ab", "stream": False, "system": "s", "raw": False,
                                     "context": [40, 41], "format": "json", "truncate": True, "shift": False,
                                     "options": {"num_predict": 3, "temperature": 0}}),
    Seed("ollama", "/api/generate", {"model": MODEL, "prompt": "ab", "suffix": "c", "stream": True,
                                     "options": {"num_predict": 3, "temperature": 0}}),
    Seed("ollama", "/api/generate", {
        "model": MODEL, "prompt": "ab", "stream": False, "options": {"num_predict": 3, "temperature": 0},
        "template": "{{ if .System }}{{ .System }}{{ end }}{{ range .Messages }}{{ .Content }}{{ end }}{{ .Prompt }}"}),
    Seed("ollama", "/api/embed", {"model": MODEL, "input": ["ab", "c"], "truncate": True, "dimensions": 4}),
    Seed("ollama", "/api/embeddings", {"model": MODEL, "prompt": "ab"}),
    Seed("ollama", "/api/show", {"model": MODEL, "verbose": True}),
    Seed("ollama", "/api/create", {
        "model": "made", "from": MODEL, "parameters": {"top_k": 2}, "stream": False, "system": "s",
        "messages": [{"role": "user", "content": "Hi"}], "template": "{{ .Prompt }}"}),
    Seed("ollama", "/api/copy", {"source": MODEL, "destination": "copy"}),
    Seed("ollama", "/api/delete", {"model": "absent"}, "DELETE"),
)

ODD_VALUES: tuple[Callable[[random.Random], Any], ...] = (
    lambda rng: None, lambda rng: rng.random() < 0.5, lambda rng: {}, lambda rng: [], lambda rng: "",
    lambda rng: rng.choice([0, -1, 1, 2, 7, 2**31 - 1, 2**31, 2**53, 2**63, -(2**63) - 1, 10**30, 10**400]),
    lambda rng: rng.choice([0.5, -0.0, 1e-320, 1e308, -1e308, 3.0]),
    lambda rng: rng.choice([float("nan"), float("inf"), float("-inf")]),
    lambda rng: rng.choice(["\x00", "\x1b[2J", "\ufeff", "\u202e", "\U0001f600", "\ud800", "a\udfffb", "\r\n\r\n"]),
    lambda rng: rng.choice(["<|im_start|>system\n", "<tool_call>\n{", "</think>", "{{ 7 * 7 }}", "{% for %}", "../../x",
                            "/etc/passwd", "http://localhost:1/", "file:///etc/passwd", "data:image/png;base64,!!",
                            "[unused]", "true", "NaN", "-1", "1e999", "auto", "none", "user", "emperor"]),
    lambda rng: rng.choice("a \x01é{[\"") * rng.choice([300, LONG]),
    lambda rng: [rng.choice([0, -1, 40, "a", None, 1.5, [], {}])] * rng.choice([2, 300, LONG]),
    lambda rng: {f"k{i}": i for i in range(rng.choice([3, 2000]))},
    lambda rng: nested(rng, rng.choice([5, 60, 200])),
    lambda rng: {"type": rng.choice(["text", "image_url", "object", "function", "json_schema", "grammar", "nonsense"])},
    lambda rng: {"$ref": rng.choice(["#", "#/a", "http://localhost:1/x.json", 3])},
)
NAMES = (
    "n", "n_predict", "max_tokens", "stream", "stop", "model", "messages", "tools", "tool_choice", "seed",
    "grammar", "json_schema", "response_format", "logit_bias", "logprobs", "top_logprobs", "n_probs", "lora",
    "id_slot", "temperature", "top_p", "top_k", "min_p", "mirostat", "samplers", "dry_multiplier", "penalty_last_n",
    "thinking", "reasoning_effort", "reasoning_format", "chat_template_kwargs", "options", "format", "think",
    "images", "prompt", "input", "suffix", "echo", "best_of", "content", "role", "type", "text", "tool_calls",
    "arguments", "function", "name", "parameters", "system", "documents", "query", "priority", "stream_options",
    "modelfile", "files", "adapters", "template", "timings_per_token", "sse_ping_interval",
    "continue_final_message", "cache_control")


def nested(rng: random.Random, depth: int) -> Any:
    """Lists or objects in each other."""
    value: Any = 1
    for _ in range(depth):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return value


def paths(value: Any, path: Path = ()) -> list[Path]:
    """Of all values in `value`, itself included."""
    found: list[Path] = [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += paths(item, (*path, key))
    return found


def parent_of(body: Any, path: Path) -> Any:
    for key in path[:-1]:
        body = body[key]
    return body


def change_value(rng: random.Random, body: Any) -> tuple[Any, str]:
    """`body` with one value replaced, removed, repeated, renamed or added."""
    where = rng.choice(paths(body)[1:] or [()])
    if not where:
        return rng.choice(ODD_VALUES)(rng), "body"
    parent, key = parent_of(body, where), where[-1]
    kind = rng.choice(["replace", "replace", "replace", "remove", "repeat", "rename", "add", "swap"])
    if kind == "replace":
        parent[key] = rng.choice(ODD_VALUES)(rng)
    elif kind == "remove":
        del parent[key]
    elif kind == "repeat":
        parent[key] = [copy.deepcopy(parent[key])] * rng.choice([2, 50])
    elif kind == "rename" and isinstance(parent, dict):
        parent[rng.choice([*NAMES, "", "\x00", "ключ"])] = parent.pop(key)
    elif kind == "swap":
        other = rng.choice(paths(body)[1:])
        parent[key] = copy.deepcopy(parent_of(body, other)[other[-1]])
    else:
        holder = parent if isinstance(parent, dict) else body
        if isinstance(holder, dict):
            holder[rng.choice(NAMES)] = rng.choice(ODD_VALUES)(rng)
    return body, f"{kind} {'.'.join(map(str, where))}"


def change_bytes(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    """`data`, which is no JSON or not the same any more."""
    at = rng.randrange(len(data) + 1)
    kind = rng.choice(["cut", "flip", "bad utf-8", "utf-16", "mark", "deep", "empty", "blank", "more", "nul"])
    changed = {
        "cut": data[:at], "bad utf-8": data[:at] + rng.choice([b"\xff", b"\xc0\xaf", b"\xed\xa0\x80"]) + data[at:],
        "utf-16": data.decode("utf-8", "replace").encode("utf-16"), "mark": b"\xef\xbb\xbf" + data, "empty": b"",
        "deep": data[:1] + b'"deep":' + rng.choice([b"[", b'{"a":']) * DEPTH + data[1:], "blank": b" \n" * 500 + data,
        "more": data + data, "nul": data[:at] + b"\0" + data[at:],
        "flip": data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]}
    return changed[kind], kind


def change_headers(rng: random.Random) -> dict[str, str]:
    """Headers that do not fit the body, or that no client sends."""
    return rng.choice([
        {"Content-Type": rng.choice(["text/plain", "application/xml", "multipart/form-data", "multipart/form-data; "
                                     "boundary=x", "application/json; charset=utf-7", "x", "", ";;;", "a" * 3000])},
        {"Content-Encoding": rng.choice(["gzip", "deflate", "nonsense", "gzip, gzip"])},
        {"Accept": rng.choice(["text/event-stream", "nothing/at-all", "", "\t"])},
        {"Authorization": rng.choice(["Bearer ", "Basic x", "Bearer \xe9", "x" * 2000])},
        {"X-Conversation-Id": rng.choice(["", "a", "a" * 3000])},
        {"anthropic-version": rng.choice(["", "2023-06-01", "x" * 1000]), "anthropic-beta": "y"},
        {"Origin": rng.choice(["null", "http://[", "http://localhost", "file://"])},
        {"Expect": rng.choice(["100-continue", "nonsense"])},
    ])


def usual_headers(seed: Seed) -> dict[str, str]:
    """Those of the dialect's official client. Without Anthropic's, llama-server's status of pictures counts, which is
    500."""
    return {"anthropic-version": "2023-06-01"} if seed.dialect == "anthropic" else {}


def sound(seed: Seed) -> Sent:
    """As it stands."""
    return Sent(seed, json.dumps(seed.body).encode(), usual_headers(seed))


def mutated(rng: random.Random, seeds: tuple[Seed, ...] = SEEDS) -> Sent:
    """One of `seeds` after one to four mutations."""
    seed = rng.choice(seeds)
    body, headers, told = copy.deepcopy(seed.body), usual_headers(seed), []
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        body, what = change_value(rng, body)
        told.append(what)
    try:
        data = json.dumps(body).encode()
    except RecursionError:
        data = b"[" * DEPTH
    if rng.random() < 0.12:
        data, what = change_bytes(rng, data)
        told.append(what)
    if rng.random() < 0.08:
        headers |= change_headers(rng)
    return Sent(seed, data, headers, tuple(told))

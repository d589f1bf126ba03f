"""The fields of requests' bodies, for the OpenAPI document: a name and a letter for its type.

n: number, i: whole number, b: boolean, s: string, a: array, o: object, t: string or array of strings, x: any. "!" marks
what is needed, "@" a group of fields.
"""

from __future__ import annotations

GROUPS = {
    "sampling": "temperature:n dynatemp_range:n dynatemp_exponent:n top_k:i top_p:n min_p:n top_n_sigma:n "
                "xtc_probability:n xtc_threshold:n typical_p:n repeat_last_n:i repeat_penalty:n presence_penalty:n "
                "frequency_penalty:n dry_multiplier:n dry_base:n dry_allowed_length:i dry_penalty_last_n:i "
                "dry_sequence_breakers:a mirostat:i mirostat_tau:n mirostat_eta:n adaptive_target:n adaptive_decay:n "
                "min_keep:i seed:i samplers:t stop:t logit_bias:x ignore_eos:b grammar:s json_schema:x n_predict:i "
                "max_tokens:i max_completion_tokens:i",
    "native": "@sampling model:s stream:b n_cmpl:i n:i n_indent:i n_keep:i n_discard:i n_cache_reuse:i cache_prompt:b "
              "id_slot:i return_tokens:b return_progress:b timings_per_token:b t_max_predict_ms:i n_probs:i logprobs:i "
              "post_sampling_probs:b lora:a response_fields:a sse_ping_interval:i",
    "template": "messages:a! tools:a tool_choice:x chat_template_kwargs:o add_generation_prompt:b "
                "continue_final_message:x reasoning_effort:s documents:a",
    "chat": "@native @template logprobs:b top_logprobs:i response_format:o parallel_tool_calls:b parse_tool_calls:b "
            "reasoning_format:s reasoning_budget_tokens:i thinking_budget_tokens:i reasoning_budget_message:s "
            "reasoning_control:b stream_options:o verbose:b user:s metadata:o store:b service_tier:s "
            "prompt_cache_key:s safety_identifier:s verbosity:s modalities:a prediction:o functions:a function_call:x "
            "web_search_options:o",
    "responses": "model:s input:x! instructions:s max_output_tokens:i temperature:n top_p:n top_logprobs:i stream:b "
                 "reasoning:o tools:a tool_choice:x text:o parallel_tool_calls:b previous_response_id:s "
                 "conversation:x background:b store:b include:a metadata:o truncation:s user:s "
                 "sse_ping_interval:i",
    "anthropic": "model:s messages:a! system:x temperature:n top_p:n top_k:i stop_sequences:a stream:b tools:a "
                 "tool_choice:o thinking:o metadata:o service_tier:s output_config:o cache_control:o "
                 "chat_template_kwargs:o",
    "ollama": "model:s! stream:b options:o format:x keep_alive:x think:x logprobs:b top_logprobs:i truncate:b shift:b",
}
RERANK = "model:s query:s! documents:a texts:a top_n:i return_text:b"
EMBEDDING = "model:s input:x content:x embd_normalize:i"
# path without /v1, or with it where that means something else -> fields of the body
BODIES = {
    "/completion": "@native prompt:x!", "/infill": "@native input_prefix:s! input_suffix:s! input_extra:a prompt:s",
    "/v1/completions": "@native prompt:x! suffix:s echo:b best_of:i logprobs:i stream_options:o user:s",
    "/chat/completions": "@chat", "/chat/completions/input_tokens": "@chat",
    "/chat/completions/control": "id:s! action:s!",
    "/apply-template": "@template model:s",
    "/tokenize": "model:s content:x add_special:b parse_special:b with_pieces:b",
    "/detokenize": "model:s tokens:a", "/embedding": EMBEDDING, "/embeddings": EMBEDDING,
    "/v1/embeddings": f"{EMBEDDING} encoding_format:s dimensions:i user:s",
    "/rerank": RERANK, "/reranking": RERANK, "/slots/{id}": "filename:s", "/props": "", "/lora-adapters": "",
    "/models": "model:s!", "/models/load": "model:s!", "/models/unload": "model:s!",
    "/responses": "@responses", "/responses/input_tokens": "@responses",
    "/messages": "@anthropic max_tokens:i sse_ping_interval:i", "/messages/count_tokens": "@anthropic",
    "/streams/lookup": "conversation_ids:a",
    "/api/generate": "@ollama prompt:s suffix:s images:a system:s template:s raw:b context:a",
    "/api/chat": "@ollama messages:a tools:a", "/api/show": "model:s name:s verbose:b",
    "/api/embed": "model:s! input:t! truncate:b dimensions:i options:o keep_alive:x",
    "/api/embeddings": "model:s! prompt:s options:o keep_alive:x",
    "/api/pull": "model:s name:s insecure:b stream:b", "/api/push": "model:s stream:b",
    "/api/create": "model:s from:s files:o adapters:o template:s system:s license:t parameters:o messages:a quantize:s "
                   "renderer:s parser:s requires:s stream:b",
    "/api/copy": "source:s! destination:s!", "/api/delete": "model:s name:s",
}
# what a path does, where its last word does not say it
SUMMARIES = {
    "/": "The page to chat, or what an Ollama server says", "/completion": "Go on from a prompt (llama-server)",
    "/v1/completions": "Go on from a prompt (OpenAI)", "/infill": "Fill a gap in code",
    "/chat/completions": "Answer a chat (OpenAI)", "/responses": "Answer a chat (OpenAI's responses)",
    "/messages": "Answer a chat (Anthropic)", "/api/chat": "Answer a chat (Ollama)",
    "/api/generate": "Go on from a prompt (Ollama)", "/rerank": "Documents by how well they fit a query",
    "/slots/{id}": "Save, restore or erase what was computed in a slot",
}
QUERIES = {
    "/slots": "fail_on_no_slot model", "/slots/{id}": "action! model", "/props": "model", "/metrics": "model",
    "/models": "reload", "/stream": "conv_id! from",
}


def fields_of(path: str) -> dict[str, tuple[str, bool]] | None:
    """Name -> type and whether it is needed, of the body that is sent to `path`; None if there is none."""
    text = BODIES.get(path, BODIES.get(plain(path)))
    return None if text is None else dict(_read(text))


def plain(path: str) -> str:
    """The path without /v1; of the several names of a route the one that the tables have."""
    short = path.removeprefix("/v1")
    return {"/completions": "/completion"}.get(short, short)


def _read(text: str) -> list[tuple[str, tuple[str, bool]]]:
    found = []
    for word in text.split():
        if word.startswith("@"):
            found += _read(GROUPS[word[1:]])
        else:
            name, _, kind = word.partition(":")
            found.append((name, (kind[0], kind.endswith("!"))))
    return found

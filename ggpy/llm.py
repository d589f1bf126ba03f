"""The library: a model in this process, that continues text, answers messages and gives logits."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, SupportsIndex, Unpack, get_args

import numpy as np
from numpy.typing import NDArray

from ggpy.arguments import check_choice, check_text, text_list, token_ids
from ggpy.arrays import Float32
from ggpy.backends.base import Compute, KVType, Repack, Scales
from ggpy.engine.adapters import AdapterInfo
from ggpy.engine.client import CompletionStream, EngineClient
from ggpy.engine.completion import Completion, Timings
from ggpy.engine.config import DEFAULT_STEP_MS, SamplingParams
from ggpy.engine.constraint import ConstraintSpec
from ggpy.engine.probabilities import ProbabilitySpec
from ggpy.engine.request import Request
from ggpy.engine.speculation import SpeculationConfig
from ggpy.errors import ConfigError, RequestError, shown
from ggpy.gguf import GGUFFile
from ggpy.hub.resolve import Resolved, resolve
from ggpy.loading import Lora, ModelOptions, Progress, adapter_files, compilers_awake, open_core, trained_n_ctx
from ggpy.made import load_options, own_template, with_parameters, with_preface
from ggpy.text import ChatOptions, ChatTemplate, ModelText, Tokenizer, check_options

if TYPE_CHECKING:
    from ggpy.hub.store import StoredModel

__all__ = ["LLM", "Completion", "CompletionStream", "Timings"]

Message = Mapping[str, Any]
Positions = Literal["all", "last"]
OneVector = Literal["mean", "cls", "last"]      # poolings that make one vector of a text
Tokens = Sequence[SupportsIndex] | NDArray[np.integer[Any]]


class LLM:
    """A loaded model.

    `model` is a path to a GGUF file or a name, such as "smollm2" or "hf:user/repo:QUANT", pulled if it is absent.
    `chat_template`, Jinja source, compiled or a built-in name such as "chatml", takes the place of the file's.
    A name that a client of `ggpy serve` has given, by /api/create, brings what was said there: template, context,
    threads and adapters where the arguments do not say, `default_params`, and messages in front of each conversation.

    `n_ctx` is how many tokens a prompt and its answer may have together (None: the model's, as far as memory
    allows). `pool_tokens` is how many there is room for, of all requests together (None: `n_ctx`); where it
    is short, requests take turns.

    `compute` "f32" is exact and slow; `cache_type_k` and `cache_type_v`, the types in which keys and values are kept,
    may be "f32" as well, or "q8_0", which takes half of what "f16" does. `repack` "off" reads weights where the file
    has them, "auto" does so where memory is short. A step has at most `max_batch_tokens` tokens; None is 512, or the
    context of an encoder, whose texts have to fit a step. Prompts are read in steps of about `step_ms` milliseconds,
    between which other requests go on, of at least 8 tokens; a third longer where several prompts wait, and four times
    as long while nobody generates; 0: in the largest ones. Of `cache_audit` cache hits one is computed again and
    compared (0: none); what differs is logged as an error. `progress` is told of every kernel that has to be compiled
    for the model; a request that wants other samplers waits for those.

    Tokens are guessed from text that occurred before, and by `draft_model`, a path or a name of a smaller model with
    the same vocabulary, if it is given; `speculation` says how. This saves time and never changes answers.

    `lora` has low-rank adapters: a path to a GGUF file, one with a scale (1 if there is none), or several of these.
    Requests get so much of each that do not ask for other scales, by the numbers of the adapters from 0 on.

    Several threads may use one LLM; requests that are live at the same time share the model's steps.

    Raises ConfigError if a setting is invalid, PullError if the model is unknown or cannot be pulled, GGUFError,
    UnsupportedModelError or TokenizerError if its file cannot be used, TemplateError if `chat_template` does not
    compile, OutOfMemoryError if the model does not fit, and KernelError if this machine cannot compile its kernels.
    """

    def __init__(self, model: str | os.PathLike[str], *, n_ctx: int | None = None, pool_tokens: int | None = None,
                 n_threads: int | None = None, compute: Compute = "int8", cache_type_k: KVType = "f16",
                 cache_type_v: KVType = "f16", repack: Repack = "auto", max_batch_tokens: int | None = None,
                 step_ms: float = DEFAULT_STEP_MS, cache_audit: int = 0,
                 chat_template: str | ChatTemplate | None = None,
                 draft_model: str | os.PathLike[str] | None = None,
                 speculation: SpeculationConfig | None = None, lora: Lora | Sequence[Lora] = (),
                 progress: Progress | None = None) -> None:
        options = ModelOptions(n_ctx=n_ctx, pool_tokens=pool_tokens, n_threads=n_threads, compute=compute,
                               cache_type_k=cache_type_k, cache_type_v=cache_type_v, repack=repack,
                               max_batch_tokens=max_batch_tokens, step_ms=step_ms, cache_audit=cache_audit,
                               speculation=SpeculationConfig() if speculation is None else speculation, lora=lora,
                               draft_model=None if draft_model is None else resolved(draft_model).path)
        found = resolved(model)
        self.path, self.made = found.path, found.made
        self.default_params = SamplingParams()
        gguf = GGUFFile(self.path)
        if found.made is not None:
            options = as_made(found.made, options, trained_n_ctx(gguf))
            self.default_params = with_parameters(self.default_params, found.made.parameters)
            chat_template = own_template(found.made) if chat_template is None else chat_template
        self.metadata = gguf.metadata
        with compilers_awake():
            self._text = ModelText(gguf.metadata, chat_template)
            core = open_core(gguf, self.tokenizer, options, progress)
        self.n_ctx, self.n_vocab, self.n_embd = core.config.n_ctx, core.backend.n_vocab, core.backend.n_embd
        self.pooling = core.config.pooling
        self._adapters = core.adapters
        self._client = EngineClient(core)

    @property
    def adapters(self) -> list[AdapterInfo]:
        """The low-rank adapters, by number, with the scales that requests get which ask for none."""
        return self._adapters.infos

    def set_lora(self, scales: Mapping[int, float]) -> None:
        """Change these scales, by number; adapters that are not in `scales` get 0. Answers that have begun keep theirs.

        Raises RequestError for a number that no adapter has, or a scale that is not finite.
        """
        self._adapters.set_defaults(adapter_scales(scales))

    @property
    def tokenizer(self) -> Tokenizer:
        """What turns text into token ids and back."""
        return self._text.tokenizer

    @property
    def has_chat_template(self) -> bool:
        """Whether the model has a chat template; without one, messages are written as ChatML.

        Raises TemplateError if what it has is not a string.
        """
        return self._text.has_chat_template or (self.made is not None and self.made.template is not None)

    @property
    def chat_template(self) -> ChatTemplate:
        """How messages are written. Raises TemplateError if the template in the file does not compile."""
        return self._text.chat_template

    def tokenize(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Token ids of `text`. `add_special` adds BOS and the like where the model wants them; `parse_special` reads
        "<|im_end|>" and the like as control tokens. Raises RequestError if `text` is not a string."""
        check_text("text", text)
        return self.tokenizer.encode(text, add_special=add_special, parse_special=parse_special)

    def detokenize(self, ids: Tokens) -> str:
        """The text of `ids`, control tokens spelled. Raises TokenizerError if an id is outside the vocabulary."""
        return self.tokenizer.decode(token_ids("ids", ids))

    def chat_tokens(self, messages: Sequence[Message], **options: Unpack[ChatOptions]) -> list[int]:
        """`messages` in the chat template, open for the assistant's answer, as token ids; `options` as for `chat`.

        Control tokens that the messages spell are text, but for the tags of an assistant's reasoning. Raises
        TemplateError as `chat` does.
        """
        check_chat_options("LLM.chat_tokens", options)
        if self.made is not None and (own := self.chat_template.plain(messages, **options)):
            messages = with_preface(own, self.made)     # errors count the caller's own messages
        return self.chat_template.prompt(messages, self.tokenizer, **options).encode(self.tokenizer)

    def logits(self, ids: Tokens, positions: Positions = "last") -> Float32:
        """What the model expects after `ids`: float32 (n_positions, n_vocab), a row for each position or the last.

        Where memory is short, streams give way meanwhile. Raises RequestError if an id is outside the vocabulary,
        PromptTooLongError if they do not fit the context.
        """
        check_choice("positions", positions, get_args(Positions))
        tokens = token_ids("ids", ids)
        return self._client.logits(tokens, len(tokens) if positions == "all" else 1)

    def embed(self, texts: Sequence[str], *, pooling: OneVector | None = None, normalize: bool = True) -> Float32:
        """Vectors float32 (n_texts, n_embd) of `texts`: their hidden states' mean, the first or the last of them.

        `pooling` None is what the model was made for, the mean where it does not say so. `normalize` gives vectors
        length 1. Where memory is short, streams give way meanwhile. Raises RequestError if `texts` is not a sequence of
        strings or one has no tokens, PromptTooLongError if one does not fit the context, or a step of an encoder.
        """
        if pooling is None:
            pooling = self.pooling if self.pooling in ("mean", "cls", "last") else "mean"
        check_choice("pooling", pooling, get_args(OneVector))
        texts = text_list("texts", texts)
        rows = self._client.embed([self.tokenize(text) for text in texts], pooling)
        vectors = np.concatenate(rows) if rows else np.empty((0, self.n_embd), np.float32)
        if normalize:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))
        return vectors

    def rerank(self, query: str, documents: Sequence[str]) -> Float32:
        """How well each of `documents` answers `query`: float32 (n_documents,), higher is better.

        Raises RequestError if the model has no classifier to rank by, or `documents` is not a sequence of strings,
        PromptTooLongError if the query and a document do not fit a step together.
        """
        check_text("query", query)
        documents = text_list("documents", documents)
        rows = self._client.embed([self._text.rerank_tokens(query, document) for document in documents], "rank")
        return np.array([scores[0, 0] for scores in rows], np.float32)

    def generate(self, prompt: str | Tokens, params: SamplingParams | None = None, *,
                 constraint: ConstraintSpec | None = None,
                 probabilities: ProbabilitySpec | None = None,
                 lora: Mapping[int, float] | None = None) -> Completion:
        """Continue `prompt`: token ids, or a text in which "<|im_end|>" and the like are read as control tokens.

        The text is as `constraint` has it, or its beginning where `max_tokens` ends it. With `probabilities` the
        completion tells how probable its tokens were; `lora` has scales of adapters, by number, in place of the usual
        ones. Raises RequestError if the prompt is empty or an id is outside the vocabulary, PromptTooLongError if it
        leaves no room for an answer, and GrammarError, which names the place, if the constraint cannot be kept to.
        """
        return self.stream(prompt, params, constraint=constraint, probabilities=probabilities, lora=lora).finish()

    def stream(self, prompt: str | Tokens, params: SamplingParams | None = None, *,
               constraint: ConstraintSpec | None = None,
               probabilities: ProbabilitySpec | None = None,
               lora: Mapping[int, float] | None = None) -> CompletionStream:
        """As `generate`, but the text piece by piece."""
        if constraint is not None and not isinstance(constraint, ConstraintSpec):
            raise RequestError(f"constraint={shown(constraint)}: expected a ConstraintSpec")
        if probabilities is not None and not isinstance(probabilities, ProbabilitySpec):
            raise RequestError(f"probabilities={shown(probabilities)}: expected a ProbabilitySpec")
        if params is not None and not isinstance(params, SamplingParams):
            raise RequestError(f"params={params!r:.80}: expected a SamplingParams")
        ids = (self.tokenize(prompt, parse_special=True) if isinstance(prompt, str) else
               token_ids("prompt", prompt, "a text or a sequence of token ids"))
        return self._client.submit(Request(ids, params or self.default_params, constraint=constraint,
                                           probabilities=probabilities,
                                           adapters=None if lora is None else adapter_scales(lora)))

    def chat(self, messages: Sequence[Message], params: SamplingParams | None = None, *,
             constraint: ConstraintSpec | None = None, probabilities: ProbabilitySpec | None = None,
             lora: Mapping[int, float] | None = None, **options: Unpack[ChatOptions]) -> Completion:
        """The answer to `messages`, mappings with a "role" and a "content", a text or a list of parts.

        `options` are tools, documents, chat_template_kwargs, add_generation_prompt and continue_final_message, which
        takes the last message as the beginning of the answer; the completion is what follows, as `constraint` has it.
        Raises TemplateError if there are no messages, if one is malformed, or if the template cannot render them or
        leaves tools or documents out, PromptTooLongError if they leave no room for an answer, and GrammarError if the
        constraint cannot be kept to.
        """
        check_chat_options("LLM.chat", options)
        return self.stream_chat(messages, params, constraint=constraint, probabilities=probabilities,
                                lora=lora, **options).finish()

    def stream_chat(self, messages: Sequence[Message], params: SamplingParams | None = None, *,
                    constraint: ConstraintSpec | None = None, probabilities: ProbabilitySpec | None = None,
                    lora: Mapping[int, float] | None = None, **options: Unpack[ChatOptions]) -> CompletionStream:
        """As `chat`, but the text piece by piece."""
        check_chat_options("LLM.stream_chat", options)
        return self.stream(self.chat_tokens(messages, **options), params, constraint=constraint,
                           probabilities=probabilities, lora=lora)

    def close(self) -> None:
        """Free the model's memory and threads, once the step that runs has ended; streams end with an error."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


def resolved(model: str | os.PathLike[str]) -> Resolved:
    """What `model` is; one that is given by name is pulled if it is absent."""
    return model if isinstance(model, Resolved) else resolve(spec_of(model))


def spec_of(model: str | os.PathLike[str]) -> str:
    """What `model` is called. Raises ConfigError if it is neither a path nor a name."""
    spec = os.fspath(model) if isinstance(model, str | os.PathLike) else model
    if not isinstance(spec, str):
        raise ConfigError(f"model={model!r:.80}: expected a path to a GGUF file or a name")
    return spec


def as_made(made: StoredModel, options: ModelOptions, n_ctx_train: int) -> ModelOptions:
    """`options`, with what the model's maker said where they do not say otherwise; his adapters are the first.

    A context of his is no longer than `n_ctx_train`.
    """
    own = load_options(made)
    if "n_ctx" in own:
        own["n_ctx"] = min(own["n_ctx"], n_ctx_train)
    chosen = {name: own[name] for name in ("n_ctx", "n_threads") if name in own and getattr(options, name) is None}
    return replace(options, **chosen, lora=(*own.get("lora", ()), *adapter_files(options.lora)))


def adapter_scales(scales: Mapping[int, float]) -> Scales:
    """`scales` as the engine has them. Raises RequestError if that is no mapping."""
    if not isinstance(scales, Mapping):
        raise RequestError(f"lora={shown(scales)}: expected a mapping from numbers of adapters to scales")
    return tuple(scales.items())


def check_chat_options(method: str, options: Mapping[str, Any]) -> None:
    """Raises TypeError if `options` has a name that ChatOptions has not; a field of SamplingParams is told apart."""
    check_options(method, options, {name: f"it is a field: params=SamplingParams({name}=...)"
                                    for name in SamplingParams.__dataclass_fields__})

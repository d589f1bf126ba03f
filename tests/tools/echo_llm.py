"""An LLM that says what it was asked; run as a program, it is what `ggpy run` talks to."""

import itertools
import re
import signal
import sys
import threading
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from ggpy import Completion, ConstraintSpec, SamplingParams, Timings, cli
from ggpy.engine.request import FinishReason
from ggpy.errors import PromptTooLongError
from ggpy.hub.store import StoredModel
from ggpy.text.chat import CHATML
from ggpy.text.vocab import VocabType
from tests.tools.file_metadata import file_metadata

IM_START, IM_END = 256, 257
SPECIAL = {"<|im_start|>": IM_START, "<|im_end|>": IM_END}


class ByteTokenizer:
    """A token for each byte, and ChatML's two; "ab" has a token of its own, too."""

    eog_ids = frozenset({IM_END})
    bos_id = unk_id = pad_id = None
    eos_id = IM_END
    add_bos = False
    merged = 258
    n_vocab = 259
    vocab_type = VocabType.BPE

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False,
               literals: Sequence[tuple[int, int]] = ()) -> list[int]:
        ids: list[int] = []
        start = 0
        for piece in re.split(r"(<\|im_start\|>|<\|im_end\|>|ab)", text):
            if piece == "ab":
                ids.append(self.merged)
            elif parse_special and piece in SPECIAL and (start, start + len(piece)) not in literals:
                ids.append(SPECIAL[piece])
            else:
                ids += piece.encode("utf-8", "surrogateescape")
            start += len(piece)
        return ids

    def control_spans(self, text: str, kept: Container[str] = ()) -> list[tuple[int, int]]:
        return [match.span() for match in re.finditer("|".join(map(re.escape, SPECIAL)), text)
                if match[0] not in kept]

    def token_bytes(self, token_id: int, special: bool = True) -> bytes:
        if token_id in SPECIAL.values():
            return {i: text for text, i in SPECIAL.items()}[token_id].encode() if special else b""
        return b"ab" if token_id == self.merged else bytes([token_id])


class EchoStream:
    """Answers with the words of a text, one by one.

    `max_pieces` of them at most. "^C" among them is the user's interrupt; at "wait" it waits until it is closed.
    """

    def __init__(self, text: str, n_prompt: int, n_cached: int, max_pieces: int | None) -> None:
        self.pieces = [text] if "\n" in text else [word + " " for word in text.split()]
        self.said = ""
        self.n_prompt, self.n_cached, self.max_pieces = n_prompt, n_cached, max_pieces
        self.closed = threading.Event()
        self.finish_reason: FinishReason = "cancelled"

    def __iter__(self) -> Iterator[str]:
        for piece in self.pieces[: self.max_pieces]:
            if piece == "^C ":
                signal.raise_signal(signal.SIGINT)
                self.closed.wait(60)
            elif piece == "wait ":
                while not self.closed.wait(60):
                    pass
            if self.closed.is_set():
                return
            self.said += piece
            yield piece
        self.finish_reason = "stop" if self.max_pieces is None or len(self.pieces) <= self.max_pieces else "length"

    def finish(self) -> Completion:
        list(self)
        return self.completion

    @property
    def n_read(self) -> int:
        return self.n_prompt // 2

    def close(self) -> None:
        self.closed.set()

    @property
    def completion(self) -> Completion:
        tokens = [*self.said.encode(), *([IM_END] if self.finish_reason == "stop" else [])]
        timings = Timings(self.n_prompt, len(tokens), prompt_s=0.5, generation_s=0.25, n_cached=self.n_cached)
        return Completion(self.said, tokens, self.finish_reason, timings, seed=7)


class EchoLLM:
    """Says what it was asked; remembers how it was loaded and asked."""

    path = Path("echo.gguf")
    made: StoredModel | None = None

    def __init__(self, spec: str, metadata: dict[str, Any], options: dict[str, Any]) -> None:
        self.spec, self.metadata, self.options = spec, file_metadata(metadata), options
        self.n_ctx = options.get("n_ctx") or 4096
        self.tokenizer = ByteTokenizer()
        self.asked: list[str | list[dict[str, str]]] = []
        self.prompts: list[list[int]] = []
        self.params: list[SamplingParams] = []
        self.constraints: list[ConstraintSpec | None] = []

    @property
    def has_chat_template(self) -> bool:
        return "tokenizer.chat_template" in self.metadata

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def tokenize(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        return self.tokenizer.encode(text, add_special=add_special, parse_special=parse_special)

    def detokenize(self, ids: Sequence[int]) -> str:
        return b"".join(map(self.tokenizer.token_bytes, ids)).decode("utf-8", "replace")

    def stream(self, prompt: Sequence[int], params: SamplingParams, *,
               constraint: ConstraintSpec | None = None) -> EchoStream:
        self.constraints.append(constraint)
        if len(prompt) >= self.n_ctx:
            raise PromptTooLongError(f"the prompt has {len(prompt):,} tokens but the context holds {self.n_ctx:,}")
        text = self.detokenize(prompt)
        messages = [{"role": role, "content": content}
                    for role, content in re.findall(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>", text, re.DOTALL)]
        self.asked.append(messages or text)
        self.params.append(params)
        known = self.prompts[-1] if self.prompts else []
        pairs = zip(known, prompt, strict=False)
        n_cached = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        self.prompts.append(list(prompt))
        return EchoStream(messages[-1]["content"] if messages else text, len(prompt), n_cached,
                          params.max_tokens)


def main(argv: list[str]) -> int:
    """`ggpy run` with an EchoLLM."""
    from ggpy.tools import loading

    loading.load = lambda spec, offline=False, **options: EchoLLM(     # type: ignore[assignment]
        spec, {"tokenizer.chat_template": CHATML}, options)
    setattr(loading, "compile_samplers", lambda llm, params, is_constrained: None)      # noqa: B010 (mypy)
    return cli.main(["run", *argv])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

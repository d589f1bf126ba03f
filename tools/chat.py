"""A conversation with a model: its messages, and the tokens that the model reads for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ggpy.errors import GgpyError
from ggpy.text import ChatPrompt, ChatTemplate, StreamDecoder
from ggpy.tools.chat_answer import Answer

if TYPE_CHECKING:
    from ggpy.engine.config import SamplingParams
    from ggpy.llm import LLM, Completion

Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class Read:
    """A prompt, with its answer behind it once there is one, and the tokens that the model has read and said for it."""

    prompt: ChatPrompt
    tokens: list[int]


class Conversation:
    """Messages that grow by a question and its answer at a time.

    A prompt repeats all that was said. What the model said is repeated as its own tokens, which encoding its text again
    need not give, so that the engine finds the keys and values of the whole history in its cache. `template` None sends
    every prompt as it stands, without what was said before; `variables` are handed to it.
    """

    def __init__(self, llm: LLM, params: SamplingParams, template: ChatTemplate | None, system: str = "",
                 variables: Mapping[str, Any] | None = None) -> None:
        self.llm = llm
        self.params = params
        self.template = template
        self.variables = variables
        self.system = system
        self.messages: list[Message] = []       # from the user and from the model, in turn
        self.last: Completion | None = None     # with a token at least
        self.n_used = 0                         # tokens of the context that the conversation takes
        self._reads: list[Read] = []            # each turn's, the oldest first
        self._question = ""
        self._prompt = Read(ChatPrompt(""), [])
        self._answer: Answer | None = None
        self._stopped = False

    def ask(self, question: str) -> Answer:
        """Start the answer; `end` must follow. Raises TemplateError; the conversation is then what it was.

        Reading the answer raises PromptTooLongError if there is no room for one.
        """
        self._stopped = False
        self._question = question
        prompt = self._prompt = self.encode([*self.messages, {"role": "user", "content": question}])
        self._answer = Answer(lambda: self.llm.stream(prompt.tokens, self.params), len(prompt.tokens))
        if self._stopped:
            self._answer.stop()
        return self._answer

    def stop(self) -> None:
        """End the answer that is under way, or that `ask` is about to start; a signal handler may call this."""
        self._stopped = True
        if self._answer is not None:
            self._answer.stop()

    @property
    def was_stopped(self) -> bool:
        """Whether `stop` ended the last answer."""
        return self._stopped

    def join(self) -> None:
        """Wait until the model has ended the step it was in when the last answer was stopped."""
        if self._answer is not None:
            self._answer.join()

    @property
    def prompt_tokens(self) -> list[int]:
        """What the model was last asked to continue."""
        return self._prompt.tokens

    def end(self) -> Completion:
        """Stop the answer if it has not ended, and remember what was said; a question without any answer is dropped."""
        assert self._answer is not None
        self._answer.stop()
        completion = self._answer.completion
        if completion.tokens:
            self.last = completion
        if completion.text or completion.finish_reason in ("stop", "length"):
            self.messages += [{"role": "user", "content": self._question},
                              {"role": "assistant", "content": completion.text}]
            self.n_used = completion.n_prompt + len(completion.tokens)
            self._remember(completion)
        return completion

    def undo(self) -> str:
        """Take back the last question and its answer; returns the question. Raises GgpyError if there is none."""
        if not self.messages:
            raise GgpyError("nothing has been said yet")
        question = self.messages[-2]["content"]
        del self.messages[-2:]
        self._forget()
        return question

    def clear(self) -> None:
        """Forget what was said; instructions and settings stay."""
        self.messages.clear()
        self._forget()

    def replace(self, messages: Sequence[Message], system: str) -> None:
        """Go on from other messages."""
        self.messages[:] = messages
        self.system = system
        self._forget()

    def encode(self, messages: Sequence[Message]) -> Read:
        """`messages` as the model reads them, open for its answer."""
        tokenizer = self.llm.tokenizer
        if self.template is None:
            text = messages[-1]["content"]
            return Read(ChatPrompt(text), self.llm.tokenize(text, parse_special=True))
        system = [{"role": "system", "content": self.system}] if self.system else []
        prompt = self.template.prompt([*system, *messages], tokenizer, chat_template_kwargs=self.variables)
        while self._reads and not prompt.starts_with(self._reads[-1].prompt):
            self._reads.pop()
        if self._reads:
            known = self._reads[-1]
            rest = prompt.encode_from(len(known.prompt.text), tokenizer)
            # behind anything but a control token, the text before it may change how the rest is cut into tokens
            if rest and not tokenizer.token_bytes(rest[0], special=False):
                return Read(prompt, [*known.tokens, *rest])
        return Read(prompt, prompt.encode(tokenizer))

    def _remember(self, completion: Completion) -> None:
        """Keep the answer's tokens for later prompts, unless a stop string or an interrupt left text out."""
        tokenizer, tokens = self.llm.tokenizer, completion.tokens
        if tokens and tokens[-1] in tokenizer.eog_ids:
            tokens = tokens[:-1]
        decoder = StreamDecoder(tokenizer)
        if self.template is not None and decoder.extend(tokens) + decoder.finish() == completion.text:
            prompt = self._prompt.prompt.with_answer(completion.text, tokenizer)
            self._reads.append(Read(prompt, [*self._prompt.tokens, *tokens]))

    def _forget(self) -> None:
        """The last answer is not what the conversation ends with any more."""
        self.last = None
        self.n_used = len(self.encode(self.messages).tokens) if self.messages else 0

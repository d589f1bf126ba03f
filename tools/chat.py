"""A conversation with a model: its messages, and the tokens that the model reads for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ggpy.errors import GgpyError, PromptTooLongError
from ggpy.made import behind_system
from ggpy.text import ChatPrompt, ChatTemplate, StreamDecoder
from ggpy.tools.chat_answer import Answer
from ggpy.tools.prompt_size import least_tokens

if TYPE_CHECKING:
    from ggpy.engine.config import SamplingParams
    from ggpy.engine.constraint import ConstraintSpec
    from ggpy.llm import LLM, Completion, CompletionStream

Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class Read:
    """A prompt, with its answer behind it once there is one, and the tokens that the model has read and said for it."""

    prompt: ChatPrompt
    tokens: list[int]


@dataclass(slots=True)
class Turn:
    """A question on its way: the answer's thread, which encodes it, may outlive the wish for an answer."""

    question: str = ""
    is_stopped: bool = False
    read: Read | None = None        # once it is encoded
    n_prompt: int = 0               # its tokens; as many at least where it is too long to be encoded


class Conversation:
    """Messages that grow by a question and its answer at a time.

    A prompt repeats all that was said. What the model said is repeated as its own tokens, which encoding its text again
    need not give, so that the engine finds the keys and values of the whole history in its cache. `template` None sends
    every prompt as it stands, without what was said before; `variables` are handed to it. Every answer is as
    `constraint` has it. `preface` are messages that stand between the system prompt and the conversation, and are none
    of it.
    """

    def __init__(self, llm: LLM, params: SamplingParams, template: ChatTemplate | None, system: str = "",
                 variables: Mapping[str, Any] | None = None, constraint: ConstraintSpec | None = None,
                 preface: Sequence[Message] = ()) -> None:
        self.llm = llm
        self.constraint = constraint
        self.params = params
        self.template = template
        self.variables = variables
        self.system = system
        self.preface = preface
        self.messages: list[Message] = []       # from the user and from the model, in turn
        self.last: Completion | None = None     # with a token at least
        self.unanswered: str | None = None      # the last question, if it got no answer and so is no message
        self.n_used = 0                         # tokens of the context that the conversation takes
        self._reads: list[Read] = []            # each turn's, the oldest first
        self._turn = Turn()
        self._answer: Answer | None = None

    def ask(self, question: str, on_prompt: Callable[[Sequence[int]], None] | None = None) -> Answer:
        """Start the answer; `end` must follow. `on_prompt` gets what the model reads, in the answer's thread.

        Reading the answer raises TemplateError, and PromptTooLongError if there is no room for one; the conversation is
        then what it was.
        """
        turn = self._turn = Turn(question)
        messages, params = [*self.messages, {"role": "user", "content": question}], self.params
        # to encode a long text takes long, and Ctrl-C is heard only where nothing is computed
        self._answer = Answer(lambda: self._start(turn, messages, params, on_prompt))
        if turn.is_stopped:
            self._answer.stop()
        return self._answer

    def _start(self, turn: Turn, messages: Sequence[Message], params: SamplingParams,
               on_prompt: Callable[[Sequence[int]], None] | None) -> CompletionStream:
        turn.n_prompt = least_tokens(turn.question, self.llm.tokenizer)
        if turn.n_prompt >= self.llm.n_ctx:
            raise PromptTooLongError(f"the prompt has {turn.n_prompt:,} tokens at least, but the context holds "
                                     f"{self.llm.n_ctx:,}")
        read = self.encode(messages)
        turn.read, turn.n_prompt = read, len(read.tokens)
        if turn.is_stopped:             # nobody waits for this thread, and the model may be gone
            raise GgpyError("the answer was stopped")
        if on_prompt is not None:
            on_prompt(read.tokens)
        return self.llm.stream(read.tokens, params, constraint=self.constraint)

    def stop(self) -> None:
        """End the answer that is under way, or that `ask` is about to start; a signal handler may call this."""
        self._turn.is_stopped = True
        if self._answer is not None:
            self._answer.stop()

    @property
    def was_stopped(self) -> bool:
        """Whether `stop` ended the last answer."""
        return self._turn.is_stopped

    def join(self) -> None:
        """Wait until the model has ended the step it was in when the last answer was stopped."""
        self._turn.is_stopped = True
        if self._answer is not None and self._turn.read is not None:    # else its thread will not come to the model
            self._answer.join()

    @property
    def n_prompt(self) -> int:
        """How many tokens the model was last asked to continue; as many at least if they are far too many."""
        return self._turn.n_prompt

    @property
    def n_read(self) -> int:
        """How many of these it has read so far."""
        return self._answer.n_read if self._answer is not None else 0

    def end(self) -> Completion:
        """Stop the answer if it has not ended, and remember what was said.

        A question without any answer is `unanswered`, and none of the messages: many templates want one after each.
        """
        assert self._answer is not None
        self._answer.stop()
        completion = self._answer.completion
        if completion.tokens:
            self.last = completion
        self.unanswered = self._turn.question
        if completion.text or completion.finish_reason in ("stop", "length"):
            self.unanswered = None
            self.messages += [{"role": "user", "content": self._turn.question},
                              {"role": "assistant", "content": completion.text}]
            self.n_used = completion.n_prompt + len(completion.tokens)
            self._remember(completion)
        return completion

    def undo(self) -> str:
        """Take back the last question and its answer; returns the question. Raises GgpyError if there is none."""
        if not self.messages:
            raise GgpyError("nothing has been said yet")
        question = self.messages[-2]["content"]
        self.replace(self.messages[:-2], self.system)
        return question

    def clear(self) -> None:
        """Forget what was said; instructions and settings stay."""
        self.replace([], self.system)

    def replace(self, messages: Sequence[Message], system: str) -> None:
        """Go on from other messages. Raises TemplateError; the conversation is then what it was."""
        n_used = len(self.encode(messages, system).tokens) if messages else 0
        self.messages[:] = messages
        self.system, self.n_used = system, n_used
        self.last = self.unanswered = None      # they are not what the conversation ends with any more

    def instruct(self, system: str) -> None:
        """Set the system prompt. Raises TemplateError if it cannot be written; the conversation is then what it was."""
        self.encode([*self.messages, {"role": "user", "content": "Hello"}], system)
        self.system = system

    def encode(self, messages: Sequence[Message], system: str | None = None) -> Read:
        """`messages` as the model reads them, open for its answer; `system` is the conversation's unless given."""
        tokenizer = self.llm.tokenizer
        if self.template is None:
            text = messages[-1]["content"]
            return Read(ChatPrompt(text), self.llm.tokenize(text, parse_special=True))
        system = self.system if system is None else system
        said = [*([{"role": "system", "content": system}] if system else []), *messages]
        prompt = self.template.prompt(behind_system(said, self.preface), tokenizer,
                                      chat_template_kwargs=self.variables)
        known = next((read for read in reversed(self._reads) if prompt.starts_with(read.prompt)), None)
        if known is not None:
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
        read = self._turn.read
        if read is None or self.template is None or decoder.extend(tokens) + decoder.finish() != completion.text:
            return
        prompt = read.prompt.with_answer(completion.text, tokenizer)
        self._reads = [*(earlier for earlier in self._reads if prompt.starts_with(earlier.prompt)),
                       Read(prompt, [*read.tokens, *tokens])]

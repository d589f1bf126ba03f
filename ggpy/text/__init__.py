"""Text in and out: tokenizers and chat templates."""

from ggpy.text.chat import ChatTemplate
from ggpy.text.detokenizer import StreamDecoder
from ggpy.text.tokenizer import Tokenizer

__all__ = ["ChatTemplate", "StreamDecoder", "Tokenizer"]

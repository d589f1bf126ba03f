"""Text in and out: tokenizers and chat templates."""

from ggpy.text.chat import ChatOptions, ChatTemplate, check_options, file_templates
from ggpy.text.chat_prompt import ChatPrompt
from ggpy.text.detokenizer import StreamDecoder
from ggpy.text.model_text import ModelText
from ggpy.text.tokenizer import Tokenizer

__all__ = ["ChatOptions", "ChatPrompt", "ChatTemplate", "ModelText", "StreamDecoder", "Tokenizer", "check_options",
           "file_templates"]

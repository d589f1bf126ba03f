"""Chat templates that llama.cpp knows by name."""
from ggpy.text.chat import CHATML
BUILTIN_TEMPLATES = {"chatml": CHATML}

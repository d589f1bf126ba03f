"""ggpy: a GGUF inference engine in Python."""

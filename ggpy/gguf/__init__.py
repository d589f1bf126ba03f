"""The GGUF file format: reader, writer, metadata, tensor types."""

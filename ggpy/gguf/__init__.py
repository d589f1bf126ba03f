"""The GGUF file format: reader, writer, metadata, tensor types."""

from ggpy.gguf.metadata import Metadata, StringArray
from ggpy.gguf.reader import GGUFFile
from ggpy.gguf.types import TensorInfo, TensorType, ValueType
from ggpy.gguf.writer import GGUFWriter

__all__ = ["GGUFFile", "GGUFWriter", "Metadata", "StringArray", "TensorInfo", "TensorType", "ValueType"]

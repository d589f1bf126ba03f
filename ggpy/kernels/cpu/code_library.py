"""LLVM code of a kernel's functions, linked once.

Numba would link each function with all that it calls, optimise that, and keep a copy for whoever calls the function.
"""

from typing import Any

from numba.core.codegen import CPUCodeLibrary


class CodeLibrary(CPUCodeLibrary):          # type: ignore[misc]
    """The code of one function as Numba made it, and the libraries of those that it calls."""

    def add_llvm_module(self, module: Any) -> None:
        self._final_module.link_in(module)

    def finalize(self) -> None:
        self._finalized = True

    def linked_module(self) -> Any:
        """The function with all that it calls, directly or not."""
        found: dict[CodeLibrary, None] = {}
        pending = [self]
        while pending:
            for library in pending.pop()._linking_libraries:
                if library not in found:
                    found[library] = None
                    pending.append(library)
        for library in found:
            self._final_module.link_in(library._final_module, preserve=True)
        return self._final_module

"""What a kernel is: a Python function `(args, step, item, n_items)` of four int64, compiled when a model needs it.

`args` is the address of the kernel's own argument block (`arguments.py`), `step` that of the step descriptor
(`step.py`), and the call is to do part number `item` of `n_items`, which threads claim (`executor.py`), so no part may
wait for another. A kernel is named by where it stands: "q4_k.linear" is `linear` in `q4_k.py`. It reads and writes
memory by address, raises nothing and calls no Python.
"""

from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core import ir, typed_passes, untyped_passes
from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import FunctionPass, PassManager, register_pass


@register_pass(mutates_CFG=False, analysis_only=False)
class ReadOffsets(FunctionPass):            # type: ignore[misc]
    """Makes a number of `FIELDS.name`: Numba would make a constant of all offsets for each one that is read."""

    _name = "read_offsets"

    def __init__(self) -> None:             # abstract in Numba
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        for block in state.func_ir.blocks.values():
            layouts: dict[str, Any] = {}
            for statement in block.find_insts(ir.Assign):
                value = statement.value
                if isinstance(value, ir.Global) and hasattr(value.value, "_fields"):
                    layouts[statement.target.name] = statement
                elif isinstance(value, ir.Expr) and value.op == "getattr" and value.value.name in layouts:
                    layout = layouts.pop(value.value.name)
                    offset = getattr(layout.value.value, value.attr)
                    layout.value = statement.value = ir.Const(offset, value.loc)
        return True


PASSES = (
    untyped_passes.TranslateByteCode, untyped_passes.FixupArgs, untyped_passes.IRProcessing,
    untyped_passes.RewriteSemanticConstants, untyped_passes.DeadBranchPrune, untyped_passes.ReconstructSSA, ReadOffsets,
    typed_passes.NopythonTypeInference, typed_passes.PreLowerStripPhis, typed_passes.IRLegalization,
    typed_passes.NativeLowering, typed_passes.NoPythonBackend,
)


class KernelCompiler(CompilerBase):         # type: ignore[misc]
    """Numba's compiler with the passes that kernels need: closures, array expressions and so on cost a fifth more."""

    def define_pipelines(self) -> list[PassManager]:
        passes = PassManager("kernel")
        for each in PASSES:
            passes.add_pass(each, each.__name__)
        passes.finalize()
        return [passes]


_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "boundscheck": False, "no_cpython_wrapper": True,
                            "no_cfunc_wrapper": True, "pipeline_class": KernelCompiler}
device: Any = njit(**_OPTIONS)      # for the helper functions of kernels; they are inlined where they are called


Kernel = Callable[[int, int, int, int], None]


def kernel(function: Kernel) -> Kernel:
    """Marks a function that `compile.py` turns into machine code under its module's and its own name."""
    function.is_kernel = True                                                           # type: ignore[attr-defined]
    return function


def unrolled(function: Kernel) -> Kernel:
    """Marks a kernel whose loops are to be unrolled: some formats shift by constants only then. It takes LLVM twice as
    long, which others are not worth."""
    function.is_unrolled = True                                                         # type: ignore[attr-defined]
    return function

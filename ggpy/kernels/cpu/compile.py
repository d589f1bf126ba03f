"""Kernels to machine code: Numba makes LLVM code of a function, LLVM makes an object file for the level.

Runs in worker processes of its own (see `compile_workers.py`), so that kernels compile in parallel and
an engine whose kernels are on disk never imports Numba. Optimising happens once, here, with the features of the level:
Numba's own passes are turned off.
"""

import gc
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NoReturn

from ggpy.errors import KernelError
from ggpy.kernels.cpu.cache import object_path, write_object
from ggpy.kernels.cpu.level import Level, current_level, feature_map, host_machine

BASELINE = {"x86_64": "x86-64"}             # the processor that the portable level compiles for
# what LLVM would use, beyond NEON, of an Arm processor that its name says to have it
ARM_WIDER = ("dotprod", "fullfp16", "fp16fml", "bf16", "i8mm", "sve", "sve2", "sme")


def compile_kernel(name: str) -> bytes:
    """Object code of the kernel `name`; its only exported symbol is `ggpy_kernel`."""
    module, machine = _optimised_module(name)
    return bytes(machine.emit_object(module))


def assembly(name: str) -> str:
    """The code of the kernel `name`, to be read."""
    module, machine = _optimised_module(name)
    return str(machine.emit_assembly(module))


def _optimised_module(name: str) -> tuple[Any, Any]:
    """LLVM module of the kernel `name` and the code generator for it."""
    import llvmlite.binding as llvm

    function = _find(name)
    module = _linked_module(function)
    machine = target_machine(current_level())
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    for inner in module.functions:
        if not inner.is_declaration and inner.name != "ggpy_kernel":
            inner.linkage = "internal"
            inner.add_function_attribute("alwaysinline")
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = False       # kernels say what is a vector
    options.loop_unrolling = getattr(function, "is_unrolled", False)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module, machine


def target_machine(level: Level) -> Any:
    """LLVM's code generator for `level`: the host's own scheduling model, no feature beyond the level's.

    A level of another kind of machine gets a generator for that machine under Linux: such code can be looked at.
    """
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    options = {"opt": 3, "reloc": "pic", "codemodel": "default"}
    wanted = ",".join(f"+{feature}" for feature in level.features)
    if level.machine != host_machine():
        target = llvm.Target.from_triple(f"{level.machine}-unknown-linux-gnu")
        return target.create_target_machine(cpu="generic", features=wanted, **options)
    target = llvm.Target.from_default_triple()
    if not level.features:
        return target.create_target_machine(cpu=BASELINE.get(level.machine, "generic"), **options)
    features = ",".join([*(f"-{name}" for name in unwanted_features(level, feature_map())), wanted])
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, **options)


def unwanted_features(level: Level, known: Mapping[str, bool]) -> list[str]:
    """What the processor's name may stand for and code for `level` must not use: what is beyond the level, and what
    this one does not have, as `known` says, which a virtual machine may hide."""
    wider = ARM_WIDER if level.machine == "aarch64" else (n for n in known if n.startswith(("avx", "amx")))
    absent = (name for name, present in known.items() if not present)
    return [name for name in dict.fromkeys((*wider, *absent)) if not level.has(name)]


def _find(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    function = getattr(importlib.import_module(f"ggpy.kernels.cpu.{module}"), attribute, None)
    if not getattr(function, "is_kernel", False):
        raise KernelError(f"kernel {name!r}: ggpy/kernels/cpu/{module}.py has no kernel called {attribute!r}")
    return function


@cache
def _target() -> tuple[Any, Any]:
    """Numba's contexts for types and for code, which it fills with all that it knows."""
    from numba.core.registry import cpu_target

    from ggpy.kernels.cpu.code_library import CodeLibrary

    context = cpu_target.target_context
    context.codegen()._library_class = CodeLibrary
    context.get_executable = lambda library, fndesc, env: [].append     # Numba asks for some new builtin, only as a key
    context.refresh()
    typing_context = cpu_target.typing_context
    typing_context._resolve_user_function_type = _remembering(typing_context._resolve_user_function_type)
    return typing_context, context


def _remembering(resolve: Callable[..., Any]) -> Callable[..., Any]:
    """`resolve`, which finds the types of a call from those of its arguments, but once: Numba asks again and again, and
    that takes a sixth of all the time."""
    known: dict[tuple[Any, ...], Any] = {}

    def resolve_once(function: Any, args: Any, options: Any) -> Any:
        key = (function, *args)
        if options or (found := known.get(key)) is None:
            found = resolve(function, args, options)
            if found is not None and not options:
                known[key] = found
        return found

    return resolve_once


def _linked_module(function: Any) -> Any:
    """LLVM module of `function` and all that it calls, behind a plain C entry `ggpy_kernel`."""
    from llvmlite import ir
    from numba.core import compiler, types
    from numba.core.compiler import Flags

    from ggpy.kernels.cpu.kernel import KernelCompiler

    flags: Any = Flags()
    flags.no_cpython_wrapper = flags.no_cfunc_wrapper = flags.nrt = True
    flags.error_model = "numpy"
    typing_context, context = _target()
    compiled = compiler.compile_extra(typing_context, context, function, (types.int64,) * 4, types.void, flags, {},
                                      pipeline_class=KernelCompiler)
    library = context.codegen().create_library("ggpy_kernel")
    entry = ir.Module("entry")
    i64 = ir.IntType(64)
    native = ir.Function(entry, context.call_conv.get_function_type(types.void, (types.int64,) * 4),
                         compiled.fndesc.llvm_func_name)
    wrapper = ir.Function(entry, ir.FunctionType(ir.VoidType(), [i64] * 4), "ggpy_kernel")
    builder = ir.IRBuilder(wrapper.append_basic_block())
    ignored = [builder.alloca(pointee.type.pointee) for pointee in native.args[:2]]    # no value, no exception
    builder.call(native, [*ignored, *wrapper.args])
    builder.ret_void()
    library.add_ir_module(entry)
    library.add_linking_library(compiled.library)
    return library.linked_module()


def main() -> NoReturn:
    """Compiles the kernels named on standard input, a line each, and answers with the name when it is in the cache."""
    gc.disable()                # a tenth of the time, and the process is short-lived
    _target()
    for line in sys.stdin:
        name = line.strip()
        write_object(object_path(name), compile_kernel(name))
        print(name, flush=True)
    os._exit(0)                 # to tidy up all that Numba and LLVM have made takes a while

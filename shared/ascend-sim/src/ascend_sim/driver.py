"""Stand-ins for the compiler `bisheng` and the linker `ld.lld`, for the command lines of TileLang 0.1.15."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from ascend_sim.toolchain import CompileError, compile_kernels

_IGNORED = (
    "-O",
    "-fPIC",
    "-std=",
    "--npu-arch=",
    "-Wl,",
    "-shared",
    "--shared",
    "-c",
    "--cce-",
    "-g",
    "-W",
    "-D",
    "-L",
    "-l",
)
_IGNORED_WITH_VALUE = ("-mllvm", "-x", "-Xclang")


def bisheng(arguments: list[str]) -> int:
    """Compile one .asc file to a shared library: `bisheng [options] FILE.asc -o OUTPUT`."""
    source = output = None
    includes: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--version":
            print("bisheng (ascend-sim): AscendC for the simulated Ascend 950")
            return 0
        if word == "-o":
            output = next(words, None)
        elif word == "-I":
            includes.append(next(words, ""))
        elif word.startswith("-I"):
            includes.append(word[2:])
        elif word in _IGNORED_WITH_VALUE:
            next(words, None)
        elif word.startswith(_IGNORED):
            continue
        elif word.startswith("-") or source is not None:
            print(f"bisheng (ascend-sim): unexpected argument {word!r}", file=sys.stderr)
            return 2
        else:
            source = word
    if source is None or output is None:
        print("bisheng (ascend-sim): usage: bisheng [options] FILE.asc -o OUTPUT", file=sys.stderr)
        return 2
    try:
        text = Path(source).read_text()
        library = compile_kernels(text, checks=os.environ.get("ASCEND_SIM_CHECKS") != "off", includes=includes)
    except (OSError, UnicodeDecodeError, CompileError) as error:
        print(f"bisheng (ascend-sim): {error}", file=sys.stderr)
        return 1
    _copy(library, Path(output))
    return 0


def linker(arguments: list[str]) -> int:
    """`ld.lld ... INPUT -o OUTPUT`: the compiler's output is already what the runtime loads."""
    try:
        output = arguments[arguments.index("-o") + 1]
        inputs = [word for word in arguments if word.endswith(".o") and word != output]
        (source,) = inputs
    except (ValueError, IndexError):
        print("ld.lld (ascend-sim): usage: ld.lld [options] INPUT.o -o OUTPUT", file=sys.stderr)
        return 2
    _copy(Path(source), Path(output))
    return 0


def _copy(source: Path, target: Path) -> None:
    """Put a copy in place in one step: TileLang may load a library while another process writes it."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copyfile(source, temporary)
    os.replace(temporary, target)

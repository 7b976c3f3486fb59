"""Building: the core library, kernel libraries, and the directory that serves as the CANN toolkit."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
INCLUDE = _PACKAGE / "include"

_BASE_FLAGS = (
    "-std=c++20", "-O2", "-g1", "-gdwarf-4", "-fPIC", "-shared", "-march=native",
    "-fvisibility=hidden", "-fno-gnu-unique",
    # The device neither contracts nor exploits C++'s undefined behaviour; it has no floating-point exceptions and no
    # errno either, and without them the loops over lanes vectorise.
    "-fno-trapping-math", "-fno-math-errno",
    "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv", "-fno-delete-null-pointer-checks",
)  # fmt: skip
_KERNEL_FLAGS = (
    # TileLang looks up functions of the host code.
    "-fvisibility=default", "-fno-semantic-interposition",
    # A code address must identify one source line.
    "-fno-crossjumping", "-fno-tree-tail-merge", "-fno-ipa-icf", "-fno-optimize-sibling-calls",
    # A stack overflow must meet the guard page.
    "-fstack-clash-protection",
    "-w", "-fmax-errors=20", "-fdiagnostics-color=never",
)  # fmt: skip
# Raw loads and stores become calls that the core library implements; the sanitizer's own runtime is not used.
_CHECK_FLAGS = ("-fsanitize=thread", "--param", "tsan-instrument-func-entry-exit=0", "-DASIM_CHECKS=1")


class CompileError(RuntimeError):
    """A kernel source does not compile; the message shows the AscendC line and what is not supported."""


def cache_dir() -> Path:
    """The directory of compiled libraries: ASCEND_SIM_CACHE, or ascend-sim in the XDG cache directory."""
    own = os.environ.get("ASCEND_SIM_CACHE")
    path = Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ascend-sim"
    path.mkdir(parents=True, exist_ok=True)
    return path


@lru_cache(maxsize=1)
def compiler() -> str:
    """The path of g++ (CXX if set)."""
    name = os.environ.get("CXX", "g++")
    path = shutil.which(name)
    if path is None:
        raise CompileError(f"ascend-sim needs the GNU C++ compiler, version 12 or later: {name!r} is not in PATH")
    return path


@lru_cache(maxsize=1)
def _compiler_identity() -> str:
    """Version and the instruction set that -march=native means here; a cache may be shared by machines."""
    command = [compiler(), "-march=native", "-Q", "--help=target"]
    target = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    version = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=False).stdout
    return version + target


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _digest(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:32]


@lru_cache(maxsize=8)
def _headers_digest(directory: Path) -> str:
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return _digest(*(part for path in files for part in (str(path.relative_to(directory)), path.read_bytes())))


def run_compiler(command: Sequence[str], directory: Path) -> str:
    """Run g++ in `directory`; its diagnostics if it fails, else an empty string."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    result = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, env=environment)
    return "" if result.returncode == 0 else result.stderr or f"{command[0]} failed with exit code {result.returncode}"


@contextlib.contextmanager
def _building(directory: Path) -> Iterator[Path]:
    """A scratch directory that becomes `directory` when the block ends without an exception."""
    work = Path(tempfile.mkdtemp(prefix=".build-", dir=directory.parent))
    try:
        yield work
        os.rename(work, directory)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def build_once(name: str, inputs: Sequence[str | bytes], make: Callable[[Path], None]) -> Path:
    """The directory that `make` fills from `inputs`, made once and cached; safe among concurrent builders."""
    directory = cache_dir() / f"{name}-{_digest(_compiler_identity(), *inputs)}"
    if directory.exists():
        return directory
    with _locked(directory.with_suffix(".lock")):
        if not directory.exists():
            with _building(directory) as work:
                make(work)
    return directory


def build(sources: Sequence[Path], name: str, flags: Sequence[str] = (), headers: Sequence[Path] = ()) -> Path:
    """Build a shared library from C++ sources once and return its path.

    `headers`: those that the sources include, so that a change of them builds anew.
    """

    def make(work: Path) -> None:
        command = [compiler(), *_BASE_FLAGS, "-Wall", f"-I{INCLUDE}", *map(str, sources), *flags, "-o", f"lib{name}.so"]
        if error := run_compiler(command, work):
            raise CompileError(f"building {name} failed:\n{error}")

    return (
        build_once(name, [*_BASE_FLAGS, *flags, *(path.read_bytes() for path in (*sources, *headers))], make)
        / f"lib{name}.so"
    )


def core_library() -> Path:
    """The simulator's core library: cores, checks, counters."""
    headers = [
        *(INCLUDE / "asim" / f"{name}.h" for name in ("core", "launch", "types")),
        *sorted((INCLUDE / "asim").glob("*_native.h")),
    ]
    return build(sorted((_PACKAGE / "native").glob("*.cpp")), "asim", ["-O3", "-ldl"], headers)


def template_dir() -> Path | None:
    """The directory to include TileLang's templates from, or None without TileLang (found without importing it)."""
    import importlib.util

    spec = importlib.util.find_spec("tilelang")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "src"


def compile_kernels(source: str, *, checks: bool = True, includes: Sequence[str] = ()) -> Path:
    """Compile AscendC source to a kernel library, cached, and return its path. Raises CompileError."""
    from ascend_sim.translate import explain, translate

    if not includes:
        templates = template_dir()
        includes = [str(templates)] if templates else []
    core = core_library()
    if os.environ.get("ASCEND_SIM_CORE", core.parent.name) != core.parent.name:
        raise CompileError("the simulator's sources have changed since `ascend-sim run` started: run the command again")
    templates_digest = [
        _headers_digest(Path(path) / "tl_templates" / "ascend") for path in includes if Path(path).is_dir()
    ]

    def make(work: Path) -> None:
        (work / "kernel.asc").write_text(source)
        # Reports quote the source by the name it will have once the directory is in place.
        text = f'#include "asim/kernel.h"\n#line 1 "{final}/kernel.asc"\n{translated}'
        (work / "kernel.cpp").write_text(text)
        paths = [f"-I{INCLUDE}", *(f"-I{path}" for path in includes)]
        error = run_compiler(
            [compiler(), *(flag for flag in flags if flag != "-shared"), *paths, "-c", "kernel.cpp", "-o", "kernel.o"],
            work,
        )
        # Linked by a command of its own: -fsanitize would add the sanitizer's runtime.
        error = error or run_compiler(
            [compiler(), "-shared", "kernel.o", str(core), "-Wl,-z,defs", "-lm", "-o", "kernel.so"], work
        )
        if error:
            raise CompileError(explain(error, source))
        (work / "kernel.o").unlink()

    flags = [*_BASE_FLAGS, *_KERNEL_FLAGS, *(_CHECK_FLAGS if checks else ("-DASIM_CHECKS=0",))]
    translated = translate(source)
    inputs = [str(core), _headers_digest(INCLUDE), *templates_digest, *flags, translated]
    final = cache_dir() / f"kernel-{_digest(_compiler_identity(), *inputs)}"
    return build_once("kernel", inputs, make) / "kernel.so"


def toolkit() -> Path:
    """The directory that serves as the CANN toolkit (ASCEND_HOME_PATH)."""

    def make(work: Path) -> None:
        for name in ("bin", "runtime", "compiler", "opp", "lib64"):
            (work / name).mkdir()
        for tool, function in (("bisheng", "bisheng"), ("ld.lld", "linker")):
            path = work / "bin" / tool
            path.write_text(
                f"#!{sys.executable}\nimport sys\n\nsys.path.insert(0, {str(_PACKAGE.parent)!r})\n"
                f"from ascend_sim.driver import {function}\n\nsys.exit({function}(sys.argv[1:]))\n"
            )
            path.chmod(0o755)

    return build_once("toolkit", [sys.executable, str(_PACKAGE)], make)


def environment(checks: bool = True) -> dict[str, str]:
    """The variables that put the simulator in the place of the CANN toolkit."""
    home = toolkit()
    # TileLang caches compiled kernels by source alone: keep those of another simulator, or of a real toolchain, apart.
    code = ((_PACKAGE / name).read_bytes() for name in ("toolchain.py", "translate.py"))
    kind = _digest(str(core_library()), _headers_digest(INCLUDE), *code, str(checks))
    return {
        "ASCEND_HOME_PATH": str(home),
        "ASCEND_TOOLKIT_HOME": str(home),
        "ASCEND_OPP_PATH": str(home / "opp"),
        "BISHENG_HOME": str(home),
        "ASCEND_SIM_CHECKS": "on" if checks else "off",
        # A kernel that is linked to another core library than the runtime's would not be seen by the runtime.
        "ASCEND_SIM_CORE": core_library().parent.name,
        "TILELANG_CACHE_DIR": str(cache_dir() / f"tilelang-{kind}"),
        "TILELANG_DEFAULT_TARGET": os.environ.get("TILELANG_DEFAULT_TARGET", "ascend"),
    }

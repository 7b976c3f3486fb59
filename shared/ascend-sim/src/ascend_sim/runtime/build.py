"""Builds the libraries that stand in for CANN's: the runtime, and libopapi from the table of aclnn functions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from ascend_sim import toolchain

HERE = Path(__file__).parent
TABLE = HERE / "aclnn.table"

# kind: C type, how it is held, how the body sees it, how it is accessed ("r", "w", "rw" or "")
KINDS = {
    "in": ("const aclTensor*", 'hold_required({0}, "{1}", "{0}")', "const at::Tensor {0} = tensor(held_{0});", "r"),
    "out": ("aclTensor*", 'hold_required({0}, "{1}", "{0}")', "at::Tensor {0} = tensor(held_{0});", "w"),
    "inout": ("aclTensor*", 'hold_required({0}, "{1}", "{0}")', "at::Tensor {0} = tensor(held_{0});", "rw"),
    "sized": ("aclTensor*", 'hold_required({0}, "{1}", "{0}")', "const Held& {0} = held_{0};", "w"),
    "in?": ("const aclTensor*", "hold({0})", "const std::optional<at::Tensor> {0} = optional_tensor(held_{0});", "r"),
    "out?": ("aclTensor*", "hold({0})", "const std::optional<at::Tensor> {0} = optional_tensor(held_{0});", "w"),
    "ins": ("const aclTensorList*", "hold({0})", "const std::vector<at::Tensor> {0} = tensors(held_{0});", "r"),
    "outs": ("const aclTensorList*", "hold({0})", "const std::vector<at::Tensor> {0} = tensors(held_{0});", "w"),
    "scalar": ("const aclScalar*", "hold({0})", "const at::Scalar& {0} = held_{0};", ""),
    "scalar?": ("const aclScalar*", "hold_optional({0})", "const std::optional<at::Scalar>& {0} = held_{0};", ""),
    "ints": ("const aclIntArray*", "hold({0})", "const std::vector<int64_t>& {0} = held_{0};", ""),
    "ints?": ("const aclIntArray*", "hold({0})", "const at::OptionalIntArrayRef {0} = whole(held_{0});", ""),
    "bools": ("const aclBoolArray*", "hold({0})", "const std::vector<bool>& {0} = held_{0};", ""),
    "bool": ("bool", "{0}", "const bool {0} = held_{0};", ""),
    "int": ("int64_t", "{0}", "const int64_t {0} = held_{0};", ""),
    "int32": ("int32_t", "{0}", "const int32_t {0} = held_{0};", ""),
    "int8": ("int8_t", "{0}", "const int8_t {0} = held_{0};", ""),
    "double": ("double", "{0}", "const double {0} = held_{0};", ""),
    "float": ("float", "{0}", "const float {0} = held_{0};", ""),
    "dtype": ("aclDataType", "scalar_type({0})", "const at::ScalarType {0} = held_{0};", ""),
    "text": ("const char*", "std::string({0})", "const std::string& {0} = held_{0};", ""),
}


class Function(NamedTuple):
    """A line of the table."""

    name: str
    parameters: list[tuple[str, str]]  # kind and name
    body: str
    is_value: bool  # of the out parameters; else a statement


def functions(table: str) -> list[Function]:
    """The lines of the table."""
    found = []
    for number, line in enumerate(table.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = re.fullmatch(r"(\w+)\(([^)]*)\)( =|:) (.+)", line)
        if not match:
            raise ValueError(f"{TABLE.name}:{number}: expected NAME(PARAMETERS) = VALUE or NAME(PARAMETERS): STATEMENT")
        parameters = [(kind, name) for kind, name in (part.split() for part in match[2].split(", "))]
        unknown = [kind for kind, _ in parameters if kind not in KINDS]
        if unknown:
            raise ValueError(f"{TABLE.name}:{number}: unknown kind of parameter {unknown[0]!r}")
        found.append(Function(f"aclnn{match[1]}", parameters, match[4], match[3] == " ="))
    return found


def definition(function: Function) -> str:
    """C++ of one aclnn function: the call that takes the arguments, and the one that enqueues the work."""
    name, parameters, body, is_value = function
    hold, see = [], []
    for kind, parameter in parameters:
        _, how_held, how_seen, modes = KINDS[kind]
        hold.append(f"auto held_{parameter} = {how_held.format(parameter, name)};")
        hold += [f"add_access(executor.accesses, held_{parameter}, {str(mode == 'w').lower()});" for mode in modes]
        see.append(f"[[maybe_unused]] {how_seen.format(parameter)}")
    if is_value:
        outs = [parameter for kind, parameter in parameters if kind in ("out", "out?")]
        see.append(f"if ({' && '.join(f'empty({out})' for out in outs)}) return;")
        see.append(f"give({body}, {', '.join(outs)});")
    else:
        see.append(f"{body};")
    arguments = "".join(f"{KINDS[kind][0]} {parameter}, " for kind, parameter in parameters)
    held, seen = "\n    ".join(hold), "\n      ".join(see)
    return f"""
int {name}GetWorkspaceSize({arguments}uint64_t* workspace_size, aclOpExecutor** result) {{
  return prepare("{name}", workspace_size, result, [&](aclOpExecutor& executor) {{
    {held}
    executor.body = [=] {{
      {seen}
    }};
  }});
}}
int {name}(void*, uint64_t, aclOpExecutor* executor, aclrtStream stream) {{
  return execute(executor, stream);
}}
"""


def generate(table: str) -> str:
    """C++ source of all functions in the table."""
    definitions = "".join(map(definition, functions(table)))
    return f'#include "opapi.h"\nusing namespace asim;\nextern "C" {{\n{definitions}}}\n'


# One library under all the names: the loader takes equal files for one.
ALIASES = ("libacl_op_compiler", "libacl_tdt_channel", "libatb", "libge_runner", "libgraph", "libhccl")
FLAGS = ("-std=c++20", "-fPIC", "-w")
RUNTIME_SOURCES = ("acl.cpp", "graph.cpp", "hazard.cpp", "launch.cpp", "memory.cpp", "stream.cpp", "unsupported.cpp")


def build_libraries(torch: Path, torch_npu: Path) -> Path:
    """Builds the libraries against the headers of the two packages; the directory that holds them."""
    packages = (torch, torch_npu)
    versions = [part for package in packages for part in (str(package), (package / "version.py").read_bytes())]
    headers = [f"-I{torch_npu}/include", f"-I{toolchain.INCLUDE}"]
    core = toolchain.core_library()

    def build_opapi(work: Path) -> None:
        # The runtime itself is found when libopapi is loaded; here only its name matters.
        run(work, "-shared", "-x", "c++", "/dev/null", "-o", "libascendcl.so")
        (work / "aclnn.cpp").write_text(generate(TABLE.read_text()))
        includes = [*headers, f"-I{HERE}", f"-I{torch}/include", f"-I{torch}/include/torch/csrc/api/include"]
        # Bodies only call into libtorch, so optimising them would only cost time.
        for source, target in ((HERE / "opapi.cpp", "opapi.o"), (work / "aclnn.cpp", "aclnn.o")):
            run(work, *FLAGS, "-O0", *includes, "-c", str(source), "-o", target)
        libraries = ["-L.", "-lascendcl", f"-L{torch}/lib", "-ltorch_cpu", "-lc10", f"-L{torch_npu}/lib", "-ltorch_npu"]
        objects = "-shared opapi.o aclnn.o -o libopapi.so -Wl,--no-as-needed -Wl,--allow-shlib-undefined"
        run(work, *objects.split(), *libraries)
        for scratch in ("libascendcl.so", "opapi.o", "aclnn.o"):
            (work / scratch).unlink()

    opapi = toolchain.build_once(
        "opapi", [*versions, *contents("opapi.cpp", "opapi.h", "device.h", "aclnn.table", "build.py")], build_opapi
    )

    def build_runtime(work: Path) -> None:
        sources = [str(HERE / name) for name in RUNTIME_SOURCES]
        link = [str(core), f"-Wl,-rpath,{core.parent}", "-ldl", "-o", "libascendcl.so"]
        run(work, *FLAGS, "-O2", "-shared", *headers, *sources, *link)
        for alias in ALIASES:
            (work / f"{alias}.so").symlink_to("libascendcl.so")
        (work / "libopapi.so").symlink_to(opapi / "libopapi.so")

    return toolchain.build_once(
        "runtime", [*versions, str(core), str(opapi), *contents("device.h", *RUNTIME_SOURCES)], build_runtime
    )


def contents(*names: str) -> list[bytes]:
    return [(HERE / name).read_bytes() for name in names]


def run(work: Path, *arguments: str) -> None:
    error = toolchain.run_compiler([toolchain.compiler(), *arguments], work)
    if error:
        raise toolchain.CompileError(f"building the runtime failed:\n{error}")

"""Builds the libraries that stand in for CANN's: the runtime, and libopapi from the table of aclnn functions."""

from __future__ import annotations

import re
from pathlib import Path

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


def functions(table: str) -> list[tuple[str, list[tuple[str, str]], str, bool]]:
    """Reads the table: name, parameters as (kind, name), body, and whether the body is a value for the out parameters."""
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
        found.append((match[1], parameters, match[4], match[3] == " ="))
    return found


def generate(table: str) -> str:
    """C++ source of all functions in the table."""
    lines = ['#include "opapi.h"', "using namespace asim;", 'extern "C" {']
    for short, parameters, body, is_value in functions(table):
        name = f"aclnn{short}"
        arguments = ", ".join(f"{KINDS[kind][0]} {parameter}" for kind, parameter in parameters)
        lines.append(f"int {name}GetWorkspaceSize({arguments}, uint64_t* workspace_size, aclOpExecutor** executor_out) {{")
        lines.append(f'  return prepare("{name}", workspace_size, executor_out, [&](aclOpExecutor& executor) {{')
        for kind, parameter in parameters:
            lines.append(f"    auto held_{parameter} = {KINDS[kind][1].format(parameter, name)};")
            for mode in KINDS[kind][3]:
                write = "true" if mode == "w" else "false"
                lines.append(f"    add_access(executor.accesses, held_{parameter}, {write});")
        lines.append("    executor.body = [=] {")
        for kind, parameter in parameters:
            lines.append(f"      [[maybe_unused]] {KINDS[kind][2].format(parameter)}")
        if is_value:
            outs = [parameter for kind, parameter in parameters if kind in ("out", "out?")]
            lines.append(f"      if ({' && '.join(f'empty({out})' for out in outs)}) return;")
            lines.append(f"      give({body}, {', '.join(outs)});")
        else:
            lines.append(f"      {body};")
        lines += ["    };", "  });", "}"]
        lines.append(f"int {name}(void*, uint64_t, aclOpExecutor* executor, aclrtStream stream) {{ return execute(executor, stream); }}")
    return "\n".join([*lines, "}", ""])

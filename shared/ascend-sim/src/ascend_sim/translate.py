"""From AscendC source to C++ that a host compiler accepts, and from its diagnostics back to AscendC."""

from __future__ import annotations

import re
from dataclasses import dataclass

_KERNEL = re.compile(
    r'(?:extern\s+"C"\s+)?__global__\s+(?P<kind>__mix__\(\s*(?P<cubes>\d+)\s*,\s*(?P<vectors>\d+)\s*\)|__vector__|__cube__|__aicore__)'
    r"\s+void\s+(?P<name>\w+)\s*\("
)
_LAUNCH = re.compile(r"\b(?P<name>\w+)\s*<<<")
# On-chip pointers start as numbers. UB is dereferenced, so its numbers become host addresses; the others stay offsets.
_UB_ADDRESS = re.compile(
    r"\(\s*__ubuf__\s+(?P<type>[\w:]+(?:\s+[\w:]+)*)\s*\*\s*\)\s*(?P<offset>0[xX][0-9a-fA-F]+|\d+)(?![\w.])"
)
_VECTOR_FUNCTION = re.compile(r"\b__simd_vf__\s[^;{}]*\{")


@dataclass(frozen=True)
class KernelInfo:
    """A `__global__` function: its name, cores a block, parameter names, and whether it has SIMT regions."""

    name: str
    cubes: int
    vectors: int
    parameters: tuple[str, ...]
    simt: bool


def _matching(source: str, start: int, pair: str) -> int:
    """Index of the bracket that closes the one at `start`, or -1; comments and literals are skipped."""
    depth = 0
    for match in re.compile(
        r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|[' + re.escape(pair) + "]", re.S
    ).finditer(source, start):
        if match.group() == pair[0]:
            depth += 1
        elif match.group() == pair[1]:
            depth -= 1
            if depth == 0:
                return match.start()
    return -1


def _split_arguments(text: str) -> list[str]:
    parts, depth = [""], 0
    for character in text:
        depth += character in "([{<"
        depth -= character in ")]}>"
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def kernels(source: str) -> list[KernelInfo]:
    """The kernels that a source defines, in order."""
    found = []
    for match in _KERNEL.finditer(source):
        opening = match.end() - 1
        closing = _matching(source, opening, "()")
        body = source.find("{", closing)
        if closing < 0 or body < 0 or source[closing + 1 : body].strip():
            continue  # a declaration
        end = _matching(source, body, "{}")
        names = tuple(
            re.findall(r"\w+", parameter)[-1] for parameter in _split_arguments(source[opening + 1 : closing])
        )
        if match["cubes"] is not None:
            cubes, vectors = int(match["cubes"]), int(match["vectors"])
        else:
            cubes, vectors = (1, 0) if match["kind"] == "__cube__" else (0, 1)
        found.append(KernelInfo(match["name"], cubes, vectors, names, "asc_vf_call" in source[body:end]))
    return found


def translate(source: str) -> str:
    """C++ for the host: the same lines, with descriptors, launches, vector functions and UB addresses made explicit."""
    found = {kernel.name: kernel for kernel in kernels(source)}
    declared: set[str] = set()

    def declare(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in found or name in declared:
            return match.group()
        declared.add(name)
        return f'extern "C" const asim_kernel asim_kernel_{name}; {match.group()}'

    text = _KERNEL.sub(declare, source)
    text = _UB_ADDRESS.sub(lambda m: f"((__ubuf__ {m['type']} *)(asim_ub + {m['offset']}))", text)
    text = _VECTOR_FUNCTION.sub(r"\g<0> asim::VectorFunction vector_function_;", text)
    text = re.sub(r"\bTILELANG_CHECK_LAST_ERROR\(", "ASIM_CHECK_LAST_ERROR(", text)
    output, position = "", 0
    for match in _LAUNCH.finditer(text):
        name = match["name"]
        closing = text.find(">>>", match.end())
        if name not in found or closing < 0 or match.start() < position:
            continue
        opening = text.index("(", closing)
        end = _matching(text, opening, "()")
        blocks, _, stream = [*_split_arguments(text[match.end() : closing]), "0", "nullptr"][:3]
        arguments = text[opening + 1 : end].strip()
        output += text[position : match.start()]
        output += f"asim::launch<&{name}>(asim_kernel_{name}, {blocks}, {stream}{', ' if arguments else ''}{arguments})"
        position = end + 1
    text = output + text[position:]
    tail = "".join(
        f'ASIM_KERNEL({k.name}, {k.cubes}, {k.vectors}, {str(k.simt).lower()}, "{",".join(k.parameters)}")\n'
        for k in found.values()
    )
    return f"{text}\n{tail}"


_ERROR = re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):\d+: (?:fatal )?error: (?P<message>.*)$", re.M)
_FRAME = re.compile(r"^(?P<file>[^\s:][^:\n]*\.asc):(?P<line>\d+):\d+:\s+required from", re.M)
# g++ quotes with typographic marks or apostrophes, by locale.
_NAMES = (
    re.compile(r"[\u2018'](?P<name>[\w:]+)[\u2019'] (?:was not declared|has not been declared|is not a member)"),
    re.compile(r"[\u2018'](?P<name>[\w:]+)[\u2019'] does not name a type"),
    re.compile(r"no matching function for call to [\u2018'](?P<name>[\w:]+)(?:<.*>)?\("),
    re.compile(r"there are no arguments to [\u2018'](?P<name>[\w:]+)[\u2019']"),
)


def explain(diagnostics: str, source: str) -> str:
    """A compile error in terms of the AscendC source: which lines, and which device functions are not supported."""
    lines = source.splitlines()
    errors = list(_ERROR.finditer(diagnostics))
    if not errors:
        return diagnostics
    messages = []
    for index, error in enumerate(errors):
        begin = errors[index - 1].end() if index else 0
        end = errors[index + 1].start() if index + 1 < len(errors) else len(diagnostics)
        line = int(error["line"]) if error["file"].endswith(".asc") else 0
        if not line:  # inside a header: the instantiation chain before the error names the line
            frames = list(_FRAME.finditer(diagnostics, begin, error.start())) or list(
                _FRAME.finditer(diagnostics, error.end(), end)
            )
            line = int(frames[-1]["line"]) if frames else 0
        name = next((found["name"] for pattern in _NAMES if (found := pattern.search(error["message"]))), None)
        what = f"{name} is not supported by the simulator ({error['message']})" if name else error["message"]
        shown = lines[line - 1].strip() if 0 < line <= len(lines) else f"{error['file']}:{error['line']}"
        messages.append(f"line {line}: {what}\n    {shown}" if line else f"{shown}: {what}")
    unique = list(dict.fromkeys(messages))
    return (
        "the AscendC source does not compile:\n"
        + "\n".join(unique[:10])
        + f"\n\ncompiler output:\n{diagnostics[:6000]}"
    )

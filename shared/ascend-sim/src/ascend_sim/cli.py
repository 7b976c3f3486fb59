"""The command `ascend-sim`."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from ascend_sim import report, toolchain


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="ascend-sim",
        description="An Ascend 950 simulated on the host: a model for correctness and counting, not time.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("env", help="print the environment variables, as shell commands")
    run = commands.add_parser(
        "run", help="run a command on the simulated Ascend", usage="ascend-sim run [options] -- COMMAND..."
    )
    run.add_argument(
        "--checks", choices=("on", "off"), default="on", help="report races and wrong accesses (default: on)"
    )
    run.add_argument(
        "--async",
        action="store_true",
        dest="deferred",
        help="defer work on streams to synchronisation, and report races between streams",
    )
    run.add_argument(
        "--report",
        type=Path,
        nargs="?",
        const=Path(),
        metavar="DIRECTORY",
        help="count, print a table, write JSON and pictures",
    )
    run.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND...")
    commands.add_parser("doctor", help="tell what is installed and what is missing")
    options = parser.parse_args(arguments)
    try:
        if options.command == "doctor":
            from ascend_sim.doctor import doctor

            return doctor()
        if options.command == "env":
            for name, value in _environment(True).items():
                print(f"export {name}={shlex.quote(value)}")
            return 0
        words = options.words[1:] if options.words[:1] == ["--"] else options.words
        if not words:
            run.error("a command is required")
        return _run(words, options.checks == "on", options.deferred, options.report)
    except (toolchain.CompileError, OSError) as error:
        print(f"ascend-sim: {error}", file=sys.stderr)
        return 1


def _environment(checks: bool) -> dict[str, str]:
    environment = toolchain.environment(checks)
    bin_directory = str(Path(environment["BISHENG_HOME"]) / "bin")
    environment["PATH"] = os.pathsep.join([bin_directory, os.environ.get("PATH", os.defpath)])
    from ascend_sim import runtime

    try:
        environment.update(runtime.environment())
    except runtime.Unavailable as error:
        print(f"ascend-sim: without torch_npu ({error})", file=sys.stderr)
    return environment


def _run(words: list[str], checks: bool, deferred: bool, directory: Path | None) -> int:
    environment = {**os.environ, **_environment(checks)}
    if deferred:
        environment["ASCEND_SIM_ASYNC"] = "1"
    if directory is not None:
        directory = Path(tempfile.mkdtemp(prefix="ascend-sim-report-")) if directory == Path() else directory.resolve()
        directory.mkdir(parents=True, exist_ok=True)
        for old in directory.glob("launches-*.jsonl"):
            old.unlink()
        environment["ASCEND_SIM_REPORT"] = str(directory)
    try:
        code = subprocess.run(words, env=environment, check=False).returncode
    except FileNotFoundError:
        print(f"ascend-sim: command not found: {words[0]}", file=sys.stderr)
        return 127
    if directory is not None:
        print(report.write(directory))
    return code if code >= 0 else 128 - code

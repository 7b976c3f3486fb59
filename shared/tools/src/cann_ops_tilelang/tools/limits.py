"""What this machine can do at most: copy bandwidth, and multiply-adds in float32 and bfloat16."""

from dataclasses import dataclass

import torch
from torch.utils.benchmark import Timer

SIZES = (1 << 15, 1 << 18, 1 << 21, 1 << 24, 1 << 29)

STEPS = 20_000


@dataclass
class Limits:
    """Bytes read and written a second by a copy, per size and thread count; operations a second per thread count."""

    copy: dict[int, dict[int, float]]
    fp32_flops: dict[int, float]
    bf16_flops: dict[int, float]

    def bandwidth(self, num_bytes: int, threads: int, cold: bool) -> float:
        """The copy bandwidth for data of this size; from memory if the caches are cold."""
        sizes = [size for size in self.copy if size >= num_bytes] or [max(self.copy)]
        return self.copy[max(self.copy) if cold else min(sizes)][threads]

    def describe(self) -> str:
        lines = ["Machine limits, measured in this run:"]
        for threads in self.fp32_flops:
            copies = ", ".join(f"{rates[threads] / 1e9:.0f} GB/s at {label(size)}" for size, rates in self.copy.items())
            lines.append(
                f"  {threads} thread{'s' if threads > 1 else ''}: copy (read + write) {copies}; multiply-add "
                f"{self.fp32_flops[threads] / 1e9:.0f} GFLOP/s float32, {self.bf16_flops[threads] / 1e9:.0f} bfloat16"
            )
        return "\n".join(lines)


def measure_limits(quick: bool = False) -> Limits:
    from .kernels.peak import peak

    threads = sorted({1, torch.get_num_threads()})
    seconds = 0.05 if quick else 0.3
    copy: dict[int, dict[int, float]] = {}
    for size in SIZES:
        source, target = torch.ones(size // 8), torch.empty(size // 8)
        copy[size] = {}
        for count in threads:
            timer = Timer("target.copy_(source)", globals={"target": target, "source": source}, num_threads=count)
            copy[size][count] = size / best(timer, seconds)
    # 12 accumulators of 16 float32, two operations each; bfloat16 pairs double that where dot products exist.
    width = 12 * 16 * 2
    flops: dict[str, dict[int, float]] = {}
    for dtype in ("float32", "bfloat16"):
        out = torch.zeros(max(threads))
        flops[dtype] = {}
        for count in threads:
            timer = Timer(
                "run(out.data_ptr(), steps, tasks, tasks, 1)",
                globals={"run": peak(dtype), "out": out, "steps": STEPS, "tasks": count},
                num_threads=count,
            )
            operations = width * STEPS * count * (2 if dtype == "bfloat16" and has_bf16_dot() else 1)
            flops[dtype][count] = operations / best(timer, seconds)
    return Limits(copy, flops["float32"], flops["bfloat16"])


def best(timer: Timer, seconds: float) -> float:
    """The shortest time: a limit is what the machine can do when nothing disturbs it."""
    return min(timer.blocked_autorange(min_run_time=seconds).times)


def label(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def has_bf16_dot() -> bool:
    with open("/proc/cpuinfo") as cpuinfo:
        return "avx512_bf16" in cpuinfo.read()

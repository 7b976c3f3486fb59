"""``hatch run demo [IMAGE]``: the vision front end on a page, and every operator beside plain PyTorch."""

from __future__ import annotations

import argparse
import io
import logging
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont, ImageOps, UnidentifiedImageError
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.benchmark import Timer

from cann_ops_tilelang.bmp_to_patches import pack_bmps
from cann_ops_tilelang.testing import Call, calc_diff, count_nodes

from .composed import plain_operators
from .loading import operator_names, operators, references
from .tables import rich_table
from .vision import Batch, Config, VisionFrontEnd, make_batch, make_front_end

CONFIG = Config(side=40)
PAGE = CONFIG.side * CONFIG.patch_size
PICTURE = "vision_front_end.png"

# Values of tokens that hold no image token, in the picture of the layout.
TEXT, PLACEHOLDER = -2.0, -1.0

console = Console()


def main() -> None:
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("image", nargs="?", type=Path, help="any image that Pillow reads; default: a page drawn here")
    parser.add_argument("--output", type=Path, default=Path("demo_output"), help="folder for the picture and sources")
    arguments = parser.parse_args()
    try:
        page = open_page(arguments.image) if arguments.image else draw_page()
        arguments.output.mkdir(parents=True, exist_ok=True)
        (arguments.output / PICTURE).touch()
    except (OSError, ValueError) as error:
        sys.exit(f"demo: {error}")
    # The reference of bmp_to_patches reads sizes on the host, of which Dynamo warns at length.
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)
    with torch.inference_mode():
        run(page, arguments.output)


def run(page: Image.Image, output: Path) -> None:
    with Progress(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console, transient=True
    ) as progress:
        task = progress.add_task("vision front end in plain PyTorch")
        rows = []
        for case in cases(CONFIG, [page]):
            progress.update(task, description=f"{case.name}: compiling, timing")
            rows.append(measure(case))
        progress.update(task, description="drawing")
        picture = output / PICTURE
        draw(make_front_end(CONFIG, operators()), make_batch(CONFIG, [bmp(page)]), page, picture)
        sources = write_sources(output)
    console.print(operator_table(rows))
    for label, path in {"Picture": picture, **sources}.items():
        console.print(f"{label}: {path}", soft_wrap=True)


# -- the page ------------------------------------------------------------------------------------------------------


def open_page(path: Path) -> Image.Image:
    """The image, upright on a white square of the size that the front end takes."""
    try:
        file = Image.open(path)
        image = ImageOps.exif_transpose(file).convert("RGBA" if file.has_transparency_data else "RGB")
    except UnidentifiedImageError as error:
        raise ValueError(f"{path} is no image that Pillow reads") from error
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    try:
        pack_bmps([path], patch_size=1)
    except ValueError as error:
        note(f"converted to a 24-bit BMP ({error})")
    if image.size != (PAGE, PAGE):
        note(f"{path.name} is {image.width} x {image.height}: fitted into {PAGE} x {PAGE}")
        image.thumbnail((PAGE, PAGE))
    square = Image.new("RGB", (PAGE, PAGE), "white")
    mask = image if image.mode == "RGBA" else None
    square.paste(image, ((PAGE - image.width) // 2, (PAGE - image.height) // 2), mask)
    return square


def note(text: str) -> None:
    console.print(text, style="dim", markup=False, highlight=False)


def draw_page() -> Image.Image:
    """A page with text in several sizes, a table, and something like a photograph."""
    page = Image.new("RGB", (PAGE, PAGE), (252, 251, 247))
    draw = ImageDraw.Draw(page)

    def text(x: int, y: int, words: str, size: int, fill: str = "#202428") -> None:
        draw.text((x, y), words, font=ImageFont.load_default(size), fill=fill)

    text(36, 28, "Operators for a page", 44, "#12355b")
    text(36, 84, "From the bytes of a BMP file to tokens of a language model", 20, "#5a6470")
    draw.line((36, 118, PAGE - 36, 118), fill="#c8553d", width=3)
    body = (
        "Rows are stored bottom-up, blue first, padded to",
        "four bytes. A patch is sixteen pixels a side. Every",
        "patch attends to every other one, with a bias for",
        "the rows and one for the columns between them.",
    )
    for line, words in enumerate(body):
        text(36, 138 + 26 * line, words, 17)
    vertical, horizontal = np.mgrid[0:216, 0:272] / np.array([216, 272]).reshape(2, 1, 1)
    sky = np.stack([0.25 + 0.7 * vertical, 0.45 + 0.3 * vertical, 0.85 - 0.45 * vertical], axis=-1)
    sun = np.exp(-(((horizontal - 0.68) ** 2) / 0.012 + ((vertical - 0.42) ** 2) / 0.02))[..., None]
    hills = vertical > 0.68 + 0.1 * np.sin(7 * horizontal) * np.cos(3 * horizontal)
    photograph = np.where(hills[..., None], np.array([0.16, 0.27, 0.22]) * (1.4 - vertical[..., None]), sky)
    photograph = np.clip(photograph + sun * np.array([0.9, 0.7, 0.3]), 0, 1)
    page.paste(Image.fromarray((photograph * 255).astype(np.uint8)), (36, 268))
    text(36, 490, "Fig. 1  Evening, made of two functions", 14, "#5a6470")
    left, top, widths = 336, 268, (150, 118)
    table = (("word", "tokens"), ("page", "1600"), ("photograph", "238"), ("heading", "80"), ("caption", "40"))
    for row, cells in enumerate(table):
        y = top + 43 * row
        if row == 0:
            draw.rectangle((left, y, left + sum(widths), y + 43), fill="#dbe6f0")
        for column, cell in enumerate(cells):
            text(left + 10 + widths[0] * column, y + 10, cell, 18)
    for row in range(len(table) + 1):
        draw.line((left, top + 43 * row, left + sum(widths), top + 43 * row), fill="#7a8794", width=1)
    for x in (left, left + widths[0], left + sum(widths)):
        draw.line((x, top, x, top + 43 * len(table)), fill="#7a8794", width=1)
    text(36, 530, "Small print: the footnotes are set in twelve pixels, which is less than a patch,", 14)
    text(36, 550, "and still every stroke of them arrives where it belongs.", 14)
    text(36, 590, "1", 18, "#c8553d")
    return page


# -- the calls -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A function, its plain PyTorch reference on CPU, a call for every page, and the places of written arguments."""

    name: str
    function: Callable[..., Any]
    reference: Callable[..., Any]
    calls: list[Call]
    written: tuple[int, ...]


def cases(config: Config, pages: list[Image.Image], device: str = "cpu") -> Iterator[Case]:
    """Every operator with the arguments that the front end gives it, and the front end itself."""
    batches = [make_batch(config, [bmp(page)]) for page in pages]
    recorded = []
    for batch in batches:
        recorded.append({"engram_grad_w_reduce": engram_call()})
        make_front_end(config, recording(references(), recorded[-1]))(batch.clone())
    for name in operator_names():
        function = getattr(operators(), name)
        contract = function.operator.contract
        written = tuple(list(contract.signature.parameters).index(argument) for argument in contract.mutated)
        yield Case(name, function, getattr(references(), name), [calls[name] for calls in recorded], written)
    model, plain = make_front_end(config, operators()).to(device), make_front_end(config, plain_operators(config))
    yield Case(
        "vision front end",
        lambda *tensors: model(Batch(*tensors)),
        lambda *tensors: plain(Batch(*tensors)),
        [Call(batch.tensors()) for batch in batches],
        tuple(index for index, field in enumerate(fields(Batch)) if field.name == "input_embeds"),
    )


def bmp(page: Image.Image) -> bytes:
    file = io.BytesIO()
    page.save(file, "BMP")
    return file.getvalue()


def engram_call(num_partials: int = 37, hidden_size: int = 2560) -> Call:
    """A call of the one operator that is not part of the front end."""
    shape = (4, hidden_size)
    return Call(
        (
            torch.randn(num_partials, *shape),
            torch.randn(shape).bfloat16(),
            torch.randn(shape).bfloat16(),
            torch.randn(shape),
            torch.randn(shape),
        )
    )


def recording(ops: SimpleNamespace, calls: dict[str, Call]) -> SimpleNamespace:
    """The operators, which keep a copy of the arguments of their last call."""

    def record(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*args: Any, **kwargs: Any) -> Any:
            calls[name] = Call(args, kwargs).clone()
            return function(*args, **kwargs)

        return recorded

    return SimpleNamespace(**{name: record(name, function) for name, function in vars(ops).items()})


# -- measuring -----------------------------------------------------------------------------------------------------


@dataclass
class Row:
    name: str
    difference: float
    ours: float
    eager: float
    inductor: float
    nodes: int
    graphs: str


def measure(case: Case) -> Row:
    (call,) = case.calls

    def effects(function: Callable[..., Any]) -> list[Tensor]:
        mine = call.clone()
        return [value for value in (mine(function), *mine.tensors()) if isinstance(value, Tensor)]

    expected = effects(case.reference)
    compiled, graphs = compile_counting(case.function, effects)
    results = (effects(case.function), compiled)
    difference = max(calc_diff(a, e) for actual in results for a, e in zip(actual, expected))
    nodes = sum(count_nodes(case.function, *call.clone().args, **call.kwargs).values())
    torch._dynamo.reset()
    inductor = torch.compile(case.reference, dynamic=False)
    effects(inductor)
    functions = {"ours": case.function, "eager": case.reference, "inductor": inductor}
    timers = {label: timer(function, call.clone()) for label, function in functions.items()}
    counts = {label: max(1, int(0.1 / timer.timeit(1).mean)) for label, timer in timers.items()}
    rounds = [{label: timer.timeit(counts[label]).mean for label, timer in timers.items()} for _ in range(3)]
    medians = {label: statistics.median(times[label] for times in rounds) for label in timers}
    return Row(case.name, difference, medians["ours"], medians["eager"], medians["inductor"], nodes, graphs)


def timer(function: Callable[..., Any], call: Call) -> Timer:
    return Timer("call(function)", globals={"call": call, "function": function}, num_threads=1)


def compile_counting(
    function: Callable[..., Any], run: Callable[[Callable[..., Any]], list[Tensor]]
) -> tuple[list[Tensor], str]:
    """What ``run`` returns for the compiled function, and the graphs compiled for that run / for a second one.

    The tensors of the first run are alive during the second, which therefore has others.
    """
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("inductor")
    compiled = torch.compile(function, backend=counter, fullgraph=True, dynamic=False)
    result = run(compiled)
    first = counter.frame_count
    run(compiled)
    return result, f"{first} / {counter.frame_count - first}"


def operator_table(rows: list[Row]) -> Table:
    table = rich_table(
        "Operators on one CPU thread, at the sizes of the page",
        [["operator", "calc_diff", "time", "PyTorch", "inductor", "nodes", "graphs"]]
        + [
            [
                row.name,
                agreement(row.difference),
                duration(row.ours),
                f"{row.eager / row.ours:.1f}x",
                f"{row.inductor / row.ours:.1f}x",
                str(row.nodes),
                row.graphs,
            ]
            for row in rows
        ],
    )
    table.show_edge = table.pad_edge = False  # 80 columns wide
    table.caption = (
        "PyTorch, inductor: time of plain PyTorch, eager and compiled, over ours.\n"
        "nodes: operators in the compiled graph. graphs: compiled for the first\n"
        "call / for inputs in new storage. Captures: hatch run npu-sim:demo."
    )
    return table


def agreement(difference: float) -> str:
    return "equal" if difference == 0 else f"{difference:.1e}"


def duration(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"


# -- pictures and sources ------------------------------------------------------------------------------------------


def write_sources(output: Path) -> dict[str, Path]:
    """The code that TileLang generated for one operator: C for the CPU, AscendC for the NPU."""
    kernels = "cann_ops_tilelang.engram_grad_w_reduce.kernels"
    c, asc = output / "engram_grad_w_reduce.c", output / "engram_grad_w_reduce.asc"
    c.write_text(import_module(f"{kernels}.cpu").build.source())
    asc.write_text(import_module(f"{kernels}.ascend").build.source(4 * 2560, 56))
    return {"Generated C": c, "Generated AscendC": asc}


def draw(model: VisionFrontEnd, batch: Batch, page: Image.Image, path: Path) -> None:
    """The page, its patches, where one patch attends, and the order of the tokens."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Rectangle

    side, patch = CONFIG.side, CONFIG.patch_size
    figure = plt.figure(figsize=(13, 12.6), layout="constrained", facecolor="white")
    axes = figure.subplot_mosaic([["page", "patches"], ["attention", "tokens"]], height_ratios=[1, 1])
    for ax in axes.values():
        ax.set_xticks([])
        ax.set_yticks([])

    axes["page"].imshow(page)
    axes["page"].set_title(f"The page: a 24-bit BMP of {PAGE} x {PAGE} pixels")

    patches = model.patches(batch)
    pixels = (patches.float() * 0.5 + 0.5).clamp(0, 1).view(side, side, 3, patch, patch).permute(0, 3, 1, 4, 2)
    grid = np.ones((side, patch + 3, side, patch + 3, 3), dtype=np.float32)
    grid[:, 1 : patch + 1, :, 1 : patch + 1] = pixels.numpy()
    axes["patches"].imshow(grid.reshape(side * (patch + 3), side * (patch + 3), 3), interpolation="antialiased")
    axes["patches"].set_title(f"bmp_to_patches: {side * side} patches of {patch} x {patch}, un-normalised")

    row, column = side * 19 // 40, side * 11 // 40
    weights = similarity(model, batch, row * side + column).view(side, side)
    axes["attention"].imshow(page.convert("L"), cmap="gray", vmin=-80, vmax=255, extent=(0, side, side, 0))
    heat = axes["attention"].imshow(
        weights, cmap="magma", alpha=0.72, extent=(0, side, side, 0), interpolation="bilinear"
    )
    axes["attention"].add_patch(
        Rectangle((column, row), 1, 1, fill=False, edgecolor="#39ff88", linewidth=2.5, label="query")
    )
    axes["attention"].legend(loc="lower right")
    axes["attention"].set_title("attn_rel_h_rel_w: what the marked patch attends to")
    figure.colorbar(heat, ax=axes["attention"], shrink=0.7, label="log10 of weight over mean weight, all heads")

    layout = token_layout(batch)
    colours = ListedColormap(["#e3e6ea", "#8c939c", *plt.get_cmap("viridis")(np.linspace(0, 1, 254))])
    axes["tokens"].imshow(layout, cmap=colours, aspect="auto", vmin=0, vmax=255, interpolation="nearest")
    axes["tokens"].set_yticks(
        [0, 1, 2], ["text with\nplaceholders", "replace_\ninput_embeds", "shuffle_\nimage_tokens"]
    )
    axes["tokens"].set_xlabel("token of the language model's input")
    axes["tokens"].set_title("Light: text. Dark: placeholders. Colour: place on the page")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def similarity(model: VisionFrontEnd, batch: Batch, query: int) -> Tensor:
    """Log attention weights of one token in the global block, from the values the operator gets."""
    x = model.embed(model.patches(batch)).view(1, CONFIG.side**2, -1)
    q, k, _, rel_h, rel_w = model.whole.heads(x, *model.phases(batch))
    bias = (rel_h[0, :, query, :, None] + rel_w[0, :, query, None, :]).flatten(1).float()
    scores = CONFIG.head_dim**-0.5 * torch.einsum("nc,jnc->nj", q[0, query].float(), k[0].float()) + bias
    weights = torch.softmax(scores, dim=-1).mean(0)
    return torch.log10(weights * weights.numel())


def token_layout(batch: Batch) -> np.ndarray[Any, Any]:
    """Three rows: which page position each token of the input holds, before and after the two operators.

    The operators move rows that carry their own number.
    """
    ops = operators()
    count = int(batch.cu_patches[-1])
    numbers = torch.full((batch.input_embeds.shape[0], 1), TEXT)
    start = int(batch.image_starts[0])
    numbers[start : start + count] = PLACEHOLDER
    rows = [numbers.clone()]
    ops.replace_input_embeds(
        numbers, torch.arange(count, dtype=torch.float32)[:, None], batch.image_starts, batch.cu_patches
    )
    rows.append(numbers.clone())
    ops.shuffle_image_tokens(numbers, batch.image_starts, batch.cu_patches, groups=CONFIG.groups)
    rows.append(numbers)
    layout = torch.cat(rows, dim=1).T
    result: np.ndarray[Any, Any] = torch.where(layout < 0, layout + 2, 2 + layout * 254 / count).numpy()
    return result


if __name__ == "__main__":
    main()

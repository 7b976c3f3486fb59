"""What the demo takes as a page."""

from pathlib import Path

import pytest
from PIL import Image

from cann_ops_tilelang.tools.demo import PAGE, draw_page, open_page

pytestmark = pytest.mark.on("cpu")


@pytest.mark.parametrize(
    ("name", "mode", "size", "notes"),
    [
        ("page.bmp", "RGB", (PAGE, PAGE), []),
        ("page.bmp", "RGB", (301, 777), ["301 x 777"]),
        ("page.bmp", "P", (PAGE, PAGE), ["24 bits"]),
        ("page.bmp", "RGBA", (PAGE, PAGE), ["24 bits"]),
        ("page.png", "RGBA", (1, 1), ["not a BMP", "1 x 1"]),
        ("page.jpg", "L", (PAGE, PAGE), ["not a BMP"]),
    ],
)
def test_images_of_any_kind_and_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, mode: str, size: tuple[int, int], notes: list[str]
) -> None:
    path = tmp_path / name
    draw_page().convert(mode).resize(size).save(path)
    page = open_page(path)
    assert (page.mode, page.size) == ("RGB", (PAGE, PAGE))
    printed = " ".join(capsys.readouterr().out.split())
    assert all(note in printed for note in notes) and bool(notes) == bool(printed)


def test_transparent_is_white(tmp_path: Path) -> None:
    Image.new("RGBA", (9, 9), (255, 0, 0, 0)).save(tmp_path / "page.png")
    assert open_page(tmp_path / "page.png").getextrema() == ((255, 255),) * 3


@pytest.mark.parametrize("contents", [b"", b"text", None, "truncated"])
def test_what_cannot_be_read_is_named(tmp_path: Path, contents: bytes | str | None) -> None:
    path = tmp_path / "page.bmp"
    if contents == "truncated":
        draw_page().save(path)
        contents = path.read_bytes()[:5000]
    if isinstance(contents, bytes):
        path.write_bytes(contents)
    with pytest.raises(ValueError, match=r"page\.bmp (is no image|cannot be read)"):
        open_page(path)

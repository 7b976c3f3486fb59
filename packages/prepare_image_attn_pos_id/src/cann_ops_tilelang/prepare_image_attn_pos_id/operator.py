"""Contract and registration of ``prepare_image_attn_pos_id``."""

from torch import Tensor

from cann_ops_tilelang.core import INT32, operator, option, tensor

# Above this many images a dozen tensor operations cost less than a Python loop.
MANY_IMAGES = 128


def check_values(grid_hw: Tensor, cu_seqlens_vit: Tensor, total_seqlens_vit: int, window_size: int) -> None:
    """Raise the ValueError that names the first image whose values are not as the contract states."""
    if grid_hw.shape[0] > MANY_IMAGES and _valid(grid_hw, cu_seqlens_vit, total_seqlens_vit, window_size):
        return
    bounds = cu_seqlens_vit.tolist()
    if bounds[0] != 0:
        raise ValueError(f"prepare_image_attn_pos_id: cu_seqlens_vit must start at 0, got {bounds[0]} for image 0")
    for image, (rows, columns) in enumerate(grid_hw.tolist()):
        if rows < 0 or columns < 0 or rows % window_size or columns % window_size:
            raise ValueError(
                f"prepare_image_attn_pos_id: grid_hw must hold multiples of window_size {window_size} that are not "
                f"negative, got {rows} x {columns} for image {image}"
            )
        tokens = bounds[image + 1] - bounds[image]
        if tokens != rows * columns:
            raise ValueError(
                f"prepare_image_attn_pos_id: cu_seqlens_vit must grow by rows * columns = {rows} * {columns} for image "
                f"{image}, got {tokens}"
            )
        if bounds[image + 1] > total_seqlens_vit:
            raise ValueError(
                f"prepare_image_attn_pos_id: total_seqlens_vit must be >= cu_seqlens_vit, got {total_seqlens_vit} for "
                f"{bounds[image + 1]} tokens up to image {image}"
            )


def _valid(grid_hw: Tensor, cu_seqlens_vit: Tensor, total_seqlens_vit: int, window_size: int) -> bool:
    grid, bounds = grid_hw.long(), cu_seqlens_vit.long()
    return bool(
        int(grid.min()) >= 0
        and (window_size == 1 or not (grid % window_size).any())
        and int(bounds[0]) == 0
        and bounds.diff().equal(grid[:, 0] * grid[:, 1])
        and int(bounds[-1]) <= total_seqlens_vit
    )


@operator(
    tensor("grid_hw", "num_images, 2", INT32),
    tensor("cu_seqlens_vit", "num_images + 1", INT32),
    option("total_seqlens_vit", int, at_least=0, at_most=2**31 - 1),
    option("window_size", int, at_least=1, at_most=2),
    values=check_values,
)
def prepare_image_attn_pos_id(
    grid_hw: Tensor, cu_seqlens_vit: Tensor, *, total_seqlens_vit: int, window_size: int = 1
) -> Tensor:
    """Row and column of every vision token in its image's grid of patches, for rotary or relative positions.

    Tokens are ordered window by window, the windows of an image row by row, and row by row inside a window of
    window_size x window_size: plain row order for 1, the order of Qwen2-VL's spatial merge for 2.

    Args:
        grid_hw: (num_images, 2) int32, patch rows and columns of every image, multiples of window_size.
        cu_seqlens_vit: (num_images + 1,) int32, prefix sums of rows * columns, starting at 0.
        total_seqlens_vit: rows of the result, at least ``cu_seqlens_vit[-1]``.
        window_size: 1 or 2.

    Returns:
        (total_seqlens_vit, 2) int32: (row, column) of every token; (-1, -1) from ``cu_seqlens_vit[-1]`` on.

    Raises:
        TypeError: an argument is not a tensor, has another dtype, or an option is not an int.
        ValueError: rank, shape, device, layout or an option is not as stated; on CPU also a value in grid_hw or
            cu_seqlens_vit, naming the image.

    The order of spatial merge is that of P. Wang et al., "Qwen2-VL", https://arxiv.org/abs/2409.12191.
    """
    return grid_hw.new_empty((total_seqlens_vit, 2))

"""The picture of what swizzling reads."""

from tools.swizzle_picture import PICTURE, TimedOrder, count_reads, draw, list_running, read_orders


def test_four_blocks_in_a_square_read_a_fifth_less_than_in_a_row() -> None:
    """The example of cuTile's guide: 16 tiles instead of 20 over the four steps of K of a 4x4 grid."""
    reads = [sum(count_reads(list_running(TimedOrder(group, 4, 4, 1.0), 4))) for group in (1, 2)]
    assert [4 * each for each in reads] == [20, 16]


def test_the_picture_is_as_the_recording_and_the_library_are() -> None:
    """`python -m tools.swizzle_picture` draws it again."""
    orders = read_orders()
    assert [order.group_size_m for order in orders] == [1, 4, 8, 16]
    assert min(orders, key=lambda order: order.median_us).group_size_m == 8
    assert PICTURE.read_text(encoding="utf-8") == draw(orders)

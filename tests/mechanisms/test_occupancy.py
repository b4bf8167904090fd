"""How many thread blocks fit on a multiprocessor, at each of its limits."""

import pytest

from tilewatch.mechanisms.occupancy import MULTIPROCESSORS, Occupancy, occupancy


@pytest.mark.parametrize(
    ("threads", "registers", "shared_bytes", "blocks", "limited_by"),
    [
        (128, 128, 0, 4, "registers"),
        (128, 72, 0, 7, "registers"),
        (128, 73, 0, 6, "registers"),
        (128, 120, 0, 4, "registers"),
        (128, 121, 0, 4, "registers"),
        (128, 129, 0, 3, "registers"),
        (128, 0, 0, 16, "threads"),
        (129, 0, 0, 12, "threads"),
        (1024, 32, 0, 2, "registers"),
        (1024, 33, 0, 1, "registers"),
        (32, 32, 0, 32, "blocks"),
        (32, 32, 6272, 32, "shared memory"),
        (32, 32, 6273, 31, "shared memory"),
        (32, 32, 227 << 10, 1, "shared memory"),
        (32, 32, (227 << 10) + 1, 0, "shared memory"),
    ],
)
def test_the_scarcest_resource_limits_the_blocks(
    threads: int, registers: int, shared_bytes: int, blocks: int, limited_by: str
) -> None:
    """A block takes 1 KiB of shared memory more than it asks for; a warp takes registers in steps of 256."""
    warps = blocks * -(-threads // 32)
    assert occupancy("sm_90", threads, registers, shared_bytes) == Occupancy(blocks, warps / 64, limited_by)


def test_an_unknown_architecture_has_no_occupancy() -> None:
    assert occupancy("sm_999", 128, 32, 0) is None


@pytest.mark.parametrize(
    ("arch", "shared_kib", "threads", "blocks"),
    [
        ("sm_80", 164, 2048, 32),
        ("sm_90", 228, 2048, 32),
        ("sm_100", 228, 2048, 32),
        ("sm_103", 228, 2048, 32),
        ("sm_120", 100, 1536, 24),
    ],
)
def test_the_limits_are_those_of_nvidia_s_table(arch: str, shared_kib: int, threads: int, blocks: int) -> None:
    """CUDA programming guide, technical specifications per compute capability."""
    has = MULTIPROCESSORS[arch]
    assert (has.registers, has.shared_bytes) == (64 * 1024, shared_kib * 1024)
    assert (has.threads, has.blocks) == (threads, blocks)

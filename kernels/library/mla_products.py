"""Products of multi-head latent attention in which each head has its own weights.
DeepGEMM names these products einsum `bhr,hdr->bhd`.

x is (tokens, heads, K), w is (heads, N, K) and out is (tokens, heads, N), all bfloat16 and row-major."""

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import cuda.tile as ct

from tilewatch.kernels.contract import Array, BadProblem, Config, Kernel, Problem, Space

ConstInt: TypeAlias = ct.Constant[int]

ZERO = ct.PaddingMode.ZERO


@ct.kernel
def mla_product(x, w, out, tile_m: ConstInt, tile_n: ConstInt, tile_k: ConstInt):
    """Computes out[:, head] = x[:, head] @ w[head]^T. Thread blocks of a head run together and share w[head] in L2."""
    tiles_n = ct.cdiv(w.shape[1], tile_n)
    i, j, head = ct.bid(0) // tiles_n, ct.bid(0) % tiles_n, ct.bid(1)
    acc = ct.full((tile_m, tile_n), 0.0, dtype=ct.float32)
    for k in range(ct.cdiv(w.shape[2], tile_k)):
        rows = ct.load(x, index=(i, head, k), shape=(tile_m, 1, tile_k), padding_mode=ZERO)
        columns = ct.load(w, index=(head, j, k), shape=(1, tile_n, tile_k), padding_mode=ZERO)
        of_columns = ct.transpose(ct.reshape(columns, (tile_n, tile_k)))
        acc = ct.mma(ct.reshape(rows, (tile_m, tile_k)), of_columns, acc)
    ct.store(out, index=(i, head, j), tile=ct.reshape(ct.astype(acc, out.dtype), (tile_m, 1, tile_n)))


def parse(text: str) -> Problem:
    """Reads "4096x128x128x512": 4096 tokens, 128 heads, N=128, K=512."""
    found = re.fullmatch(r"(\d+)x(\d+)x(\d+)x(\d+)", text.strip().lower())
    if found is None:
        raise BadProblem(f"'{text}' is not a product per head: write tokens x heads x N x K, such as 4096x128x128x512")
    sizes = dict(zip(("tokens", "heads", "n", "k"), map(int, found.groups()), strict=True))
    if min(sizes.values()) < 1 or max(sizes.values()) > 1 << 20 or sizes["heads"] > 65535:
        raise BadProblem(f"problem {text}: every size must be between 1 and {1 << 20}, and at most 65535 heads")
    return Problem("x".join(map(str, sizes.values())), sizes)


def space(_: str) -> Space:
    return Space(
        (
            ("tile_m", (64, 128)),
            ("tile_n", (64, 128, 256)),
            ("tile_k", (64, 128)),
            ("occupancy", (1, 2)),
            ("num_worker_warps", (4, 8)),
        ),
        only=_has_registers,
    )


def _has_registers(config: Config) -> bool:
    """Returns True if a thread has registers left besides the sums of its tile."""
    sums = config["tile_m"] * config["tile_n"]
    return sums <= (64 * 128 if config["occupancy"] == 2 else 4096 * config["num_worker_warps"])


def arrays(problem: Problem) -> tuple[Array, ...]:
    tokens, heads, n, k = (problem.sizes[name] for name in ("tokens", "heads", "n", "k"))
    return (
        Array("x", (tokens, heads, k), "bfloat16"),
        Array("w", (heads, n, k), "bfloat16"),
        Array("out", (tokens, heads, n), "bfloat16", output=True),
    )


def constants(_: Problem, config: Config) -> tuple[int, ...]:
    return config["tile_m"], config["tile_n"], config["tile_k"]


def grid(problem: Problem, config: Config, _: int) -> tuple[int, int, int]:
    tiles = -(-problem.sizes["tokens"] // config["tile_m"]) * -(-problem.sizes["n"] // config["tile_n"])
    return tiles, problem.sizes["heads"], 1


def reference(inputs: Mapping[str, Any], xp: Any) -> Mapping[str, Any]:
    x, w = inputs["x"], inputs["w"]
    out = xp.empty((*x.shape[:2], w.shape[1]), dtype=xp.float32)
    for head in range(len(w)):
        out[:, head] = x[:, head] @ w[head].T
    return {"out": out}


def tolerance(_: Problem) -> float:
    """Returns the allowed error: half a bfloat16 step of the largest output."""
    return 2.0**-8


def flops(problem: Problem) -> int:
    tokens, heads, n, k = (problem.sizes[name] for name in ("tokens", "heads", "n", "k"))
    return 2 * tokens * heads * n * k


def least_bytes(problem: Problem) -> int:
    tokens, heads, n, k = (problem.sizes[name] for name in ("tokens", "heads", "n", "k"))
    return 2 * heads * (tokens * (n + k) + n * k)


KERNELS = (
    Kernel(
        name="mla_product",
        entry=mla_product,
        # DeepSeek-V3, 128 heads: latent values (kv_lora_rank 512) to v_head_dim 128 for 4096 tokens and 128, and
        # queries (qk_nope_head_dim 128) to the latent space for 128.
        problems=(parse("4096x128x128x512"), parse("128x128x128x512"), parse("128x128x512x128")),
        parse=parse,
        space=space,
        arrays=arrays,
        constants=constants,
        grid=grid,
        reference=reference,
        tolerance=tolerance,
        flops=flops,
        bytes=least_bytes,
        baselines=("deepgemm", "copy"),
    ),
)

"""Lists one-line changes of this repository's library, each of which changes what a kernel does."""

import ast
from dataclasses import dataclass


@dataclass(frozen=True)
class Planted:
    """A change to plant in a kernel: `old` becomes `new` where it first occurs after the line `def function`."""

    kernel: str
    file: str
    function: str
    old: str
    new: str

    def apply(self, source: str) -> tuple[str, int]:
        """Returns the changed source and a line number: that of the innermost call or statement that contains the
        change, because the compiler knows only this line of code that spans several lines."""
        start = source.index(f"def {self.function}(")
        at = source.index(self.old, start)
        place = source.count("\n", 0, at) + 1, len(source[source.rfind("\n", 0, at) + 1 : at].encode())
        changed = source[:at] + self.new + source[at + len(self.old) :]
        around = [
            (node.lineno, node.col_offset)
            for node in ast.walk(ast.parse(changed))
            if isinstance(node, ast.Call | ast.stmt)
            and (node.lineno, node.col_offset) <= place
            # A statement may end with what was left out, and a call may not.
            and (*place, isinstance(node, ast.Call)) <= (node.end_lineno or 0, node.end_col_offset or 0, False)
        ]
        return changed, max(around)[0]


def _of(kernel: str, file: str, *changes: tuple[str, str, str]) -> tuple[Planted, ...]:
    return tuple(Planted(kernel, file, *change) for change in changes)


PLANTED = (
    *_of(
        "gemm_fp8",
        "gemm.py",
        ("gemm_fp8_persistent", "tiles_per_group = group_size_m * tiles_n", "tiles_per_group = group_size_m * tiles_m"),
        ("gemm_fp8_persistent", "min(tiles_m - first_m, group_size_m)", "min(tiles_m - first_m, 2 * group_size_m)"),
        ("gemm_fp8_persistent", "(tile % tiles_per_group) % rows", "(tile % tiles_per_group) // rows"),
        ("gemm_fp8_persistent", "y = ct.load(b, index=(j, k),", "y = ct.load(b, index=(j, k), allow_tma=False,"),
        ("gemm_fp8_persistent", "acc = ct.full((tile_m, tile_n), 0.0", "acc = ct.full((tile_m, tile_n), 1.0"),
    ),
    *_of(
        "gemm_nt",
        "gemm_steps.py",
        ("operands", "index=(i, k)", "index=(k, i)"),
        ("swizzled", "first_m = tile // tiles_per_group * group_size_m", "first_m = tile // tiles_per_group"),
        ("swizzled", "first_m + tile % tiles_per_group % rows", "first_m + tile % rows"),
        ("one_tile", "for k in range(tiles_k):", "for k in range(1, tiles_k):"),
        ("one_tile", "ct.mma(x, y, acc,", "ct.mma(x, y, acc * 0.5,"),
    ),
    *_of(
        "attention_prefill_causal",
        "attention.py",
        ("keys", "padding_mode=ZERO, latency=latency", "padding_mode=ZERO"),
        ("attend", "scores * scale - higher, flush_to_zero=True", "scores * scale - higher, flush_to_zero=False"),
        ("attend", "total = total * kept + ", "total = total * kept * kept + "),
        ("attention_prefill", "(column + j * few <= row)", "(column + j * few < row)"),
        ("attention_prefill", "(i * tile_m) // tile_n", "(i * tile_m) // (2 * tile_n)"),
    ),
    *_of(
        "attention_decode",
        "attention.py",
        ("attention_decode", "for j in range(length // tile_n):", "for j in range(length // tile_n - 1):"),
        ("attention_decode", "head), padding_mode=ZERO)", "head), padding_mode=ZERO, allow_tma=False)"),
        ("attention_decode", "acc * (1.0 / ct.sum(total", "acc * (1.0 * ct.sum(total"),
        ("attention_decode", "ct.full((tile_m, tile_n), 0.0", "ct.full((tile_m, tile_n), 1.0"),
        ("attend", "kept = ct.exp2(most - higher", "kept = ct.exp2(higher - most"),
    ),
    *_of(
        "grouped_bf16",
        "grouped_gemm.py",
        ("grouped_bf16_contiguous", "index=(i * tile_m,)", "index=(i,)"),
        ("grouped_bf16_contiguous", "tiles_k = used(g) * ct.num_tiles", "tiles_k = ct.num_tiles"),
        ("swizzled", "return first + within % rows, within // rows", "return first + within // rows, within % rows"),
        ("weights", "latency=hint(latency)", "latency=4"),
        ("one_product", "x = ct.load(a, index=(i, k)", "x = ct.load(a, index=(i, k + 1)"),
    ),
    *_of(
        "rms_norm",
        "norm.py",
        ("rms_norm_rows", "padding_mode=ct.PaddingMode.ZERO)", "padding_mode=ct.PaddingMode.ZERO, allow_tma=False)"),
        ("rms_norm_rows", "(1.0 / columns)", "(2.0 / columns)"),
        ("rms_norm_rows", " * ct.astype(factor, ct.float32)[None, :]", ""),
        ("rms_norm_rows", "values = ct.astype(rows, ct.float32)", "values = ct.astype(rows, ct.float16)"),
        ("rms_norm_rows", "y.dtype), allow_tma=tma)", "y.dtype), allow_tma=False)"),
    ),
    *_of(
        "softmax",
        "elementwise.py",
        ("softmax_rows", "keepdims=True)) * LOG2_E", "keepdims=True))"),
        ("softmax_rows", "values = ct.astype(rows, ct.float32)", "values = ct.astype(rows, ct.float32) * 1.5"),
        ("softmax_rows", "rounding_mode=ct.RoundingMode.APPROX", "rounding_mode=ct.RoundingMode.FULL"),
        ("softmax_rows", "ct.sum(raised, axis=1", "ct.max(raised, axis=1"),
        ("softmax_rows", "padding_mode=ct.PaddingMode.ZERO, allow_tma=tma", "allow_tma=tma"),
    ),
    *_of(
        "silu_and_multiply",
        "elementwise.py",
        ("silu_and_multiply_tiles", "i, j = tile // across, tile % across", "i, j = tile % across, tile // across"),
        ("silu_and_multiply_tiles", "below = 1.0 + ", "below = 2.0 + "),
        (
            "silu_and_multiply_tiles",
            "gate = ct.load(left, index=(i, j),",
            "gate = ct.load(left, index=(i, j), latency=2,",
        ),
        ("silu_and_multiply_tiles", "silu * ct.astype(up", "silu + ct.astype(up"),
        ("silu_and_multiply_tiles", "RoundingMode.APPROX, flush_to_zero=True", "RoundingMode.APPROX"),
    ),
)


def add_comments(source: str) -> str:
    """Returns the source with a licence above everything, and a comment above each kernel."""
    header = "".join(f"# line {number} of a licence\n" for number in range(12))
    return header + source.replace("@ct.kernel\n", "# a comment that moved\n\n@ct.kernel\n")


def reformat(source: str) -> str:
    """Returns the source with other line breaks, and without comments."""
    return ast.unparse(ast.parse(source))


def reorder_functions(source: str) -> str:
    """Returns the source with kernels and the functions that they call in reverse order."""
    tree = ast.parse(source)
    places = _list_device_functions(tree)
    for place, function in zip(places, [tree.body[place] for place in reversed(places)], strict=True):
        tree.body[place] = function
    return ast.unparse(tree)


def rename_variables(source: str) -> str:
    """Returns the source with other names for local variables of kernels and of functions that kernels call."""
    tree = ast.parse(source)
    for place in _list_device_functions(tree):
        names = [node for node in ast.walk(tree.body[place]) if isinstance(node, ast.Name)]
        local = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        for node in names:
            if node.id in local:
                node.id = f"other_{node.id}"
        for argument in (node for node in ast.walk(tree.body[place]) if isinstance(node, ast.arg)):
            argument.arg = f"other_{argument.arg}" if argument.arg in local else argument.arg
    return ast.unparse(tree)


HARMLESS = (add_comments, reformat, reorder_functions, rename_variables)


def _list_device_functions(tree: ast.Module) -> list[int]:
    """Returns the indices of the functions that run on the GPU: those before the first function that parses
    problems."""
    functions = [place for place, node in enumerate(tree.body) if isinstance(node, ast.FunctionDef)]
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    first = next(index for index, name in enumerate(names) if name.startswith(("parse", "share")))
    return functions[:first]

"""Builds launches of torch's products, attentions and norms."""

from collections.abc import Callable
from typing import Any

from tilewatch.kernels.baselines.baseline import (
    BLACKWELL,
    HOPPER,
    BaselineLaunch,
    BaselineMissing,
    Call,
    find_major,
    make_allocating,
    tensor,
    torch_module,
)
from tilewatch.kernels.baselines.groups import find_group_of_row, list_ranges

GROUP_ROWS = 128
"""Groups start at multiples of this many rows."""

NORM_EPSILON = 1e-6
"""Epsilon of the norms. It must equal the epsilon in library/norm.py."""

ROUTED_SCALING = 2.5
"""Scaling factor of routed experts. It must equal the factor in library/moe_routing.py."""

NOPE = 128
"""qk_nope_head_dim of DeepSeek-V3. mla_decode scales scores by the head size before projections are absorbed."""


def cublaslt(call: Call) -> BaselineLaunch:
    """Returns a launch of D = A @ B^T in FP8, with one scale per tensor."""
    torch = torch_module()
    a, b, d = (tensor(call, name) for name in ("a", "b", "d"))
    one = torch.ones((), device="cuda")

    def launch() -> None:
        torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True, out=d)

    return BaselineLaunch(launch, {"version": torch.__version__, "scales": "one per tensor", "fast_accumulation": True})


def cublas(call: Call) -> BaselineLaunch:
    """Returns a launch of a product in float16, bfloat16 or float32 (computed as TF32)."""
    if call.dtypes["a"].startswith("float8"):
        raise BaselineMissing("torch.matmul takes no FP8; cublaslt does, where K is innermost in both operands")
    torch = torch_module()
    a, b, d = (tensor(call, name) for name in ("a", "b", "d"))
    left = a.t() if call.sizes.get("a_transposed") else a
    right = b.t() if call.sizes.get("b_transposed", 1) else b
    torch.backends.cuda.matmul.allow_tf32 = call.dtypes["a"] == "float32"
    return BaselineLaunch(lambda: torch.matmul(left, right, out=d), {"version": torch.__version__})


def cublas_per_group(call: Call) -> BaselineLaunch:
    """Returns a launch that computes the groups' products one after another with cuBLAS."""
    torch = torch_module()
    a, b, d = (tensor(call, name) for name in ("a", "b", "d"))
    weights = b.transpose(-1, -2) if call.sizes.get("b_transposed", 1) else b
    parts = []
    if "group_of_row" in call.inputs:
        group_of_row = tensor(call, "group_of_row").cpu()
        for group in range(b.shape[0]):
            rows = (group_of_row == group).nonzero().flatten()
            if len(rows):
                first, last = int(rows[0]), int(rows[-1]) + 1
                parts.append((a[first:last], weights[group], d[first:last]))
    else:
        for group, (start, end) in enumerate(list_ranges(call)):
            if d.dim() == 3:  # groups along K
                parts.append((a[start:end].t(), b[start:end], d[group]))
            else:
                start = -(-start // GROUP_ROWS) * GROUP_ROWS
                parts.append((a[start:end], weights[group], d[start:end]))

    def launch() -> None:
        for left, right, out in parts:
            torch.matmul(left, right, out=out)

    return BaselineLaunch(launch, {"version": torch.__version__, "products": len(parts)})


def grouped_mm(call: Call) -> BaselineLaunch:
    """Returns a launch that computes the products of all groups in one kernel, without the padding between groups."""
    torch = torch_module()
    if (major := find_major()) not in (HOPPER, BLACKWELL):
        raise BaselineMissing(
            "PyTorch multiplies groups in one kernel on compute capability 9 and 10 (H100, H200, B200, B300); on "
            f"{major} it calls cuBLAS for each, as cublas_per_group does"
        )
    a, b, d = (tensor(call, name) for name in ("a", "b", "d"))
    if d.dim() == 3:  # groups along K
        real, left, right, ends = slice(None), a.t(), b, tensor(call, "end_of_group")
    else:
        groups = find_group_of_row(call)
        real = groups >= 0
        left, right = a[real], b.mT if call.sizes.get("b_transposed", 1) else b
        ends = torch.bincount(groups[real], minlength=len(b)).cumsum(0).int()

    def compute() -> Any:
        return torch.nn.functional.grouped_mm(left, right, offs=ends)

    detail = {"version": torch.__version__, "groups": len(ends)}
    return make_allocating(compute, lambda found: d.__setitem__(real, found), detail)


def cublaslt_block_scaled(call: Call) -> BaselineLaunch:
    """Returns a launch of D = A @ B^T in NVFP4 or MXFP8. The layout of the scales is not timed."""
    torch = torch_module()
    if (major := find_major()) < BLACKWELL:
        raise BaselineMissing(
            f"cuBLASLt multiplies FP4 and MXFP8 from compute capability 10 (B200) on, and this GPU has {major}"
        )
    a, b, d = (tensor(call, name) for name in ("a", "b", "d"))
    if call.dtypes["a"] == "uint8":  # two FP4 elements
        a, b = (each.view(torch.float4_e2m1fn_x2) for each in (a, b))
    scale_a, scale_b = (_tile_scales(tensor(call, name)) for name in ("scale_a", "scale_b"))

    def launch() -> None:
        torch._scaled_mm(a, b.t(), scale_a=scale_a, scale_b=scale_b, out_dtype=torch.bfloat16, out=d)

    detail = {"version": torch.__version__, "scales": "the kernel's own, laid out beforehand"}
    return BaselineLaunch(launch, detail, kernels=1)


def _tile_scales(scales: Any) -> Any:
    """Returns scales in cuBLAS's layout: tiles of 128 rows and 4 columns."""
    torch = torch_module()
    # cuBLAS 13, "1D block scaling factors layout"
    rows, columns = scales.shape
    padded = torch.nn.functional.pad(scales.view(torch.uint8), (0, -columns % 4, 0, -rows % 128))
    tiles = padded.reshape(-(-rows // 128), 4, 32, -(-columns // 4), 4).permute(0, 3, 2, 1, 4)
    return tiles.reshape(-1).view(scales.dtype)


def cublaslt_per_group(call: Call) -> BaselineLaunch:
    """Returns a launch that computes the groups' FP8 products one after another with cuBLASLt."""
    torch = torch_module()
    if (major := find_major()) != HOPPER:
        raise BaselineMissing(f"cuBLASLt takes scales of 128 elements only on Hopper, and this GPU has {major}.x")
    a, b, scale_a, scale_b, d = (tensor(call, name) for name in ("a", "b", "scale_a", "scale_b", "d"))
    parts = []
    for group, (start, end) in enumerate(list_ranges(call)):
        blocks = slice(start // GROUP_ROWS, end // GROUP_ROWS)
        scales = {"scale_a": scale_a[blocks].t(), "scale_b": scale_b[blocks]}
        parts.append((a[:, start:end], b[:, start:end].t(), scales, d[group]))

    def launch() -> None:
        for left, right, scales, out in parts:
            torch._scaled_mm(left, right, **scales, out_dtype=torch.float32, out=out)

    return BaselineLaunch(launch, {"version": torch.__version__, "products": len(parts), "scales": "the kernel's own"})


def attention(backend: str) -> Callable[[Call], BaselineLaunch]:
    """Returns a function that builds a launch of torch's attention. `backend` is a name such as "CUDNN_ATTENTION"."""

    def build(call: Call) -> BaselineLaunch:
        torch = torch_module()
        from torch.nn.attention import SDPBackend, sdpa_kernel

        q, k, v = (tensor(call, name) for name in ("q", "k", "v"))
        if call.sizes.get("new_tokens") == 1:  # our kernel has the query heads that share one K and V as rows
            q = q.reshape(q.shape[0], -1, 1, q.shape[3])
        causal, shared = bool(call.sizes["causal"]), q.shape[1] != k.shape[1]

        def compute() -> Any:
            with sdpa_kernel(getattr(SDPBackend, backend)):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=shared)

        return _make_allocating(call, compute, ("out",), backend=backend)

    return build


def attention_flash_backward(call: Call) -> BaselineLaunch:
    """Returns a launch of FlashAttention's backward pass."""
    torch = torch_module()
    gradient = torch.ops.aten._scaled_dot_product_flash_attention_backward
    unused = torch.zeros((), dtype=torch.uint64, device="cuda")  # the random state of dropout
    return _make_gradients(call, lambda given, logs, sizes: gradient(*given, logs, None, None, *sizes, unused, unused))


def attention_cudnn_backward(call: Call) -> BaselineLaunch:
    """Returns a launch of cuDNN's backward pass of attention."""
    torch = torch_module()
    gradient = torch.ops.aten._scaled_dot_product_cudnn_attention_backward
    unused = torch.zeros((), dtype=torch.int64, device="cuda")  # the random state of dropout
    return _make_gradients(
        call, lambda given, logs, sizes: gradient(*given, logs[..., None], unused, unused, None, None, None, *sizes)
    )


def _make_gradients(call: Call, compute: Callable[[tuple[Any, ...], Any, tuple[Any, ...]], Any]) -> BaselineLaunch:
    """Returns a launch of a backward pass of attention. `compute` returns the gradients of Q, K and V."""
    q, k, v, dout, delta, log_sum = (tensor(call, name) for name in ("q", "k", "v", "dout", "delta", "log_sum"))
    # PyTorch computes delta as each row's sum of dout * result, so this result gives the call's delta
    slope = dout.float()
    result = (slope * (delta / slope.square().sum(-1))[..., None]).bfloat16()
    given, sizes = (dout, q, k, v, result), (q.shape[2], k.shape[2], 0.0, bool(call.sizes["causal"]))
    return _make_allocating(call, lambda: compute(given, log_sum, sizes), ("dq", "dk", "dv"))


def rms_norm(call: Call) -> BaselineLaunch:
    torch = torch_module()
    x, weight = tensor(call, "x"), tensor(call, "weight")
    return _make_allocating(call, lambda: torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, NORM_EPSILON), ("y",))


def layer_norm(call: Call) -> BaselineLaunch:
    torch = torch_module()
    x, weight, bias = (tensor(call, name) for name in ("x", "weight", "bias"))
    return _make_allocating(
        call, lambda: torch.nn.functional.layer_norm(x, (x.shape[-1],), weight, bias, NORM_EPSILON), ("y",)
    )


def residual_add(call: Call) -> BaselineLaunch:
    torch = torch_module()
    x, residual, y = (tensor(call, name) for name in ("x", "residual", "y"))
    return BaselineLaunch(lambda: torch.add(x, residual, out=y), {"version": torch.__version__})


def silu_and_multiply(call: Call) -> BaselineLaunch:
    """Returns a launch of SiLU and an elementwise product, as two kernels."""
    torch = torch_module()
    x, y = tensor(call, "x"), tensor(call, "y")
    gate, up = x.chunk(2, -1)
    return BaselineLaunch(lambda: torch.mul(torch.nn.functional.silu(gate), up, out=y), {"version": torch.__version__})


def softmax(call: Call) -> BaselineLaunch:
    torch = torch_module()
    x = tensor(call, "x")
    return _make_allocating(call, lambda: torch.softmax(x, -1), ("y",))


def moe_route(call: Call) -> BaselineLaunch:
    """Returns a launch that chooses each token's experts as PyTorch models do."""
    torch = torch_module()
    logits, top_k = tensor(call, "logits"), call.sizes["top_k"]

    def by_softmax() -> tuple[Any, Any]:
        weight, expert = torch.softmax(logits, -1).topk(top_k, -1)
        return expert, weight / weight.sum(-1, keepdim=True)

    def by_groups() -> tuple[Any, Any]:
        scores = torch.sigmoid(logits)
        choice = (scores + tensor(call, "bias")).unflatten(-1, (call.sizes["groups"], -1))
        sums = choice.topk(2, -1)[0].sum(-1)
        closed = torch.ones_like(sums, dtype=torch.bool).scatter_(1, sums.topk(call.sizes["kept"], -1)[1], value=False)
        expert = choice.masked_fill(closed[:, :, None], -torch.inf).flatten(1).topk(top_k, -1)[1]
        weight = scores.gather(1, expert)
        return expert, weight * (ROUTED_SCALING / weight.sum(-1, keepdim=True))

    return _make_allocating(call, by_groups if "bias" in call.inputs else by_softmax, ("expert", "weight"))


def moe_gate_up(call: Call) -> BaselineLaunch:
    """Returns a launch of the first half of a mixture of experts: a product and the activation."""
    torch = torch_module()
    by_experts = {} if find_major() in (HOPPER, BLACKWELL) else {"products": len(call.inputs["gate_up"])}
    x, gate_up, experts = (tensor(call, name) for name in ("x", "gate_up", "expert_of_half"))
    real = (experts >= 0).repeat_interleave(GROUP_ROWS // 2)
    tokens = tensor(call, "token_of_row")[real]
    ends = (GROUP_ROWS // 2 * torch.bincount(experts[experts >= 0], minlength=len(gate_up))).cumsum(0).int()
    rows = x.new_empty(len(tokens), x.shape[1])

    def compute() -> Any:
        torch.index_select(x, 0, tokens, out=rows)
        gate, up = torch.nn.functional.grouped_mm(rows, gate_up.mT, offs=ends).chunk(2, -1)
        return torch.nn.functional.silu(gate).mul_(up)

    return make_allocating(
        compute, lambda found: tensor(call, "y").__setitem__(real, found), {"version": torch.__version__, **by_experts}
    )


def mla_decode(call: Call) -> BaselineLaunch:
    """Returns a launch of two products with a softmax between them. Torch has no kernel that does all of this."""
    torch = torch_module()
    q, kv, out = (tensor(call, name) for name in ("q", "kv", "out"))
    latent = out.shape[2]
    scale = (NOPE + q.shape[2] - latent) ** -0.5
    scores = q.new_empty(q.shape[0], q.shape[1], kv.shape[1])
    weights = torch.empty_like(scores)

    def launch() -> None:
        torch.baddbmm(scores, q, kv.mT, beta=0, alpha=scale, out=scores)
        torch.softmax(scores, -1, out=weights)
        torch.bmm(weights, kv[:, :, :latent], out=out)

    return BaselineLaunch(launch, {"version": torch.__version__})


def _make_allocating(call: Call, compute: Callable[[], Any], outputs: tuple[str, ...], **detail: str) -> BaselineLaunch:
    """Returns a launch of `compute`, which allocates its outputs."""

    def store(computed: Any) -> None:
        for name, found in zip(outputs, computed if len(outputs) > 1 else [computed], strict=True):
            target = tensor(call, name)
            target.copy_(found.reshape(target.shape))

    return make_allocating(compute, store, {"version": torch_module().__version__, **detail})

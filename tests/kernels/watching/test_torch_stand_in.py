"""Lays out tensors as PyTorch does: the table is what PyTorch 2.13 (CPU build) answered on 2026-11-22."""

import json
import subprocess
import sys

import pytest

TABLE = """
x | (4, 96) (96, 1) torch.bfloat16 0
x.t() | (96, 4) (1, 96) torch.bfloat16 0
x.T.contiguous() | (96, 4) (4, 1) torch.bfloat16 0
x.transpose(0, 1) + x.t() | (96, 4) (1, 96) torch.bfloat16 0
x + 1 | (4, 96) (96, 1) torch.bfloat16 0
x + 1.5 | (4, 96) (96, 1) torch.bfloat16 0
b + x | (4, 96) (96, 1) torch.float32 0
i + 1 | (4, 96) (96, 1) torch.int32 0
i + 1.5 | (4, 96) (96, 1) torch.float32 0
i / 2 | (4, 96) (96, 1) torch.float32 0
x * y | (4, 96) (96, 1) torch.bfloat16 0
x @ x.t() | (4, 4) (4, 1) torch.bfloat16 0
x.float() @ torch.randn(96, 8) | (4, 8) (8, 1) torch.float32 0
q.transpose(1, 2) | (2, 16, 8, 64) (8192, 64, 1024, 1) torch.float16 0
q.transpose(1, 2).contiguous() | (2, 16, 8, 64) (8192, 512, 64, 1) torch.float16 0
q.transpose(1, 2).reshape(2, 16, 8 * 64) | (2, 16, 512) (8192, 512, 1) torch.float16 0
q.view(2, 8, 16, 2, 32) | (2, 8, 16, 2, 32) (8192, 1024, 64, 32, 1) torch.float16 0
q.reshape(-1, 64) | (256, 64) (64, 1) torch.float16 0
q.transpose(1, 2).reshape(2 * 16, -1) | (32, 512) (512, 1) torch.float16 0
q.transpose(1, 2).flatten(2) | (2, 16, 512) (8192, 512, 1) torch.float16 0
q.flatten(0, 1) | (16, 16, 64) (1024, 64, 1) torch.float16 0
q[:, :, 0] | (2, 8, 64) (8192, 1024, 1) torch.float16 0
q[..., 1:17] | (2, 8, 16, 16) (8192, 1024, 64, 1) torch.float16 1
q[:, ::2] | (2, 4, 16, 64) (8192, 2048, 64, 1) torch.float16 0
q[:, None] | (2, 1, 8, 16, 64) (8192, 8192, 1024, 64, 1) torch.float16 0
q[0, 1:] | (7, 16, 64) (1024, 64, 1) torch.float16 1024
q[:, -1:, :, 5] | (2, 1, 16) (8192, 1024, 64) torch.float16 7173
q[:, :, 3:, 8:].contiguous() | (2, 8, 13, 56) (5824, 728, 56, 1) torch.float16 0
q[torch.zeros(5, dtype=torch.int64)] | (5, 8, 16, 64) (8192, 1024, 64, 1) torch.float16 0
q.permute(0, 2, 3, 1) | (2, 16, 64, 8) (8192, 64, 1, 1024) torch.float16 0
torch.empty_like(q.permute(0, 2, 3, 1)) | (2, 16, 64, 8) (8192, 64, 1, 1024) torch.float16 0
torch.empty_like(q[:, :, :, :32]) | (2, 8, 16, 32) (4096, 512, 32, 1) torch.float16 0
torch.empty_like(q.transpose(1, 2)[:, :, :, :32]) | (2, 16, 8, 32) (4096, 32, 512, 1) torch.float16 0
q.permute(0, 2, 3, 1).float() | (2, 16, 64, 8) (8192, 64, 1, 1024) torch.float32 0
q.permute(0, 2, 3, 1).clone() | (2, 16, 64, 8) (8192, 64, 1, 1024) torch.float16 0
q.permute(0, 2, 3, 1) * 2 | (2, 16, 64, 8) (8192, 64, 1, 1024) torch.float16 0
q.unsqueeze(0) | (1, 2, 8, 16, 64) (16384, 8192, 1024, 64, 1) torch.float16 0
q.unsqueeze(-1) | (2, 8, 16, 64, 1) (8192, 1024, 64, 1, 1) torch.float16 0
q.transpose(1, 2).unsqueeze(2) | (2, 16, 1, 8, 64) (8192, 64, 8192, 1024, 1) torch.float16 0
q.expand(3, 2, 8, 16, 64) | (3, 2, 8, 16, 64) (0, 8192, 1024, 64, 1) torch.float16 0
q[:, :1].expand(2, 8, 16, 64) | (2, 8, 16, 64) (8192, 0, 64, 1) torch.float16 0
q[:, :1].expand(2, 8, 16, 64).reshape(16, 16, 64) | (16, 16, 64) (1024, 64, 1) torch.float16 0
q[:, :1].squeeze(1) | (2, 16, 64) (8192, 64, 1) torch.float16 0
q.sum(-1) | (2, 8, 16) (128, 16, 1) torch.float16 0
q.sum(dim=(0, 2), keepdim=True) | (1, 8, 1, 64) (512, 64, 64, 1) torch.float16 0
q.mean() | () () torch.float16 0
q.amax(dim=-1, keepdim=True) | (2, 8, 16, 1) (128, 16, 1, 1) torch.float16 0
q.max(-1).values | (2, 8, 16) (128, 16, 1) torch.float16 0
q.max(-1)[1] | (2, 8, 16) (128, 16, 1) torch.int64 0
q.argmax(-1) | (2, 8, 16) (128, 16, 1) torch.int64 0
x.norm(dim=-1, keepdim=True) | (4, 1) (1, 1) torch.bfloat16 0
x > 0 | (4, 96) (96, 1) torch.bool 0
(x > 0).sum() | () () torch.int64 0
i.sum() | () () torch.int64 0
torch.softmax(x, -1) | (4, 96) (96, 1) torch.bfloat16 0
torch.softmax(x.float(), dim=-1) | (4, 96) (96, 1) torch.float32 0
torch.nn.functional.softmax(x, dim=-1, dtype=torch.float32) | (4, 96) (96, 1) torch.float32 0
torch.nn.functional.silu(x) | (4, 96) (96, 1) torch.bfloat16 0
torch.nn.functional.linear(x, w) | (4, 32) (32, 1) torch.bfloat16 0
torch.nn.functional.pad(x, (0, 3)) | (4, 99) (99, 1) torch.bfloat16 0
torch.nn.functional.pad(x, (1, 3, 2, 0)) | (6, 100) (100, 1) torch.bfloat16 0
torch.cat([x, x], dim=1) | (4, 192) (192, 1) torch.bfloat16 0
torch.cat((x, x.float()), -1) | (4, 192) (192, 1) torch.float32 0
torch.stack([x, x], dim=1) | (4, 2, 96) (192, 96, 1) torch.bfloat16 0
torch.where(x > 0, x, 0.0) | (4, 96) (96, 1) torch.bfloat16 0
torch.where(i > 0, i, -1) | (4, 96) (96, 1) torch.int32 0
x.chunk(2, dim=-1)[1] | (4, 48) (96, 1) torch.bfloat16 48
x.split(40, dim=-1)[2] | (4, 16) (96, 1) torch.bfloat16 80
x.split([32, 64], dim=-1)[1] | (4, 64) (96, 1) torch.bfloat16 32
x.unbind(0)[3] | (96,) (1,) torch.bfloat16 288
x.narrow(1, 4, 8) | (4, 8) (96, 1) torch.bfloat16 4
x.to(torch.float8_e4m3fn) | (4, 96) (96, 1) torch.float8_e4m3fn 0
x.to(torch.float32).to(torch.bfloat16) | (4, 96) (96, 1) torch.bfloat16 0
x.view(torch.uint8) | (4, 192) (192, 1) torch.uint8 0
x.float().view(torch.int32) | (4, 96) (96, 1) torch.int32 0
x.view(torch.int16) | (4, 96) (96, 1) torch.int16 0
x.type(torch.float16) | (4, 96) (96, 1) torch.float16 0
x.to(dtype=torch.float16) | (4, 96) (96, 1) torch.float16 0
x.repeat(2, 3) | (8, 288) (288, 1) torch.bfloat16 0
x.repeat(2, 1, 1) | (2, 4, 96) (384, 96, 1) torch.bfloat16 0
x.repeat_interleave(4, dim=0) | (16, 96) (96, 1) torch.bfloat16 0
torch.zeros(3, 4) | (3, 4) (4, 1) torch.float32 0
torch.zeros((3, 4), dtype=torch.bool) | (3, 4) (4, 1) torch.bool 0
torch.ones(3, dtype=torch.int32) | (3,) (1,) torch.int32 0
torch.full((2, 3), 1.0) | (2, 3) (3, 1) torch.float32 0
torch.full((2, 3), 7) | (2, 3) (3, 1) torch.int64 0
torch.full_like(x, 2.0) | (4, 96) (96, 1) torch.bfloat16 0
torch.zeros_like(x, dtype=torch.float32) | (4, 96) (96, 1) torch.float32 0
torch.arange(10) | (10,) (1,) torch.int64 0
torch.arange(0, 7, 2) | (4,) (1,) torch.int64 0
torch.arange(0, 1, 0.25) | (4,) (1,) torch.float32 0
torch.arange(5, dtype=torch.float32) | (5,) (1,) torch.float32 0
torch.tensor([1, 2, 3]) | (3,) (1,) torch.int64 0
torch.tensor([[1.0, 2.0]]) | (1, 2) (2, 1) torch.float32 0
torch.tensor(3) | () () torch.int64 0
torch.randint(0, 9, (4, 5)) | (4, 5) (5, 1) torch.int64 0
torch.empty_strided((4, 4), (1, 4)) | (4, 4) (1, 4) torch.float32 0
torch.as_strided(x, (4, 8), (16, 1), 2) | (4, 8) (16, 1) torch.bfloat16 2
x.new_empty(3, 5) | (3, 5) (5, 1) torch.bfloat16 0
x.new_zeros((3, 5), dtype=torch.int32) | (3, 5) (5, 1) torch.int32 0
x.new_full((2,), 1.0) | (2,) (1,) torch.bfloat16 0
torch.empty(2, 3, 4).movedim(-1, 0) | (4, 2, 3) (1, 12, 4) torch.float32 0
torch.einsum("ij,kj->ik", x, x) | (4, 4) (4, 1) torch.bfloat16 0
torch.topk(x, 3, dim=-1).indices | (4, 3) (3, 1) torch.int64 0
torch.topk(x, 3, dim=-1).values | (4, 3) (3, 1) torch.bfloat16 0
torch.gather(x, 1, torch.zeros(4, 2, dtype=torch.int64)) | (4, 2) (2, 1) torch.bfloat16 0
torch.sort(x, dim=-1)[1] | (4, 96) (96, 1) torch.int64 0
x.cumsum(0) | (4, 96) (96, 1) torch.bfloat16 0
torch.arange(6, dtype=torch.int32).cumsum(0) | (6,) (1,) torch.int64 0
i.cumsum(0, dtype=torch.int32) | (4, 96) (96, 1) torch.int32 0
x.square().mean(-1, keepdim=True) | (4, 1) (1, 1) torch.bfloat16 0
torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6) | (4, 1) (1, 1) torch.float32 0
1 - x | (4, 96) (96, 1) torch.bfloat16 0
2 ** i | (4, 96) (96, 1) torch.int32 0
-x | (4, 96) (96, 1) torch.bfloat16 0
~(x > 0) | (4, 96) (96, 1) torch.bool 0
x // 2 | (4, 96) (96, 1) torch.bfloat16 0
i // 2 | (4, 96) (96, 1) torch.int32 0
i % 3 | (4, 96) (96, 1) torch.int32 0
x.add_(1) | (4, 96) (96, 1) torch.bfloat16 0
x.mul_(2.0) | (4, 96) (96, 1) torch.bfloat16 0
x.masked_fill(x > 0, 0.0) | (4, 96) (96, 1) torch.bfloat16 0
x.index_select(0, torch.zeros(3, dtype=torch.int64)) | (3, 96) (96, 1) torch.bfloat16 0
x.unflatten(-1, (2, -1)) | (4, 2, 48) (96, 48, 1) torch.bfloat16 0
x.mT | (96, 4) (1, 96) torch.bfloat16 0
q.mT | (2, 8, 64, 16) (8192, 1024, 1, 64) torch.float16 0
x.flatten() | (384,) (1,) torch.bfloat16 0
x.t().flatten() | (384,) (1,) torch.bfloat16 0
x.view(-1) | (384,) (1,) torch.bfloat16 0
x.view(4, 1, 96).squeeze() | (4, 96) (96, 1) torch.bfloat16 0
torch.matmul(q, q.transpose(-1, -2)) | (2, 8, 16, 16) (2048, 256, 16, 1) torch.float16 0
torch.bmm(q[0], q[0].transpose(1, 2)) | (8, 16, 16) (256, 16, 1) torch.float16 0
torch.exp(x) | (4, 96) (96, 1) torch.bfloat16 0
torch.exp(i) | (4, 96) (96, 1) torch.float32 0
torch.abs(i) | (4, 96) (96, 1) torch.int32 0
torch.maximum(x, x.float()) | (4, 96) (96, 1) torch.float32 0
torch.randn(4, 6, dtype=torch.float16) | (4, 6) (6, 1) torch.float16 0
x.half() | (4, 96) (96, 1) torch.float16 0
x.long() | (4, 96) (96, 1) torch.int64 0
x.bool() | (4, 96) (96, 1) torch.bool 0
x.detach() | (4, 96) (96, 1) torch.bfloat16 0
x.expand(2, -1, -1) | (2, 4, 96) (0, 96, 1) torch.bfloat16 0
x[None, :, None] | (1, 4, 1, 96) (384, 96, 96, 1) torch.bfloat16 0
x[1] | (96,) (1,) torch.bfloat16 96
x[1, 2:4] | (2,) (1,) torch.bfloat16 98
torch.logsumexp(x, dim=-1) | (4,) (1,) torch.bfloat16 0
torch.clamp(x, min=0) | (4, 96) (96, 1) torch.bfloat16 0
torch.var(x, -1) | (4,) (1,) torch.bfloat16 0
torch.triu(torch.ones(4, 4, dtype=torch.bool), diagonal=1) | (4, 4) (4, 1) torch.bool 0
torch.nn.functional.log_softmax(x, dim=-1) | (4, 96) (96, 1) torch.bfloat16 0
torch.arange(8).view(2, 4).t() | (4, 2) (1, 4) torch.int64 0
x.to(x.dtype) | (4, 96) (96, 1) torch.bfloat16 0
torch.linspace(0, 1, 5) | (5,) (1,) torch.float32 0
torch.eye(3) | (3, 3) (3, 1) torch.float32 0
"""

PROGRAM = """
import json, sys
from tilewatch.kernels.watching import no_gpu
from tilewatch.kernels.watching.torch_stand_in import missing
no_gpu.install()
import torch
x = torch.randn(4, 96, dtype=torch.bfloat16)
y = torch.randn(96, dtype=torch.bfloat16)
w = torch.randn(32, 96, dtype=torch.bfloat16)
b = torch.randn(4, 1, dtype=torch.float32)
i = torch.ones(4, 96, dtype=torch.int32)
q = torch.randn(2, 8, 16, 64, dtype=torch.float16)
def describe(expression):
    try:
        with missing.running_host_code():
            found = eval(expression)
        return f"{tuple(found.shape)} {tuple(found.stride())} {found.dtype} {found.storage_offset()}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
print(json.dumps({each: describe(each) for each in json.loads(sys.argv[1])}))
"""
ROWS = [line.partition(" | ")[::2] for line in TABLE.strip().splitlines()]


def evaluate(*expressions: str) -> dict[str, str]:
    """Evaluates expressions in a process of its own, so that no other test meets the stand-in."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(expressions)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_shapes_strides_types_and_offsets_are_those_of_pytorch() -> None:
    assert evaluate(*(each for each, _ in ROWS)) == dict(ROWS)


@pytest.mark.parametrize("function", ["torch.fft.fft", "torch.cdist", "torch.linalg.qr", "Tensor.lu"])
def test_what_the_stand_in_cannot_do_says_so_while_host_code_runs(function: str) -> None:
    called = f"{function.replace('Tensor', 'x')}(x)"
    (sentence,) = evaluate(called).values()
    assert f"has no {function}; `pip install torch`" in sentence


def test_no_function_drops_a_name_that_the_stand_in_does_not_have() -> None:
    """channels_last changes strides: a function that dropped it would trace another tensor."""
    program = f"""{PROGRAM.partition("x = ")[0]}
from tilewatch.kernels.watching.torch_stand_in import module

made = {{name: getattr(torch, name) for name in module.CREATION}}
taken = []
for name, function in (made | module.FUNCTIONS).items():
    try:
        with missing.running_host_code():
            function(torch.ones(2, 2), memory_format=torch.channels_last)
        taken.append(name)
    except missing.Missing as error:
        assert "torch.channels_last" in str(error)
print(len(made | module.FUNCTIONS), taken)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    count, taken = done.stdout.split(maxsplit=1)
    assert int(count) > 200
    assert taken == "[]\n"


def test_import_time_gets_by_with_names_that_the_stand_in_does_not_have() -> None:
    program = """
from tilewatch.kernels.watching import no_gpu
no_gpu.install()
import torch
import torch.utils.checkpoint
from torch.distributed.tensor import DTensor
from torch.nn.modules.utils import _pair

class Layer(torch.nn.Linear):
    weight: torch.LongTensor | None = None

@torch.library.custom_op("a::b", mutates_args=())
def double(x: "torch.Tensor") -> torch.Tensor:
    return x + x

@torch.jit.script
@torch.compile(mode="max-autotune")
@torch.no_grad()
def triple(x):
    return x + x + x

print(triple(torch.ones(2, 3)).shape, isinstance(3, torch.LongTensor), torch.cuda.is_available())
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "(2, 3) False False\n"

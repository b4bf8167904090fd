import torch
from tilegym.ops.cutile.activation.gelu import gelu
from tilegym.ops.cutile.activation.relu import relu

from tilewatch import case, watch

F = torch.nn.functional


@watch(problems="16777216:bf16", names="n", baselines=("torch", "copy"))
def tg_gelu(p):
    x = p.randn(p.n)
    return case(run=lambda: gelu(x), reference=lambda: F.gelu(x.float()), torch=lambda: F.gelu(x))


@watch(problems="16777216:bf16", names="n", baselines=("torch", "copy"))
def tg_relu(p):
    x = p.randn(p.n)
    return case(run=lambda: relu(x), reference=lambda: x.float().relu(), torch=lambda: x.relu())

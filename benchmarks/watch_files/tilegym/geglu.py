import torch
from tilegym.ops.cutile.activation.geglu import geglu

from tilewatch import case, watch

F = torch.nn.functional


@watch(problems="4096x8192:bf16", names="rows x cols", baselines=("torch", "copy"))
def tg_geglu(p):
    x = p.randn(p.rows, 2 * p.cols)

    def compute(x):
        state, gate = x.chunk(2, -1)
        return state * F.gelu(gate)

    return case(run=lambda: geglu(x), reference=lambda: compute(x.float()), torch=lambda: compute(x))

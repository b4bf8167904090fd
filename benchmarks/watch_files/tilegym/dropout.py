from tilegym.ops.cutile.dropout import dropout

from tilewatch import case, watch


@watch(problems="16777216:bf16", names="n", baselines=("copy",))
def tg_dropout(p):
    x = p.randn(p.n)
    return case(run=lambda: dropout(x, seed=42, p=0.0), reference=lambda: x.float())

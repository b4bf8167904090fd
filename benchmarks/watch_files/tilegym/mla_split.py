import math

from tilegym.ops.cutile.mla_decoding_split_kv import mla_decoding_split_kv

from tilewatch import case, watch


def attend(q, qpe, kv, kpe, scale):
    score = (q @ kv.transpose(1, 2) + qpe @ kpe.transpose(1, 2)) * scale
    return score.float().softmax(-1).to(kv.dtype) @ kv


@watch(problems="4x32x8192:f16", names="batch x heads x seq", baselines=("torch", "copy"))
def tg_mla_decoding_split(p):
    q, qpe = p.randn(p.batch, p.heads, 512) * 0.3, p.randn(p.batch, p.heads, 64) * 0.3
    kv, kpe = p.randn(p.batch, p.seq, 512) * 0.3, p.randn(p.batch, p.seq, 64) * 0.3
    scale = 1 / math.sqrt(576)
    return case(
        run=lambda: mla_decoding_split_kv(q, qpe, kv, kpe, scale),
        reference=lambda: attend(q.float(), qpe.float(), kv.float(), kpe.float(), scale),
        torch=lambda: attend(q, qpe, kv, kpe, scale),
        moves=kv.nbytes + kpe.nbytes,
        tolerance=0.03,
    )

import torch
from turboquant_cutile import TurboQuantEngine

from tilewatch import case, watch


def make(p):
    return TurboQuantEngine(head_dim=128, total_bits=p.bits, device="cuda"), p.randn(p.length, 128)


def compress(p):
    """Returns compressed keys and values as the engine lays them out."""
    keys = {
        "k_mse": p.randn(p.length, 128),
        "qjl_signs": p.randint(0, 1, (p.length, 128), dtype=torch.int8) * 2 + 1,
        "residual_norms": p.rand(p.length),
    }
    return keys, {"indices": p.randint(0, 4, (p.length, 128), dtype=torch.uint8), "vec_norms": p.rand(p.length)}


@watch(problems="4096x{3,4}:f16", names="length x bits")
def tq_compress_keys(p):
    engine, k = make(p)
    return case(
        run=lambda: list(engine.launch_compress_keys(k).values()),
        reference=lambda: list(engine.compress_keys_pytorch(k).values()),
    )


@watch(problems="4096x{2,3}:f16", names="length x bits")
def tq_compress_values(p):
    engine, v = make(p)
    return case(
        run=lambda: list(engine.launch_compress_values(v).values()),
        reference=lambda: list(engine.compress_values_pytorch(v).values()),
    )


@watch(problems="4096x{2,3}:f16", names="length x bits")
def tq_decompress_values(p):
    engine, values = make(p)[0], compress(p)[1]
    return case(
        run=lambda: engine.launch_decompress_values(values),
        reference=lambda: engine.decompress_values_pytorch(values),
    )


@watch(problems="4096x3:f16", names="length x bits")
def tq_scores(p):
    (engine, q), keys = make(p), compress(p)[0]
    return case(
        run=lambda: engine.launch_attention_scores(q, keys), reference=lambda: engine.attention_scores_pytorch(q, keys)
    )


@watch(problems="4096x{2,3,4}:f16", names="length x bits", not_apart="it decompresses and casts with PyTorch")
def tq_attention(p):
    (engine, q), (keys, values) = make(p), compress(p)
    return case(
        run=lambda: engine.launch_fused_attention(q, keys, values),
        reference=lambda: engine.fused_attention_pytorch(q, keys, values),
    )

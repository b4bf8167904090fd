import attention
import torch

from tilewatch import case, watch

VERSIONS = ("cutile_attention_v1", "cutile_attention_v2", "cutile_flash_attention_v1", "cutile_flash_attention_v2")


def watch_version(version):
    def operator(p):
        q, k, v = (p.randn(p.batch, p.heads, p.length, p.width) for _ in range(3))
        return case(
            run=lambda: getattr(attention, version)(q, k, v),
            reference=lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v),
        )

    operator.__name__ = version
    return watch(problems="2x8x128x64:f16", names="batch x heads x length x width")(operator)


OPERATORS = []
for each in VERSIONS:
    OPERATORS.append(watch_version(each))

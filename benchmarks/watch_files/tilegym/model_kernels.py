"""The kernels of TileGym's models. TileGym's Definition files give their arguments and references."""

from tilewatch import watch_definitions

OPERATORS = watch_definitions(
    "src/tilegym/transformers/**/kernel_definitions/*.json",
    run="src/tilegym/transformers/**/kernel_solutions/*.json",
    problems={"N": 4096, "D": 4096, "T": 1024, "T_padded": 1027, "H": 32},
    inputs={"eps": 1e-6, "offset": 1.0, "seq_len": 1024},
)

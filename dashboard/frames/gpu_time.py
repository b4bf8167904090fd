"""Says what nights cost: GPU minutes, and money at the price that TILEWATCH_GPU_HOUR_PRICE sets for a GPU hour."""

import os

import pandas as pd

NIGHTS_A_MONTH = 30


def tabulate(found: pd.DataFrame) -> pd.DataFrame:
    """Returns a table of kernels (db/page_reads/gpu_health.py), with the cost of a series if the price is a number."""
    hours = found["gpu_s"] / 3600
    table = found[["repository", "kernel", "series"]].assign(
        **{
            "GPU minutes a night": (60 * hours / found["nights"]).round(1),
            "GPU seconds a series": (3600 * hours / found["runs"]).round(1),
        }
    )
    try:
        price = float(os.environ.get("TILEWATCH_GPU_HOUR_PRICE", ""))
    except ValueError:
        return table
    return table.assign(**{"cost of a series a month": (NIGHTS_A_MONTH * price * hours / found["runs"]).round(2)})

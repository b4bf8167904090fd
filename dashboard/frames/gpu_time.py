"""Computes the GPU minutes of nightly runs, and their price if TILEWATCH_GPU_HOUR_PRICE is set."""

import os

import pandas as pd

NIGHTS_A_MONTH = 30


def tabulate(found: pd.DataFrame) -> pd.DataFrame:
    """Returns a table of GPU time by kernel, with the cost per month if the price is known."""
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

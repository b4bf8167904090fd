"""Computes the cost of nights: GPU minutes, and money if TILEWATCH_GPU_HOUR_PRICE gives the price of a GPU hour."""

import os

import pandas as pd

NIGHTS_A_MONTH = 30


def tabulate(found: pd.DataFrame) -> pd.DataFrame:
    """Returns a table by kernel: GPU minutes a night, GPU seconds a series, cost a month if the price is a number."""
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

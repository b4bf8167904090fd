"""Makes the page of a table of tuned configs, which `tilewatch tuned export` wrote."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from tilewatch.configs import config_text, describe_certificate
from tilewatch.dashboard.site import blocks
from tilewatch.dashboard.site.site_content import SitePage, name_page, name_series_page
from tilewatch.dashboard.text import time_text
from tilewatch.text import change_text, count_text


def make_tuned_page(table: Mapping[str, Any]) -> SitePage:
    """Returns the page of the tuned configs of one kernel on one GPU model."""
    rows = [
        {
            "problem": row["problem"],
            "config": config_text(row["config"]),
            "time": time_text(row["time_us"]),
            "tied with it": count_text(len(row["ties"]), "config"),
            "with the nearest problem's config": (
                "" if row["carried_regret"] is None else change_text(row["carried_regret"])
            ),
            "certificate": describe_certificate(row["certificate"]) if "certificate" in row else "",
        }
        for row in table["rows"]
    ]
    about = (table["repository"], table["kernel"])
    pages = (name_series_page(*about, row["problem"], table["gpu_model"]) for row in table["rows"])
    return SitePage(
        file=name_page("tuned", *about, table["gpu_model"]),
        title=f"Tuned table of {table['kernel']} on {table['gpu']}",
        blocks=(
            blocks.text("The config to ship for each problem that was measured."),
            blocks.table(pd.DataFrame(rows), pages),
        ),
        provenance=(
            ("repository", table["repository"]),
            ("commit", table["commit"]),
            ("GPU", f"{table['gpu']} ({table['arch']})"),
            ("versions", ", ".join(f"{name} {version}" for name, version in table["toolchain"].items())),
        ),
    )

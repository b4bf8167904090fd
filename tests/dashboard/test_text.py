"""Words for people: where the page of a commit is."""

import pandas as pd
import pytest

from tilewatch.dashboard.panels.regression import COMMITS_AFTER, COMMITS_BEFORE, around
from tilewatch.dashboard.text import commit_address, timer_text

SHA = "9c0d1e2f" + "0" * 32


@pytest.mark.parametrize(
    ("repository", "address"),
    [
        ("https://github.com/NVIDIA/TileGym", f"https://github.com/NVIDIA/TileGym/commit/{SHA}"),
        ("https://github.example.org/a/b.git", f"https://github.example.org/a/b/commit/{SHA}"),
        ("https://gitlab.com/a/b.git", f"https://gitlab.com/a/b/-/commit/{SHA}"),
        ("https://example.org/kernels.git", None),
        ("tilewatch", None),
        ("javascript://github.com/%0aalert(1)", None),
    ],
)
def test_a_commit_has_a_page_only_at_a_forge_that_is_known(repository: str, address: str | None) -> None:
    assert commit_address(repository, SHA) == address


def test_a_simulated_run_names_no_timer() -> None:
    assert timer_text("cupti") == ", timed with cupti"
    assert timer_text("simulated") == ""


def test_a_sha_that_is_none_has_no_page() -> None:
    assert commit_address("https://github.com/a/b", "main") is None


def test_the_picture_of_a_step_has_the_commits_around_it_and_else_the_newest() -> None:
    points = pd.DataFrame({"sha": [str(i) for i in range(100)]})
    assert around(points, "60")["sha"].tolist() == [str(i) for i in range(60 - COMMITS_BEFORE, 60 + COMMITS_AFTER)]
    assert around(points, "3")["sha"].iloc[0] == "0"
    assert around(points, "gone")["sha"].tolist() == [str(i) for i in range(100 - COMMITS_BEFORE, 100)]

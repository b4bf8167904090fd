"""What Search finds, and where each leads."""

import pandas as pd

from tilewatch.dashboard.panels import search

SERIES = pd.DataFrame(
    [
        {"repository": "a", "kernel": "gemm", "problem": "64x64", "gpu_model": "h200", "gpu_name": "NVIDIA H200"},
        {"repository": "a", "kernel": "gemm", "problem": "32x32", "gpu_model": "h200", "gpu_name": "NVIDIA H200"},
        {"repository": "b", "kernel": "gemm", "problem": "64x64", "gpu_model": "h100", "gpu_name": "NVIDIA H100"},
    ]
)


def test_a_kernel_its_problems_and_the_gpus_are_found_once_each() -> None:
    found = search.list_series_places(SERIES[:2], several=False)
    assert {words: place.parameters for words, place in found.items()} == {
        "GPU NVIDIA H200": {"gpu": "h200"},
        "kernel gemm": {"kernel": "gemm"},
        "problem gemm 32x32": {"kernel": "gemm", "problem": "32x32"},
        "problem gemm 64x64": {"kernel": "gemm", "problem": "64x64"},
        "series gemm 32x32 on NVIDIA H200 (h200)": {"kernel": "gemm", "problem": "32x32", "gpu": "h200"},
        "series gemm 64x64 on NVIDIA H200 (h200)": {"kernel": "gemm", "problem": "64x64", "gpu": "h200"},
    }
    assert search.find(found, "gemm h200 64x64") == ["series gemm 64x64 on NVIDIA H200 (h200)"]


def test_where_there_are_several_repositories_words_and_addresses_name_theirs() -> None:
    found = search.list_series_places(SERIES, several=True)
    assert found["problem gemm 64x64 of b"].parameters == {"kernel": "gemm", "problem": "64x64", "repository": "b"}
    assert "problem gemm 64x64 of a" in found


def test_a_commit_leads_to_what_it_changed() -> None:
    commits = pd.DataFrame([{"repository": "a", "sha": "0123456789abcdef", "subject": "Use TMA"}])
    (words, place), *_ = search.list_commit_places(commits, several=False).items()
    assert (words, place.page, place.parameters) == (
        "commit 0123456789 Use TMA",
        "views/compare.py",
        {"b": "0123456789"},
    )


def test_every_typed_word_is_in_what_is_found_wherever_it_stands() -> None:
    places = ["kernel gemm_fp8", "problem gemm_fp8 64x64", "commit 0123456789 Use TMA"]
    assert search.find(places, "64X64 Gemm") == ["problem gemm_fp8 64x64"]
    assert search.find(places, "gemm_fp8") == places[:2]
    assert search.find(places, " ") == []

"""What pages open on."""

from tilewatch.dashboard.widgets.filters import main_first


def test_pages_open_on_the_fp8_gemm_that_is_held_against_deepgemm() -> None:
    assert main_first({"attention", "softmax", "gemm_fp8", "gemm_fp8_scaled"})[0] == "gemm_fp8_scaled"
    assert main_first({"attention", "gemm_fp8", "4096"}) == ["gemm_fp8", "4096", "attention"]
    assert main_first({"b", "a"}) == ["a", "b"], "the alphabet where there is no such GEMM"

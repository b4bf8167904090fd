"""The branch that a name stands for, with and without a toolchain."""

import pytest

from tilewatch.db.repository_names import branch_without_toolchain, name_of_branch, name_under_toolchain


@pytest.mark.parametrize("branch", [None, "faster", "x/underneath"])
@pytest.mark.parametrize("toolchain", [None, "next-13.5"])
def test_a_name_stands_for_a_branch_whatever_compiled_it(branch: str | None, toolchain: str | None) -> None:
    apart = branch if toolchain is None else name_under_toolchain(branch, toolchain)
    name = "kernels" if apart is None else name_of_branch("kernels", apart)
    assert branch_without_toolchain(name) == branch

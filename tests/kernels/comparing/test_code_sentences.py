"""Pairing the launches of two operators."""

from tilewatch.kernels.code_diff.code_diff import CodeText
from tilewatch.kernels.comparing.code_sentences import pair_launches

LAUNCHES = ("load", "square", "sum", "scale", "store")


def make_texts(suffix: str, kept: str) -> dict[str, CodeText]:
    """Makes launches whose keys differ between suffixes, but for one."""
    return {name if name == kept else f"{name}-{suffix}": CodeText(f"{name}-{suffix}", None) for name in LAUNCHES}


def test_launches_whose_code_changed_are_paired_in_their_order() -> None:
    """A set would give them in another order in each process, and pair the loads of one with the stores of another."""
    pairs = pair_launches(make_texts("old", "sum"), make_texts("new", "sum"))
    wanted = [("sum-old", "sum-new"), *((f"{each}-old", f"{each}-new") for each in LAUNCHES if each != "sum")]
    assert [(base.sass, head.sass) for base, head in pairs or ()] == wanted


def test_another_number_of_launches_is_not_paired() -> None:
    head = make_texts("new", "sum")
    del head["load-new"]
    assert pair_launches(make_texts("old", "sum"), head) is None

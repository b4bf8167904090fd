"""Traces what the host code of a foreign repository launches, without PyTorch and without a GPU."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.watching.fixtures.trace import GIVEN, trace
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.children import sandbox
from tilewatch.kernels.library_errors import NoConfigs
from tilewatch.kernels.tile_table import stored_space

REPOSITORY = Path(__file__).parent / "fixtures" / "foreign_repository"

COUNTED = """
import sys
from pathlib import Path
from tiny_ops import host
from tilewatch import case, watch

def note(frame, event, _):
    if event == "call" and frame.f_code.co_name in ("hash_sources", "scale_and_sum"):
        with Path(__file__).with_suffix(".calls").open("a") as file:
            print(frame.f_code.co_name, file=file)

sys.setprofile(note)

@watch(problems="8x64", names="rows x cols", configs={"tile": [16, 32, 64, 128]})
def counted(p):
    x = p.randn(p.rows, p.cols)
    return case(run=lambda tile=128: host.scale_and_sum(x, tile), reference=lambda: (x * 1.5, x.sum(-1)))
"""

Found = dict[str, Any]


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> list[Found]:
    """The repository, one with another helper, one with another comment, the repository again, and ct.launch's code."""
    helper = "src/tiny_ops/arithmetic.py"
    base = tmp_path_factory.mktemp("checkouts")
    changes = {"helper": ("0.5", "0.25"), "comment": ("half of it", "a half")}
    for name, (old, new) in changes.items():
        shutil.copytree(REPOSITORY, base / name)
        (base / name / helper).write_text((REPOSITORY / helper).read_text().replace(old, new))
    shutil.copytree(REPOSITORY, base / "again")
    folders = (REPOSITORY, base / "helper", base / "comment", base / "again")
    return trace("sm_90", *(each / "watch" for each in folders))


@pytest.fixture
def found(traced: list[Found]) -> Found:
    return traced[0]


def launches(operator: Found, number: int = 0) -> list[Found]:
    every: list[list[Found]] = list(operator["launches"].values())
    return every[number]


@pytest.mark.parametrize("operator", GIVEN)
def test_the_code_is_what_ct_launch_compiles_for_these_arguments(traced: list[Found], operator: str) -> None:
    ours = [each["bytecode"] for each in launches(traced[0][operator])]
    assert ours == traced[-1][operator]


def test_the_configs_are_those_of_the_host_codes_own_search(found: Found) -> None:
    assert found["tuned 8x64:bf16"]["configs"] == [
        {"tile": tile, "occupancy": occupancy} for tile in (64, 128) for occupancy in (1, 4)
    ]
    assert found["tuned 8x64:bf16"]["axes"] == [["tile", [64, 128]], ["occupancy", [1, 4]]]


def test_a_config_is_what_the_host_code_launches_though_it_remembers_the_best_one(found: Found) -> None:
    """The search of the second config would not run if the host code still knew what it chose for the first."""
    hints = [launches(found["tuned 8x64:f32"], number)[0]["hints"]["occupancy"] for number in range(4)]
    assert hints == [1, 4, 1, 4]
    assert len({launches(found["tuned 8x64:f32"], number)[0]["bytecode"] for number in range(4)}) == 4


def test_two_searches_are_varied_one_at_a_time(found: Found) -> None:
    configs = found["tuned_twice 8x64"]["configs"]
    assert len(configs) == 7
    assert configs[0] == {"1.tile": 64, "1.occupancy": 1, "2.tile": 64, "2.occupancy": 1}
    assert configs[-1] == {"1.tile": 64, "1.occupancy": 1, "2.tile": 128, "2.occupancy": 4}
    first, second = launches(found["tuned_twice 8x64"], 6)
    assert (first["hints"]["occupancy"], second["hints"]["occupancy"]) == (1, 4)


def test_of_several_kernels_that_are_searched_the_one_whose_config_is_varied_is_the_fastest(found: Found) -> None:
    """The host code remembers the fastest in a class, and so would launch it for every config."""
    launched = [launches(found["fastest 8x64"], number)[0]["kernel"] for number in range(3)]
    assert found["fastest 8x64"]["configs"][1:] == [
        {"1.value": 128, "2.value": 64},
        {"1.value": 64, "2.value": 128},
    ]
    assert launched == ["scale_rows", "scale_rows", "sum_rows"]


def test_every_launch_is_part_of_the_operator_with_its_grid(found: Found) -> None:
    assert [(each["kernel"], each["grid"]) for each in launches(found["transposed 8x64:f16"])] == [
        ("scale_rows", [8]),
        ("sum_rows", [8]),
    ]


def test_host_code_without_a_search_ships_its_only_config(found: Found) -> None:
    assert found["transposed 8x64:f16"]["configs"] == [{}]
    assert found["transposed 8x64:f16"]["ships"] == {}
    assert found["tuned 8x64:bf16"]["ships"] is None


def test_what_ships_is_named_among_configs_of_the_watch_file(found: Found) -> None:
    assert found["chosen 8x256"]["ships"] == {"tile": 64}


def test_a_plan_runs_host_code_once_per_config_and_hashes_the_sources_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sandbox.SWITCH, "off")  # it could not write its calls
    shutil.copytree(REPOSITORY, tmp_path / "repository")
    watch_file = tmp_path / "repository" / "watch" / "operators.py"
    watch_file.write_text(COUNTED)
    (plan,) = catalog.read(watch_file.parent, arch="sm_90")
    assert (len(plan.trials), plan.ships) == (4, {"tile": 128})
    calls = watch_file.with_suffix(".calls").read_text().split()
    assert calls.count("scale_and_sum") == len(plan.trials) + 1, "once by itself"
    assert calls.count("hash_sources") == 1


def test_configs_may_be_hints_alone(found: Found) -> None:
    assert [each["hints"]["occupancy"] for each in launches(found["unaligned 8x63:bf16"], 0)] == [8, 8]
    second = launches(found["unaligned 8x63:bf16"], 1)
    assert [(each["hints"]["occupancy"], each["hints"]["num_ctas"]) for each in second] == [(1, 1), (1, 1)]


def test_axes_may_be_bools_and_types(found: Found) -> None:
    assert found["listed 8x128"]["configs"] == [
        {"wide": wide, "out_dtype": dtype} for wide in (False, True) for dtype in ("float32", "float16")
    ]
    assert len({launches(found["listed 8x128"], number)[0]["bytecode"] for number in range(4)}) == 4


def test_configs_may_follow_the_architecture(found: Found) -> None:
    assert found["chosen 8x64"]["configs"] == [{"tile": 64}, {"tile": 128}]
    (other, _) = trace("sm_100", REPOSITORY / "watch")
    assert other["chosen 8x64"]["configs"] == [{"tile": 64}]


def test_an_operator_without_a_config_for_an_architecture_is_left_out(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY, tmp_path / "repository")
    source = (
        "def tripled(p):\n    return case(run=lambda: host.scale_and_sum(p.randn(8, 64)), reference=lambda: None)\n"
    )
    given = 'configs=lambda problem, arch: [{"occupancy": 2}] if arch == "sm_100" else []'
    (tmp_path / "repository" / "watch" / "operators.py").write_text(
        "from tilewatch import case, watch\nfrom tiny_ops import host\n\n"
        f'@watch(problems="8", names="n", {given})\n{source}'
    )
    watch = tmp_path / "repository" / "watch"
    assert len(catalog.read(watch, arch="sm_100", kernel="tripled")) == 1
    assert "tripled" not in {plan.kernel for plan in catalog.read(watch, arch="sm_90")}
    with pytest.raises(NoConfigs, match="kernel tripled has no config for sm_90"):
        catalog.read(watch, arch="sm_90", kernel="tripled")


def test_bytes_are_every_array_once_unless_the_case_says_more(found: Found) -> None:
    assert found["tuned 8x64:bf16"]["bytes"] == 2 * 8 * 64 * 2
    assert found["transposed 8x64:f16"]["bytes"] == 1234
    assert found["unaligned 8x63:bf16"]["bytes"] == 8 * 63 * 2 + 8 * 4


def test_a_changed_helper_of_another_module_changes_the_code(traced: list[Found]) -> None:
    before, after = traced[0]["tuned 8x64:bf16"], traced[1]["tuned 8x64:bf16"]
    assert before["source_sha256"] != after["source_sha256"]
    assert not set(before["code_keys"]) & set(after["code_keys"])
    assert launches(before)[0]["bytecode"] != launches(after)[0]["bytecode"]
    untouched = "listed 8x128"  # its kernel does not call the helper
    assert launches(traced[0][untouched]) == launches(traced[1][untouched])


def test_a_comment_changes_nothing(traced: list[Found]) -> None:
    assert traced[0] == traced[2]


def test_checkouts_of_one_repository_keep_their_modules_apart(traced: list[Found]) -> None:
    assert json.dumps(traced[0]) == json.dumps(traced[3])


def test_a_plan_has_the_owner_s_measure_of_a_problem_and_stores_it_with_the_sweep() -> None:
    plan = catalog.read(REPOSITORY / "watch", arch="sm_90", kernel="transposed")[0]
    assert plan.work == ("rows", 8)
    assert stored_space(plan, "h200")["work"] == ["rows", 8]

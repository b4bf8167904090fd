"""Which configs outside the short list a night tries."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.worker.fixtures import tiny_repository
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.catalog.share import (
    LOOK_NIGHTS,
    MOST_QUIET,
    SHORT_LISTS_ALONE,
    WIDE,
    Shares,
    Tried,
    choose_share,
    make_key,
)
from tilewatch.kernels.contract import Config
from tilewatch.kernels.library_errors import LibraryError

SOURCE = tiny_repository.SOURCE.replace("FACTOR", "2.0")
FACTS = {"arch": "sm_90", "compiler": "c", "gpus": ["H100"], "source": "s", "date": "d"}
SHORT_LIST = FACTS | {"kernels": ["double"], "axes": ["width"], "configs": [[64], [96]]}


REPOSITORY = Path(__file__).parents[1] / "watching" / "fixtures" / "foreign_repository"


def make_rest(count: int) -> list[Config]:
    return [{"tile": number} for number in range(count)]


def tried(
    configs: Sequence[Config],
    kept: Sequence[Config] = (),
    near: Sequence[Config] = (),
    source: str = "s",
    *,
    has_changed: bool = True,
) -> Tried:
    keys, of_near = ([make_key(config) for config in each] for each in (configs, near))
    return Tried(keys, of_near, kept, source, has_changed)


@pytest.mark.parametrize("size", [5, 864, 18_432])
def test_a_look_tries_the_whole_space_in_three_nights(size: int) -> None:
    rest, seen, nights = make_rest(size), list[Config](), 0
    while len(seen) < size:
        nights += 1
        seen += choose_share(rest, tried(seen), "k", f"day {nights}", "s")
    assert nights == LOOK_NIGHTS == 3
    assert len(set(map(make_key, seen))) == size, "none was tried twice"


def test_nights_try_little_while_nothing_has_changed() -> None:
    """Or the first nights of an installation would take longer than its users pay for."""
    for size, drawn in ((5000, MOST_QUIET), (100, 4)):
        rest = make_rest(size)
        for before in (None, tried([], has_changed=False), tried(rest[:2], has_changed=False)):
            assert len(choose_share(rest, before, "k", "day", "s")) == drawn
    changed = tried([], source="other", has_changed=False)
    assert len(choose_share(make_rest(5000), changed, "k", "day", "s")) == 1667, "a change begins a look"


def test_after_a_look_only_configs_near_the_winner_are_tried_again() -> None:
    rest = make_rest(1000)
    near = rest[500:550] + rest[:50]
    assert choose_share(rest, tried(rest, near=near), "k", "day", "s") == rest[500:504], "1/28, the oldest first"
    assert choose_share(rest, tried(rest[1:], near=near), "k", "day", "s") == [rest[0]], "first the one never tried"
    assert choose_share(rest, tried(rest), "k", "day", "s") == []


def test_another_source_begins_a_look_in_the_same_night() -> None:
    rest = make_rest(1000)
    chosen = choose_share(rest, tried(rest[100:], near=rest[500:], source="other"), "k", "day", "s")
    assert len(chosen) == len({make_key(each) for each in chosen}) == 334
    assert {make_key(each) for each in rest[:100]} == {make_key(each) for each in chosen[:100]}


def test_the_draw_is_random_by_kernel_and_day_and_the_same_for_all_problems() -> None:
    rest = make_rest(1000)
    look = tried([])
    draws = [choose_share(rest, look, *names, "s") for names in (("k", "day"), ("k", "other day"), ("other", "day"))]
    assert len({str(draw) for draw in draws}) == 3
    assert draws[0] == choose_share(rest, look, "k", "day", "s")
    often = [sum(config["tile"] < 500 for config in choose_share(rest, look, "k", f"{day}", "s")) for day in range(50)]
    assert 0.45 < sum(often) / (50 * len(draws[0])) < 0.55, "a half of the space gets a half of the draws"


def test_what_won_last_is_tried_again_while_it_is_in_the_space() -> None:
    rest = make_rest(100)
    chosen = choose_share(rest, tried(rest, kept=(rest[70], {"tile": 1000}), near=rest[:28]), "k", "day", "s")
    assert chosen == [rest[70], rest[0]]


def read_trials(folder: Path, shares: Shares = SHORT_LISTS_ALONE) -> list[list[int]]:
    (folder / "double.py").write_text(SOURCE)
    (folder / "short_lists.json").write_text(json.dumps([SHORT_LIST]))
    plans = catalog.read_library(folder, arch="sm_90", shares=shares).plans
    assert all(plan.rest == 2 for plan in plans)
    assert all([trial.config["width"] for trial in plan.listed] == [64, 96] for plan in plans)
    return [[trial.config["width"] for trial in plan.trials] for plan in plans]


def test_a_plan_has_the_short_list_and_what_was_asked_for_besides(tmp_path: Path) -> None:
    assert read_trials(tmp_path) == [[64, 96], [64, 96]]
    assert read_trials(tmp_path, WIDE) == [[64, 96, 128, 256], [64, 96, 128, 256]]
    series = {("double", "1024"): tried([{"width": 256}], kept=({"width": 256},)), ("double", "2048"): tried([])}
    first, second = read_trials(tmp_path, Shares("day", series))
    assert first == [64, 96, 256, 128]
    assert second in ([64, 96, 128], [64, 96, 256])
    (of_first_night, _) = read_trials(tmp_path, Shares("day", {}))
    assert len(of_first_night) == 3


def test_a_watched_operator_may_have_a_short_list_too(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY, tmp_path / "repository")
    watch = tmp_path / "repository" / "watch"
    found = {plan.kernel: plan for plan in catalog.read(watch, arch="sm_90") if len(plan.trials) > 2}
    operator, plan = next(iter(found.items()))
    axes = [name for name, _ in plan.axes]
    configs = [[trial.config.get(axis) for axis in axes] for trial in plan.trials[1:]]
    lists = [SHORT_LIST | {"kernels": [operator], "axes": axes, "configs": configs}]
    (watch / "short_lists.json").write_text(json.dumps(lists))
    for shares, tried in ((SHORT_LISTS_ALONE, plan.trials[1:]), (WIDE, (*plan.trials[1:], plan.trials[0]))):
        (read,) = catalog.read(watch, arch="sm_90", kernel=operator, problem=plan.problem, shares=shares)
        assert [(each.config, each.code_key) for each in read.trials] == [(t.config, t.code_key) for t in tried]
        assert (read.rest, read.drawn, read.ships) == (1, int(shares.wide), plan.ships)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"configs": [[1]]}, "the short list for sm_90: LibraryError: the short list has none of 4 configs"),
        ({"configs": 1}, "short_lists.json is wrong: TypeError: 'int' object is not iterable"),
        ({"kernels": None}, "short_lists.json is wrong: TypeError"),
    ],
)
def test_a_mistake_in_a_short_list_is_a_sentence(tmp_path: Path, wrong: dict[str, object], sentence: str) -> None:
    (tmp_path / "double.py").write_text(SOURCE)
    (tmp_path / "short_lists.json").write_text(json.dumps([SHORT_LIST | wrong]))
    with pytest.raises(LibraryError) as raised:
        catalog.read_library(tmp_path, arch="sm_90")
    assert sentence in str(raised.value)

"""Which builds a suspicion has, when a series is probed, and what the code of a build is expected to do."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from tilewatch.worker.detection.candidate import Candidate, NightEvidence, probability_of
from tilewatch.worker.detection.policy import Policy
from tilewatch.worker.detection.reading import Reading
from tilewatch.worker.detection.replay_evidence import Estimate
from tilewatch.worker.detection.scope_state import NEVER, NodeKernel, ScopeState, _by_build
from tilewatch.worker.detection.verdict import ConfirmedChange

POLICY = Policy()
MOST_BUILDS = 4096


def reading(build: int, code: str | None = None, env: str = "e", time_us: float = 100.0) -> Reading:
    launches = tuple((time_us * wobble,) for wobble in (0.999, 1.0, 1.001))
    return Reading(build, "m", env, launches, ((90.0,),) * 3, code)


def state_of(nights: Mapping[int, Reading | None]) -> ScopeState:
    """The state of one series after these nights, by build; None: it was not measured."""
    state = ScopeState({0: NodeKernel(0, 0)}, POLICY)
    for build, each in nights.items():
        state.add_night(build, {} if each is None else {0: each})
    return state


def nights_of(codes: Sequence[str | None]) -> dict[int, Reading | None]:
    return {build: reading(build, code) for build, code in enumerate(codes)}


@pytest.mark.parametrize(
    ("codes", "level_since", "ages"),
    [
        ([None] * 10, NEVER, 10),
        ([None] * 30, NEVER, 24),
        ([None] * 10, 5, 4),
        ([None] * 10, 9, 0),
        (["a"] * 10, NEVER, 10),
        (["a"] * 30, NEVER, 0),
        (["a"] * 29 + ["b"], NEVER, 1),
        (["a"] * 27 + ["b"] * 3, NEVER, 3),
        (["a"] * 26 + [None] * 3 + ["b"], NEVER, 4),
        (["a"] * 26 + [None] * 3 + ["a"], NEVER, 0),
        (["a"] * 26 + [None] * 3 + ["b"], 27, 2),
        (["a"] * 27 + [None] * 3, NEVER, 3),
    ],
)
def test_a_series_may_have_changed_since_its_code_is_not_known_to_be_the_same(
    codes: list[str | None], level_since: int, ages: int
) -> None:
    """Nights whose code is not known, up to one with other code; none before the present level or of 24 nights ago."""
    state = state_of(nights_of(codes))
    state.series[0].level_since = level_since
    assert state.ages_in_question(0) == ages


@pytest.mark.parametrize(
    ("builds", "ages", "level_since", "base"),
    [
        ((10, 20, 30, 40), 2, NEVER, 20),
        ((10, 20, 30, 40), 4, NEVER, 9),
        ((10, 20, 30, 40), 2, 25, 25),
        ((10, 20, 20, 30), 2, NEVER, 10),
        ((20, 20, 20, 30), 2, NEVER, 19),
        ((10, 20 + MOST_BUILDS), 1, NEVER, 20),
        ((10, 10 + MOST_BUILDS), 1, NEVER, 10),
    ],
)
def test_a_suspicion_has_the_builds_since_the_night_before(
    builds: tuple[int, ...], ages: int, level_since: int, base: int
) -> None:
    """A build of two nights belongs to both."""
    state = ScopeState({0: NodeKernel(0, 0)}, POLICY)
    for build in builds:
        state.add_night(build, {0: reading(build)})
    state.series[0].level_since = level_since
    candidate = state.open_candidate(0, ages, -7.0)
    assert (candidate.base, candidate.head, candidate.prior) == (base, builds[-1], -7.0)
    assert len(candidate.nightly.by_code) == candidate.head - base


@pytest.mark.parametrize(
    ("times_us", "ages", "size"),
    [
        ((100.0,) * 9, 3, None),
        ((100.0,) * 7 + (110.0,) * 2, 3, np.log(1.1)),
        ((100.0,) * 7 + (90.0,) * 2, 3, np.log(0.9)),
        ((100.0,) * 7 + (110.0, 121.0), 1, np.log(1.21)),
    ],
)
def test_a_suspicion_has_the_size_that_nights_show_at_the_likeliest_of_its_builds(
    times_us: Sequence[float], ages: int, size: float | None
) -> None:
    """Nights without a move show no size."""
    state = state_of({build: reading(build, time_us=time_us) for build, time_us in enumerate(times_us)})
    assert state.open_candidate(0, ages, 0.0).size == (None if size is None else pytest.approx(size, abs=0.002))


def test_builds_between_two_nights_share_the_evidence_of_the_later_night() -> None:
    nightly = NightEvidence(np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0]), np.array([0.0, 0.5, -np.inf]))
    spread = _by_build(nightly, (10, 14, 20), 8, 20)
    assert spread.weighed.tolist() == [1.0] * 2 + [2.0] * 4 + [3.0] * 6
    assert spread.precisions.tolist() == [4.0] * 2 + [5.0] * 4 + [6.0] * 6
    assert np.exp(spread.by_code) == pytest.approx([1 / 2] * 2 + [np.exp(0.5) / 4] * 4 + [0.0] * 6)


@pytest.mark.parametrize(
    ("measured", "code", "fresh_since"),
    [
        (range(10), None, 7),
        (range(10), "a", 7),
        ((0, 1, 2, 3, 4, 5, 9), None, 4),
        ((0, 1, 2, 3, 4, 5, 9), "a", 6),
        ((9,), None, 0),
        ((9,), "a", 0),
        ((0, 9), "a", 1),
    ],
)
def test_a_change_is_fresh_in_the_newest_nights_of_a_series_or_with_known_code_since_its_last_one(
    measured: Sequence[int], code: str | None, fresh_since: int
) -> None:
    """The three newest nights are fresh in any case. The build of a night is named by its number plus 100."""
    nights = {100 + night: reading(100 + night, code) if night in measured else None for night in range(10)}
    if code is not None:
        nights[109] = reading(109, "b")
    assert state_of(nights).open_candidate(0, 3, 0.0).fresh_since == 100 + fresh_since


@pytest.mark.parametrize(("codes", "is_new"), [(("a", "a"), False), (("a", None), False), (("a", "b"), True)])
def test_only_a_suspicion_of_new_code_tonight_has_what_is_expected_of_code(
    codes: tuple[str, str | None], is_new: bool
) -> None:
    state = state_of(nights_of([codes[0]] * 9 + [codes[1]]))
    share = state.open_candidate(0, 2, 0.0).code_share
    assert share == (pytest.approx(probability_of(POLICY.reasoned_log_odds)) if is_new else None)
    known = np.array([0.0, -np.inf, np.log(state.code_share(9) / POLICY.changes_a_point)])
    assert state.evidence is not None
    assert state.evidence.by_code[0] == pytest.approx(known[{None: 0, "a": 1, "b": 2}[codes[1]]])


def candidate_at(head: int, series: int = 0) -> Candidate:
    return Candidate(series, head - 1, head, None, NightEvidence(*np.zeros((2, 1))), 1e-6, 0.0)


def test_new_code_is_expected_to_do_what_it_did_to_other_series() -> None:
    """The guess of the policy counts for two series."""
    state, guess = state_of({}), probability_of(POLICY.reasoned_log_odds)
    assert state.code_share(7) == pytest.approx(guess)
    for series, probability in ((1, 1.0), (2, 1.0), (2, 0.25)):
        state.note_code_answer(candidate_at(7, series), probability)
    assert state.code_share(7) == pytest.approx((2 * guess + 1.25) / 4)
    assert state.code_share(8) == pytest.approx(guess)


@pytest.mark.parametrize(("between", "is_probed"), [(MOST_BUILDS, True), (MOST_BUILDS + 1, False)])
def test_new_code_is_probed_between_the_nights_of_both_codes_unless_they_are_far_apart(
    between: int, is_probed: bool
) -> None:
    state = state_of({0: reading(0, "a"), 1: reading(1, "a"), 1 + between: reading(1 + between, "b")})
    probes = state.code_probes()
    assert [(probe.base, probe.head) for probe in probes] == ([(1, 1 + between)] if is_probed else [])
    assert all(probe.code_share == pytest.approx(probability_of(POLICY.reasoned_log_odds)) for probe in probes)
    assert all(probe.prior == pytest.approx(POLICY.reasoned_log_odds) for probe in probes)


@pytest.mark.parametrize(("level_since", "bases"), [(NEVER, [4]), (5, [5]), (8, [8]), (9, [])])
def test_new_code_is_probed_after_the_start_of_the_present_level(level_since: int, bases: list[int]) -> None:
    nights = {build: reading(build, "a") for build in range(5)} | dict.fromkeys(range(5, 9))
    state = state_of(nights | {9: reading(9, "b")})
    state.series[0].level_since = level_since
    assert [probe.base for probe in state.code_probes()] == bases


def test_quiet_series_with_new_code_are_probed_first() -> None:
    state = ScopeState({series: NodeKernel(0, series) for series in range(4)}, POLICY)
    for build in range(8):
        night = {series: reading(build, "b" if build == 7 else "a") for series in range(4)}
        for series, wobble in ((0, 0.02), (1, 0.001), (2, 0.01)):
            launches = ((100.0,), (100.0 * (1 + wobble),))
            night[series] = replace(night[series], kernel_us=launches)
        night[3] = replace(night[3], code="a")
        state.add_night(build, night)
    assert [probe.series for probe in state.code_probes()] == [1, 2, 0]


def environment_nights(last_old: int, first_new: int, count: int, code: str | None = None) -> dict[int, Reading | None]:
    """Nights on one toolchain up to a build, none up to another one, and so many on another toolchain."""
    nights: dict[int, Reading | None] = {build: reading(build, code) for build in range(last_old + 1)}
    nights |= dict.fromkeys(range(last_old + 1, first_new))
    return nights | {build: reading(build, code, "e2") for build in range(first_new, first_new + count)}


@pytest.mark.parametrize("nights", range(1, 8))
def test_a_new_toolchain_is_probed_after_as_many_nights_as_a_history_needs(nights: int) -> None:
    """Builds 10 to 12 were not measured, so that they may have changed the series too."""
    due = list(state_of(environment_nights(9, 13, nights)).due_probes())
    assert len(due) == (nights > POLICY.min_history)
    for series, probe in due:
        assert series.column == 0
        assert probe is not None
        assert (probe.base, probe.head) == (9, 12 + nights)
        assert probe.prior == pytest.approx(np.log(POLICY.changes_a_point))


def test_a_new_toolchain_is_probed_only_for_builds_that_may_have_changed_the_series() -> None:
    state = state_of(environment_nights(9, 13, 6))
    for level_since, base in ((12, 12), (17, 17), (18, None)):
        state.series[0].level_since = level_since
        ((_, probe),) = state.due_probes()
        assert (None if probe is None else probe.base) == base
    state.add_night(19, {})
    assert list(state.due_probes()) == [], "it was not measured tonight"
    known = state_of(environment_nights(9, 13, 6, code="a"))
    assert list(known.due_probes()) == [], "its code is known to be the same"


def test_a_series_that_comes_back_on_a_new_toolchain_after_all_kept_nights_is_not_probed() -> None:
    """No night says at which build it was measured last."""
    kept = POLICY.before_nights + POLICY.after_nights
    for away, is_probed in ((kept - 7, True), (kept, False)):
        state = state_of(environment_nights(3, 4 + away, 6))
        assert (state.series[0].probe_from is not None) == is_probed
        assert len(list(state.due_probes())) == is_probed


def test_a_second_night_of_a_build_holds_no_change_of_its_own() -> None:
    state = state_of({build: reading(build) for build in range(12)})
    assert state.evidence is not None
    assert np.isfinite(state.evidence.log_odds[:3, 0]).tolist() == [True, True, True]
    state.add_night(11, {0: reading(11)})
    assert np.isfinite(state.evidence.log_odds[:3, 0]).tolist() == [False, True, True]


def test_other_shapes_of_a_changed_kernel_on_its_node_are_probed() -> None:
    places = {0: NodeKernel(0, 0), 1: NodeKernel(0, 0), 2: NodeKernel(1, 0), 3: NodeKernel(0, 1)}
    places |= {4: NodeKernel(0, 0), 5: NodeKernel(0, 0), 6: NodeKernel(0, 0), 7: NodeKernel(0, 0)}
    state = ScopeState(places, POLICY)
    for build in range(8):
        state.add_night(
            build, {series: reading(build, "same" if series == 5 else None) for series in places if series != 4}
        )
    change = ConfirmedChange(0, 7, 0.05, 0.001)
    state.series[0].level_since = 7
    state.series[6].level_since, state.series[7].level_since = 7, 6
    assert [(probe.series, probe.base, probe.head) for probe in state.sibling_probes(change)] == [(1, 6, 7), (7, 6, 7)]


@pytest.mark.parametrize(
    ("here", "probed"),
    [
        (["a", None, "b"], (0, 2, [1])),
        (["a", None, None, "b"], (0, 3, [1])),
        (["a", None, "a"], None),
        ([None, None, "b"], None),
        (["a", None, "b", "b"], None),
        (["a", *[None] * 70, "b"], None),
    ],
)
def test_code_that_another_node_measured_first_is_probed_if_each_node_is(
    here: list[str | None], probed: tuple[int, int, list[int]] | None
) -> None:
    """Node 0 measured build 1 with new code, and node 1 did not. The change can only be at build 1, while its night
    is remembered."""
    for ask_each_node in (0, 1):
        policy = replace(POLICY, ask_each_node=ask_each_node)
        state = ScopeState({0: NodeKernel(0, 0), 1: NodeKernel(1, 0)}, policy)
        for build, code in enumerate(here):
            known = "b" if build and "b" in here else "a"
            readings = {
                0: reading(build, known),
                1: reading(build, code) if code else Reading(build, "n", "", (), (), known),
            }
            state.add_night(build, readings)
        probes = [
            (each.base, each.head, each.builds[np.isfinite(each.nightly.by_code)].tolist())
            for each in state.code_probes()
            if each.series == 1
        ]
        assert probes == ([probed] if probed is not None and ask_each_node else [])


def test_new_code_is_replayed_against_the_last_code_of_its_own_node_if_each_node_is_asked() -> None:
    """Node 0 measured build 1 with code that node 1 never had. There is no replay of it for node 1."""
    for ask_each_node, age in ((0, 1), (1, 2)):
        state = ScopeState(
            {0: NodeKernel(0, 0), 1: NodeKernel(1, 0)}, replace(POLICY, ask_each_node=ask_each_node, after_nights=5)
        )
        for build, code in enumerate("abc"):
            other = Reading(build, "n", "", (), (), code)
            state.add_night(build, {0: reading(build, code), 1: other if code == "b" else reading(build, code)})
        assert [(each.base, each.head) for each in state.code_probes() if each.series == 1] == [(2 - age, 2)]
        assert state.ages_in_question(1) == age


def test_an_expected_change_ends_the_level_and_what_replays_said_of_it() -> None:
    state = state_of({build: reading(build) for build in range(12)})
    candidate = replace(candidate_at(11), replays=state.series[0].replays)
    candidate.replays.differences[10, 11] = [0.05, 0.05, 0.05]
    state.remember(candidate)
    assert (state._precisions[:, 0] > 0.0).tolist() == [False] * 11 + [True]
    assert state._weighed[-1, 0] / state._precisions[-1, 0] == pytest.approx(0.05)
    state.start_level(0, 12)
    assert not state._precisions.any()
    assert not state._weighed.any()
    assert (state.series[0].level_since, state.series[0].history_since) == (12, 12)
    assert state.series[0].replays.differences == {}


def test_a_confirmed_change_starts_a_level_to_which_earlier_nights_are_shifted() -> None:
    state = state_of({build: reading(build) for build in range(12)})
    before, candidate = state.nights.times.copy(), candidate_at(11)
    assert state.confirm(candidate) is None, "no replay tested the build"
    assert state.series[0].confirmed is None
    candidate.replays._estimates[10, 11] = Estimate(0.05, 0.001, 8)
    change = state.confirm(candidate)
    assert change is not None
    assert change.size == pytest.approx(np.expm1(0.05))
    assert replace(change, size=0.05) == ConfirmedChange(0, 11, 0.05, 0.001, None)
    assert state.series[0].confirmed == change
    assert (state.series[0].level_since, state.series[0].history_since) == (11, NEVER)
    assert (state.nights.times - before)[:, 0] == pytest.approx([0.05] * 11 + [0.0])
    state.add_night(12, {0: reading(12)})
    assert state.series[0].confirmed is None, "it is told once"


def test_what_may_have_changed_is_listed_from_the_likeliest_on() -> None:
    """Series 1 moved by 20 %, series 2 by 5 % and series 0 by nothing."""
    state = ScopeState({series: NodeKernel(series, series) for series in range(3)}, POLICY)
    assert state.possible_changes() == []
    for build in range(12):
        factors = (1.0, 1.2, 1.05) if build == 11 else (1.0,) * 3
        state.add_night(build, {series: reading(build, time_us=100.0 * each) for series, each in enumerate(factors)})
    possible = state.possible_changes()
    assert [column for column, _ in possible] == [1, 2]
    assert sorted((odds for _, odds in possible), reverse=True) == [odds for _, odds in possible]

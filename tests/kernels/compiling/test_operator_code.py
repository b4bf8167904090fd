"""What is stored of an operator with several launches: sums and maxima of their facts, and one bundle of their code."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tilewatch.kernels.compiling.operator_code import DEPENDENT, hash_bundle, list_code, read_bundle, store_bundle
from tilewatch.kernels.compiling.store import CubinStore, folder


@dataclass(frozen=True)
class Launch:
    launch_key: str
    symbol: str
    programmatic_dependent_launch: bool = False


FIRST, SECOND = Launch("one", "load"), Launch("two", "store")


def make_outcome(number: int, **other: Any) -> dict[str, Any]:
    names = ("registers", "stack_bytes", "shared_bytes", "code_bytes", "cubin_bytes", "loads", "tma_loads", "mmas")
    facts = {name: 10 * at + number for at, name in enumerate(names)} | {
        "tensor_core_mmas": 0,
        "remarks": [{"of": number}],
    }
    times = {"compile_s": 1.0 * number, "cpu_s": 0.5 * number, "reused": True}
    return {
        "status": "ok",
        **times,
        "content_key": f"part{number}",
        "code_sha256": f"sha{number}",
        "facts": facts,
        **other,
    }


@pytest.fixture
def store(tmp_path: Path) -> CubinStore:
    made = CubinStore(folder(tmp_path))
    for number in (1, 2):
        made.put(f"part{number}", make_outcome(number), f"cubin {number}".encode(), f"bytecode {number}".encode())
    return made


def test_facts_of_launches_are_added_up_but_for_what_a_multiprocessor_holds_at_a_time(store: CubinStore) -> None:
    found = store_bundle(store, [FIRST, SECOND, FIRST], {"one": make_outcome(1), "two": make_outcome(2)})
    facts = found["facts"]
    assert [facts[name] for name in ("registers", "stack_bytes", "shared_bytes")] == [2, 12, 22]
    assert [facts[name] for name in ("code_bytes", "cubin_bytes", "loads", "tma_loads", "mmas")] == [
        63,
        83,
        103,
        123,
        143,
    ]
    assert facts["remarks"] == [{"of": 1}, {"of": 2}]
    assert (found["compile_s"], found["cpu_s"]) == (3.0, 1.5)
    assert (found["symbol"], found["status"], found[DEPENDENT]) == ("load+store+load", "ok", [False] * 3)
    assert found["code_sha256"] == hashlib.sha256(b"sha1sha2sha1").hexdigest()
    assert found["content_key"] == hash_bundle(["part1", "part2", "part1"], [FIRST, SECOND, FIRST])


def test_a_bundle_has_the_code_of_each_launch_once(store: CubinStore) -> None:
    found = store_bundle(store, [FIRST, SECOND, FIRST], {"one": make_outcome(1), "two": make_outcome(2)})
    assert list_code(store.cubin(found["content_key"])) == {"one": b"cubin 1", "two": b"cubin 2"}
    bytecode = store.bytecode(found["content_key"])
    assert bytecode is not None
    assert read_bundle(bytecode) == {"one": b"bytecode 1", "two": b"bytecode 2"}
    assert list_code(b"\x7fELF plain") == {"": b"\x7fELF plain"}
    stored = store.outcome(found["content_key"])
    assert stored is not None
    assert {**stored, "reused": True} == found


def test_a_bundle_has_no_bytecode_if_that_of_a_launch_was_not_kept(store: CubinStore) -> None:
    store.put("part3", make_outcome(3), b"cubin 3")
    found = store_bundle(store, [FIRST, Launch("three", "sum")], {"one": make_outcome(1), "three": make_outcome(3)})
    assert store.bytecode(found["content_key"]) is None
    assert set(list_code(store.cubin(found["content_key"]))) == {"one", "three"}


def test_a_bundle_that_is_stored_needs_its_parts_no_more(store: CubinStore, tmp_path: Path) -> None:
    outcomes = {"one": make_outcome(1), "two": make_outcome(2)}
    made = store_bundle(store, [FIRST, SECOND], outcomes)
    for part in tmp_path.glob("pa/*"):
        part.unlink()
    assert store_bundle(store, [FIRST, SECOND], outcomes) == made
    assert set(list_code(store.cubin(made["content_key"]))) == {"one", "two"}


@pytest.mark.parametrize(("first", "second", "both"), [(True, True, True), (True, False, False), (False, True, False)])
def test_a_bundle_is_reused_if_all_of_its_launches_are(
    store: CubinStore, first: bool, second: bool, both: bool
) -> None:
    outcomes = {"one": make_outcome(1, reused=first), "two": make_outcome(2, reused=second)}
    assert store_bundle(store, [FIRST, SECOND], outcomes)["reused"] is both


@pytest.mark.parametrize("failed", [{"status": "timeout"}, {"error": "no such instruction"}])
def test_a_launch_that_failed_is_the_outcome_of_its_operator(store: CubinStore, failed: dict[str, str]) -> None:
    outcomes = {"one": make_outcome(1), "two": make_outcome(2, **failed)}
    assert store_bundle(store, [FIRST, SECOND], outcomes) == outcomes["two"]
    assert store.outcome(hash_bundle(["part1", "part2"], [FIRST, SECOND])) is None


def test_an_only_launch_has_its_own_code_unless_it_is_dependent(store: CubinStore) -> None:
    outcomes = {"one": make_outcome(1)}
    assert store_bundle(store, [FIRST], outcomes)["code_sha256"] == "sha1"
    dependent = store_bundle(store, [replace(FIRST, programmatic_dependent_launch=True)], outcomes)
    assert dependent["code_sha256"] == hashlib.sha256(b"sha1 programmatic dependent launch").hexdigest()
    assert dependent[DEPENDENT] == [True]
    assert dependent["content_key"] != store_bundle(store, [FIRST], outcomes)["content_key"]

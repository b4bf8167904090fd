"""Tuned tables in host code: exact, near, fallback, and what is refused. The file also works alone."""

import hashlib
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tilewatch import tuned
from tilewatch.tuned import Choice, Row, Table, WrongTable

FALLBACK = {"tile": 1}
ROWS = (
    Row("4096x4096x4096-float16", {"tile": 2}, 0.01),
    Row("4096x4096x4096-tf32", {"tile": 3}),
    Row("128x7168x16384-float16", {"tile": 4}, 0.2),
    Row("default", {"tile": 5}),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with one table, made with `gemm.py` beside it."""
    source = tmp_path / "gemm.py"
    source.write_text("the kernel")
    table = {
        "kernel": "gemm",
        "gpu": "NVIDIA H200",
        "gpu_model": "h200",
        "commit": "ab" * 20,
        "source_sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
        "rows": [row._asdict() for row in ROWS],
    }
    path = tmp_path / "tuned.json"
    path.write_text(json.dumps({"format": tuned.FORMAT, "tables": [table, {**table, "kernel": "norm"}]}))
    return path


@pytest.mark.parametrize(
    ("problem", "choice"),
    [
        ((4096, 4096, 4096, "float16"), Choice({"tile": 2}, "exact", "4096x4096x4096-float16", 0.0)),
        ((4096, 4096, 4096, "tf32"), Choice({"tile": 3}, "exact", "4096x4096x4096-tf32", 0.0)),
        ((4096, 2100, 4096, "float16"), Choice({"tile": 2}, "nearest", "4096x4096x4096-float16", 0.01)),
        ((130, 7168, 16384, "float16"), Choice({"tile": 4}, "nearest", "128x7168x16384-float16", 0.2)),
        ((4096, 2048, 4096, "tf32"), Choice({"tile": 3}, "nearest", "4096x4096x4096-tf32", None)),
        ((4096, 2040, 4096, "float16"), Choice(FALLBACK, "fallback")),
        ((4096, 4096, 4096, "bfloat16"), Choice(FALLBACK, "fallback")),
        ((4096, 4096, "float16"), Choice(FALLBACK, "fallback")),
        (("default",), Choice({"tile": 5}, "exact", "default", 0.0)),
        (("other",), Choice(FALLBACK, "fallback")),
        ((), Choice(FALLBACK, "fallback")),
    ],
)
def test_a_problem_is_found_exactly_or_nearby_or_gets_the_fallback(
    problem: tuple[tuned.Part, ...], choice: Choice
) -> None:
    table = Table(ROWS, FALLBACK)
    assert table.find(*problem) == choice
    assert table.find(*problem) == choice, "asked again"


@pytest.mark.parametrize(
    "problem", [(64, 512, "float8_e4m3fn"), ("64x512:float8_e4m3fn",), (64, "512", "float8-e4m3fn")]
)
def test_a_word_of_several_words_is_found(problem: tuple[tuned.Part, ...]) -> None:
    """The table held "float8" and "e4m3fn", so what host code calls the type got the fallback for every size."""
    table = Table([Row("64x512:float8_e4m3fn", {"tile": 2}), Row("64x512:float8_e5m2", {"tile": 3})], FALLBACK)
    assert table.find(*problem) == Choice({"tile": 2}, "exact", "64x512:float8_e4m3fn", 0.0)
    assert table.find(64, 700, "float8_e5m2").config == {"tile": 3}


def test_twice_and_half_a_size_is_one_doubling_away() -> None:
    """Rounding put 20 further from 10, and 4.4 % of all sizes up to 40,000."""
    for size in range(1, 2000):
        near, far = f"{size}x4096x4096", f"{2 * size}x4096x4096"
        assert Table([Row(near, {})], FALLBACK).find(2 * size, 4096, 4096).source == "nearest"
        assert Table([Row(far, {})], FALLBACK).find(size, 4096, 4096).source == "nearest"
        assert Table([Row(near, {})], FALLBACK).find(2 * size + 1, 4096, 4096).source == "fallback"


def test_without_rows_the_fallback_is_the_answer() -> None:
    assert Table((), FALLBACK).find(1, 2).source == "fallback"


def test_the_nearest_row_is_the_one_that_comparing_all_of_them_finds() -> None:
    chance = random.Random("rows")
    problems = [tuple(chance.randrange(1, 5000) for _ in range(3)) for _ in range(60)]
    table = Table([Row("x".join(map(str, each)), {"at": at}) for at, each in enumerate(problems)], {}, 4.0)
    for _ in range(300):
        asked = tuple(chance.randrange(1, 5000) for _ in range(3))
        distances = [tuned.measure_distance(asked, each) for each in problems]
        found = table.find(*asked)
        nearest = min(each for each in distances if each is not None)
        assert found.source == ("nearest" if nearest <= 4.0 else "fallback")
        if found.source == "nearest":
            assert distances[found.config["at"]] == nearest


def test_answers_are_kept_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned, "KEPT_ANSWERS", 4)
    table = Table(ROWS, FALLBACK)
    for size in range(1, 100):
        table.find(size)
    assert len(table._answers) <= 4 + len(ROWS)
    assert table.find(4096, 4096, 4096, "float16").source == "exact"


def test_a_table_is_found_by_the_gpu_s_name_or_its_model(file: Path) -> None:
    for gpu in ("NVIDIA H200", "h200"):
        table = tuned.load(file, kernel="gemm", gpu=gpu, fallback=FALLBACK, source=file.parent / "gemm.py")
        assert table.find(4096, 4096, 4096, "float16").source == "exact"


def test_a_gpu_model_is_found_by_each_name_that_its_drivers_had(file: Path) -> None:
    content = json.loads(file.read_text())
    for table in content["tables"]:
        table["gpus"] = ["NVIDIA H200", "NVIDIA H200 SXM"]
    file.write_text(json.dumps(content))
    for gpu in ("NVIDIA H200", "NVIDIA H200 SXM", "h200"):
        assert tuned.load(file, kernel="gemm", gpu=gpu, fallback=FALLBACK).find("default").source == "exact"
    with pytest.raises(WrongTable, match="it has NVIDIA H200, NVIDIA H200 SXM"):
        tuned.load(file, kernel="gemm", gpu="NVIDIA B200", fallback=FALLBACK)


def test_tables_of_two_repositories_are_refused_in_a_sentence(file: Path) -> None:
    """It was Python's own error, "too many values to unpack", which host code does not catch as WrongTable."""
    content = json.loads(file.read_text())
    content["tables"] = [{**content["tables"][0], "repository": name} for name in ("ours", "theirs")]
    file.write_text(json.dumps(content))
    with pytest.raises(WrongTable, match="for GPU 'h200': export one repository's, of ours, theirs"):
        tuned.load(file, kernel="gemm", gpu="h200", fallback=FALLBACK)


def test_how_far_a_problem_may_be_is_the_caller_s_choice(file: Path) -> None:
    wide = tuned.load(file, kernel="gemm", gpu="h200", fallback=FALLBACK, most_doublings=3)
    assert wide.find(4096, 1024, 4096, "float16").source == "nearest"


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"kernel": "gem"}, "has no table of kernel 'gem'; it has gemm, norm"),
        ({"gpu": "NVIDIA B200"}, "has no table of kernel 'gemm' for GPU 'NVIDIA B200'; it has NVIDIA H200"),
        ({"source": "tuned.json"}, "was made with another version of tuned.json (commit ababababab): sweep this one"),
    ],
)
def test_a_table_of_something_else_is_refused(file: Path, asked: dict[str, str], sentence: str) -> None:
    if "source" in asked:
        asked = {"source": str(file.parent / asked["source"])}
    with pytest.raises(WrongTable) as refused:
        tuned.load(file, **{"kernel": "gemm", "gpu": "h200", "fallback": FALLBACK, **asked})  # type: ignore[arg-type]
    assert sentence in str(refused.value)


@pytest.mark.parametrize("content", [{"format": 2, "tables": []}, {}, []])
def test_a_file_of_another_format_is_refused(file: Path, content: object) -> None:
    file.write_text(json.dumps(content))
    with pytest.raises(WrongTable, match=r"reads format 1"):
        tuned.load(file, kernel="gemm", gpu="h200", fallback=FALLBACK)


def test_the_file_works_alone(file: Path) -> None:
    shutil.copy(tuned.__file__, file.parent / "our_copy.py")
    program = (
        "import our_copy\n"
        "table = our_copy.load('tuned.json', kernel='gemm', gpu='h200', fallback={})\n"
        "print(table.find(4096, 4096, 4096, 'tf32').config)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], cwd=file.parent, env={}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "{'tile': 3}\n"


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_size_that_is_no_number_is_refused(number: float) -> None:
    table = tuned.Table([tuned.Row("4096x4096x4096", {"tile": 1}, 0.0)], {"tile": 2})
    with pytest.raises(ValueError, match="is not the size of a problem"):
        table.find(number, 4096, 4096)


@pytest.mark.parametrize(
    "content", [None, "", "[]", "{", '{"format": 1}', '{"format": 1, "tables": [{}]}', "\0", "[" * 9999]
)
def test_a_file_that_is_missing_cut_or_of_others_is_a_wrong_table(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "table.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(tuned.WrongTable, match=r"table\.json"):
        tuned.load(file, kernel="k", gpu="h200", fallback={})

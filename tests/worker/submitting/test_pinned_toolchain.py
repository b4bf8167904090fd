"""The nightly of a commit that pins another compiler asks for the comparison of both, once."""

from sqlalchemy import select

from tests.kernels.fixtures.second_toolchain import make_toolchain
from tests.worker.fixtures import tiny_repository
from tests.worker.fixtures.worker_context import Drain
from tilewatch.compilers import CompilerChange
from tilewatch.db.models import Action
from tilewatch.db.page_reads.toolchain_reports import list_reports, list_reports_of
from tilewatch.db.session import session
from tilewatch.kernels.toolchains.versions import COMPILING, compiler_version, versions
from tilewatch.worker.context import Context
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting import pinned_toolchain, schedule, submit_requests
from tilewatch.worker.submitting.submit import submit_nightly

INSTALLED = versions(COMPILING)


def pin(settings: Settings, label: str) -> str:
    """Commits a list that pins the installed packages' versions with a label; the sha."""
    lists = settings.repository / "requirements"
    lists.mkdir(exist_ok=True)
    lines = [f"{package}=={version}{label}" for package, version in INSTALLED.items()]
    (lists / "base.txt").write_text("\n".join(lines) + "\n")
    return tiny_repository.commit(settings.repository, f"Pin {label or 'the installed one'}", factor=2)


def submit(settings: Settings) -> str:
    (sentence,) = schedule.submit(settings)
    return sentence


def test_a_nightly_whose_commit_pins_another_compiler_asks_for_the_comparison_of_both(
    settings: Settings, context: Context, drain: Drain
) -> None:
    made = make_toolchain(settings.toolchains, "next")
    pin(settings, "")
    assert "pins another compiler" not in submit(settings), "its parent pins none"
    sha = pin(settings, "+next")
    submit_nightly(settings)  # by a person, or by a beat that lost Redis before it asked
    sentence = submit(settings)
    assert f"{sha[:10]} pins another compiler (cuda-tile {INSTALLED['cuda-tile']} -> " in sentence
    assert "their comparison is asked for: installed and next" in sentence
    pin(settings, "+next")
    assert "pins another compiler" not in submit(settings), "the night before pinned the same"
    (carried_out,) = submit_requests.carry_out(settings)
    assert f"submitted the comparison of installed with next at {sha[:10]}" in carried_out
    drain()
    short = {package: package.removeprefix("nvidia-") for package in INSTALLED}
    after = " ".join(f"{short[each.package]} {each.version}" for each in sorted(made.packages))
    change = CompilerChange(f"{compiler_version()} limit 15s", after)
    with session(context.database_url) as opened:
        (report,) = list_reports(opened)
        assert (report.title, report.state) == ("installed → next", "safe")
        assert list_reports_of(opened, change.without_limits) == [report], "a regression of this change links it"


def test_where_a_toolchain_is_not_there_the_sentence_has_the_commands(settings: Settings, context: Context) -> None:
    pin(settings, "")
    submit(settings)
    pin(settings, ".9")
    version = f"{INSTALLED['nvidia-cuda-tileiras']}.9"
    sentence = submit(settings)
    assert (
        f"to compare both on a compile worker: tilewatch toolchain add cuda-tileiras-{version} cuda-tile==" in sentence
    )
    assert sentence.endswith(f"&& tilewatch submit toolchain installed cuda-tileiras-{version}")
    with session(context.database_url) as opened:
        assert opened.scalars(select(Action)).all() == []


def test_the_pins_of_a_commit_are_lines_of_its_lists_and_none_without_a_list(settings: Settings) -> None:
    """Git's grep ends with an error where it finds nothing."""
    assert pinned_toolchain._find_lines(settings.repository, "HEAD") == []
    sha = pin(settings, ".9")
    assert set(pinned_toolchain._find_lines(settings.repository, sha)) == {
        f"{package}=={version}.9" for package, version in INSTALLED.items() if "cuda-tile" in package
    }
    assert pinned_toolchain._find_lines(settings.repository, "HEAD~1") == [], "each commit has its own"

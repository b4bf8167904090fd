"""Keeps the report of a toolchain comparison in the database while several jobs add results to the report."""

import time
from typing import Any

from tilewatch.db.lifecycle import toolchain_reports
from tilewatch.db.lifecycle.jobs import ClaimedJob
from tilewatch.db.session import session
from tilewatch.kernels.comparing.toolchains import writing
from tilewatch.kernels.comparing.toolchains.comparison import begin_report, find_side
from tilewatch.kernels.comparing.toolchains.compile_sides import ComparedSide, Workplace
from tilewatch.kernels.comparing.toolchains.report_file import ToolchainReport, list_rows, read_rows
from tilewatch.worker.comparing.prepare_check import COMPILERS
from tilewatch.worker.context import Context
from tilewatch.worker.git import watched
from tilewatch.worker.queue.lease import Lease
from tilewatch.worker.queue.payloads import ToolchainsPayload, read_payload
from tilewatch.worker.steps.compiler import require_toolchain

SAVE_EVERY_S = 10.0


class StoredReport:
    """The report to which a job adds results. Saving raises LeaseLost if this worker has lost the job."""

    def __init__(self, context: Context, job: ClaimedJob, lease: Lease) -> None:
        self._url, self._lease, self._saved_at = context.database_url, lease, time.monotonic()
        self.wanted = read_payload(ToolchainsPayload, job.payload)
        self.id = self.wanted.report_id
        with session(self._url) as opened:
            self._contents = toolchain_reports.read_contents(opened, self.id)
        self._sides = [find_side(name, context.toolchains, may_be_missing=True) for name in self.wanted.toolchains]
        self.report = self._read()

    def save_soon(self) -> None:
        self._lease.progress()
        if time.monotonic() - self._saved_at >= SAVE_EVERY_S:
            self.save()

    def discard_changes(self) -> None:
        """Restores the report as it was when the job began."""
        self.report = self._read()
        self.save()

    def save(self) -> None:
        self._lease.progress()
        answer: dict[str, Any] = writing.make_answer(self.report) if self.report.pairs else {}
        markdown = writing.write_markdown(self.report) if self.report.pairs else ""
        with session(self._url) as opened:
            parts = {"contents": list_rows(self.report), "answer": answer, "markdown": markdown}
            toolchain_reports.change(opened, self.id, **parts)
        self._saved_at = time.monotonic()

    def _read(self) -> ToolchainReport:
        wanted = self.wanted
        report = read_rows(self._contents) if self._contents else begin_report(self._sides)
        report.fail_over = wanted.fail_over
        return report


def find_place(context: Context, wanted: ToolchainsPayload, *, report: ToolchainReport | None = None) -> Workplace:
    """Returns a comparison's library and toolchains. If `report` is None, raises NotNow for a missing toolchain."""
    library = watched.library_at(context, wanted.repository, wanted.sha, wanted.library)
    sides = tuple(
        ComparedSide(name, require_toolchain(context, name))
        if report is None
        else find_side(name, context.toolchains, may_be_missing=True)  # the store has its cubins
        for name in wanted.toolchains
    )
    return Workplace(library, sides, context.spool, COMPILERS, context.compile_limit_s, context.store_url)

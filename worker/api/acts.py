"""Defines what the holder of a token may do besides reading. Each act is stored with its cost."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from tilewatch.db.lifecycle.tokens import Holder
from tilewatch.worker.api.reads import GpuModel, Kernel
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting.submit_check import CheckAsked, SubmittedChecks
from tilewatch.worker.submitting.submit_requests import submit_check_for

Revision = Annotated[
    str,
    Field(
        pattern=r"^[^\x00-\x20-][^\x00-\x20]*$",
        max_length=255,
        description="A sha, a branch or a tag of the watched repository.",
    ),
]


@dataclass(frozen=True)
class Act:
    """Holds what an act needs: the settings, and the holder of the caller's token."""

    settings: Settings
    holder: Holder


def submit_check(
    act: Act,
    base: Revision,
    head: Revision,
    kernel: Kernel | None = None,
    gpus: Annotated[
        tuple[GpuModel, ...], Field(max_length=20, description="GPU models; none for all that have a worker.")
    ] = (),
    fail_over: Annotated[float, Field(ge=0, lt=1, description="Allowed slowdown: 0.02 is 2 %.")] = 0.0,
    repository: Annotated[
        str | None, Field(max_length=255, description="The watched repository, where there are several.")
    ] = None,
) -> SubmittedChecks:
    """Compare two commits on the fleet's GPUs before a merge. Call read_check for the answer.
    Kernels whose code did not change are not timed, and a check that was asked before is not done
    again."""
    return submit_check_for(act.settings, act.holder, CheckAsked(base, head, kernel, gpus, fail_over, repository))

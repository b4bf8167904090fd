"""Defines the allowed values in a recording's rows. Fields that are not listed here pass unchanged."""

import datetime as dt
from collections.abc import Mapping
from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, Field, StringConstraints, TypeAdapter, with_config
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from tilewatch.text import LONGEST_NAME


@with_config(ConfigDict(strict=True, allow_inf_nan=False))
class _Fields(TypedDict):
    """The base class of all row types. Values of a wrong type are refused and not converted."""


MOST_COMMITS = 10_000_000
"""Largest position of a commit. Linux had 1.3 million commits in 2026."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_NAME, pattern=r"^[^\p{C}\p{Zl}\p{Zp}]+$")]
Text = Annotated[str, StringConstraints(max_length=100_000, pattern=r"^[^\x00]*$")]
Hex = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{1,128}$")]
Moment = Annotated[dt.datetime, Field(strict=False)]
Day = Annotated[dt.date, Field(strict=False)]
Count = Annotated[int, Field(ge=0, lt=1 << 31)]
BigCount = Annotated[int, Field(ge=0, lt=1 << 63)]
Positive = Annotated[float, Field(gt=0, lt=1e30)]
NotNegative = Annotated[float, Field(ge=0, lt=1e30)]
Number = Annotated[float, Field(gt=-1e30, lt=1e30)]
Scalar = bool | Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] | Number | Text | None
Config = dict[Name, Scalar]
Samples = Annotated[list[Positive], Field(max_length=1_000_000)]


class CommitFields(_Fields):
    repository: Name
    sha: Hex
    position: Annotated[int, Field(ge=0, le=MOST_COMMITS)]
    committed_at: Moment
    subject: Text
    author: NotRequired[Text | None]
    left_branch_at: NotRequired[Moment]


class GpuModelFields(_Fields):
    slug: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]{0,39}$")]
    name: Name
    arch: Annotated[str, StringConstraints(pattern=r"^sm_[0-9]{2,4}[a-z]?$")]
    fp8_tflops: Positive | None
    bandwidth_gbps: Positive | None


class RateFields(_Fields):
    type: Name
    tflops: Positive


class SpaceFields(_Fields):
    axes: list[Annotated[tuple[Name, list[Scalar]], Field(strict=False)]]
    tile_table: NotRequired[Config | None]
    rate: NotRequired[RateFields | None]


class PartFields(_Fields):
    weight: Positive
    parts: Count


class SweepFields(_Fields):
    id: Count
    commit: CommitFields
    gpu_model: GpuModelFields
    reason: Name
    night: Day | None
    kernel: Name
    problem: Name
    arch: Name
    source_sha256: Hex
    space: SpaceFields
    space_size: Count
    flops: BigCount
    bytes: BigCount
    parts_of: NotRequired[dict[Name, PartFields] | None]


class RemarkFields(_Fields):
    line: NotRequired[Count | None]
    name: NotRequired[Text | None]
    instruction: NotRequired[Text | None]
    shape: NotRequired[Text | None]
    text: NotRequired[Text | None]
    passed: NotRequired[bool | None]


class CompilationFields(_Fields):
    code_key: Hex
    compiler: Name
    arch: Name
    status: Name
    failure: Text | None
    content_key: Hex | None
    code_sha256: Hex | None
    symbol: Text | None
    registers: Count | None
    stack_bytes: Count | None
    shared_bytes: Count | None
    code_bytes: Count | None
    cubin_bytes: Count | None
    compile_s: NotNegative
    remarks: list[RemarkFields]
    host: Name


class TrialFields(_Fields):
    sweep: Count
    config: Config
    code_key: Hex
    compiler: Name | None
    status: Name
    failure: Text | None
    samples_us: Samples | None
    error: float | None  # of a wrong output: as large as its values, which may be anything


class TelemetryFields(_Fields):
    when: Name
    unix_s: NotRequired[Number | None]
    sm_clock_mhz: NotRequired[Number | None]
    memory_clock_mhz: NotRequired[Number | None]
    power_w: NotRequired[Number | None]
    power_limit_w: NotRequired[Number | None]
    most_sm_clock_mhz: NotRequired[Number | None]
    temperature_c: NotRequired[Number | None]
    ecc_uncorrected: NotRequired[Number | None]
    throttled: NotRequired[list[Name] | None]
    others: NotRequired[list[Name] | None]
    canary_compute_us: NotRequired[Number | None]
    canary_memory_us: NotRequired[Number | None]


class RunFields(_Fields):
    key: Name
    sweep: Count
    host: Name
    gpu_uuid: Name
    gpu_name: Name
    timer: Name
    toolchain: dict[Name, Scalar]
    telemetry: list[TelemetryFields]
    sweep_gpu_s: NotNegative
    tie: list[Config]
    started_at: Moment
    finished_at: Moment


class MeasurementFields(_Fields):
    run: Name
    implementation: Name
    role: Name
    config: Config | None
    samples_us: Annotated[list[Positive], Field(min_length=1, max_length=1_000_000)]
    detail: dict[Name, Any]


class SideFields(_Fields):
    commit: CommitFields
    config: Config | None
    content_key: Hex
    code_sha256: Hex
    toolchain: Text


class CountersFields(_Fields):
    good: Config
    bad: Config


class MissingFields(_Fields):
    missing: Text


class ReplayFields(_Fields):
    key: Name
    kernel: Name
    problem: Name
    gpu_model: Name
    axis: Name
    failure: Text | None
    host: Name | None
    gpu_uuid: Name | None
    telemetry: list[TelemetryFields] | None
    gpu_s: NotNegative | None
    good: SideFields
    bad: SideFields
    good_us: Samples | None
    bad_us: Samples | None
    counters: NotRequired[CountersFields | MissingFields | None]
    at: Moment


SCHEMAS: Mapping[str, TypeAdapter[Any]] = {
    "sweep": TypeAdapter(SweepFields),
    "compilation": TypeAdapter(CompilationFields),
    "trial": TypeAdapter(TrialFields),
    "run": TypeAdapter(RunFields),
    "measurement": TypeAdapter(MeasurementFields),
    "replay": TypeAdapter(ReplayFields),
}

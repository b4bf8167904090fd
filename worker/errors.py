"""Which errors are a sentence for a person: bad input or a broken set-up, so without a traceback.

Everything else is a bug, and then the traceback is the message. The list is asked for only after something was raised,
so that `tilewatch --help` does not import the database to learn what could go wrong.
"""


def of(error: BaseException) -> str | None:
    """The sentence of an expected error; None for a bug."""
    return str(error) if isinstance(error, _expected()) else None


def _expected() -> tuple[type[BaseException], ...]:
    from tilewatch.db.lifecycle.actions import NoSuchWork
    from tilewatch.db.lifecycle.regressions import NoSuchRegression, NotPossible
    from tilewatch.db.migrate import DatabaseNewer, DatabaseOlder
    from tilewatch.db.server.embedded import EmbeddedError
    from tilewatch.db.server.logins import NoLogin
    from tilewatch.db.session import DatabaseUnreachable
    from tilewatch.kernels.catalog.catalog import UnknownKernel
    from tilewatch.kernels.compiling.compiler import BuildError
    from tilewatch.kernels.compiling.store import StoreError
    from tilewatch.kernels.contract import BadProblem
    from tilewatch.kernels.device import UnknownGpu
    from tilewatch.kernels.loading import LibraryError
    from tilewatch.kernels.measuring.measure import GpuBusy, GpuMissing, MeasureFailed
    from tilewatch.kernels.measuring.replay import ReplayFailed
    from tilewatch.kernels.recording.recording_file import BadRecording
    from tilewatch.worker.cli.triage import NoName
    from tilewatch.worker.detection.policy import BadPolicy
    from tilewatch.worker.gpu.visible_gpu import WrongWorker
    from tilewatch.worker.notify.routing import BadTelling
    from tilewatch.worker.queue.dispatch import BrokerUnreachable
    from tilewatch.worker.repository import RepositoryError
    from tilewatch.worker.settings import BadSettings, NotRunning
    from tilewatch.worker.steps.measure import NothingToMeasure
    from tilewatch.worker.steps.submit import NothingToSubmit
    from tilewatch.worker.transfer.exporting import NothingToExport

    return (
        BadPolicy,
        BadProblem,
        BadRecording,
        BadSettings,
        BadTelling,
        BrokerUnreachable,
        BuildError,
        DatabaseNewer,
        DatabaseOlder,
        DatabaseUnreachable,
        EmbeddedError,
        GpuBusy,
        GpuMissing,
        LibraryError,
        MeasureFailed,
        NoName,
        NoSuchRegression,
        NoLogin,
        NoSuchWork,
        NotPossible,
        NotRunning,
        NothingToExport,
        NothingToMeasure,
        NothingToSubmit,
        ReplayFailed,
        RepositoryError,
        StoreError,
        UnknownGpu,
        UnknownKernel,
        WrongWorker,
    )

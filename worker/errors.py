"""Which errors are a sentence for a person: bad input or a broken set-up, so without a traceback.

Everything else is a bug, and then the traceback is the message. The list is asked for only after something was raised,
so that `tilewatch --help` does not import the database to learn what could go wrong.
"""


def of(error: BaseException) -> str | None:
    """The sentence of an expected error; None for a bug."""
    return str(error) if isinstance(error, _expected()) else None


def _expected() -> tuple[type[BaseException], ...]:
    from db.actions import NoSuchWork
    from db.embedded import EmbeddedError
    from db.logins import NoLogin
    from db.migrate import DatabaseNewer, DatabaseOlder
    from db.regressions import NoSuchRegression, NotPossible
    from db.session import DatabaseUnreachable
    from kernels.build import BuildError
    from kernels.catalog import UnknownKernel
    from kernels.contract import BadProblem
    from kernels.device import UnknownGpu
    from kernels.loading import LibraryError
    from kernels.measure import GpuBusy, GpuMissing, MeasureFailed
    from kernels.recording import BadRecording
    from kernels.replay import ReplayFailed
    from kernels.store import StoreError
    from worker.dispatch import BrokerUnreachable
    from worker.measure import NothingToMeasure
    from worker.policies import BadPolicy
    from worker.presence import WrongWorker
    from worker.repository import RepositoryError
    from worker.settings import BadSettings, NotRunning
    from worker.submit import NothingToSubmit
    from worker.telling import BadTelling
    from worker.transfer import NothingToExport
    from worker.triage import NoName

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

"""Reads the record from which a night's shares of the search spaces are drawn."""

from sqlalchemy.orm import Session

from tilewatch.db.worker_reads import tried_configs
from tilewatch.kernels.catalog.share import KEY_LENGTH, Shares, Tried


def read_shares(session: Session, repository: str, gpu_model: str, day: str) -> Shares:
    """Returns what the series of a repository and GPU model have tried. Series without a run are left out."""
    series = {}
    for kernel, problem in tried_configs.list_short_listed_series(session, repository, gpu_model):
        names = {"repository": repository, "kernel": kernel, "problem": problem, "gpu_model": gpu_model}
        if (found := tried_configs.find_tried(session, names)) is not None:
            series[kernel, problem] = Tried([sha256[:KEY_LENGTH] for sha256 in found.sha256], found.kept)
    return Shares(day, series)

"""Reads the record from which a night's shares of the search spaces are drawn."""

from sqlalchemy.orm import Session

from tilewatch.db.repository_names import is_branch
from tilewatch.db.worker_reads import gpus, tried_configs
from tilewatch.kernels.catalog.share import KEY_LENGTH, Shares, Tried


def read_shares(session: Session, repository: str, gpu_model: str, day: str) -> Shares:
    """Returns what the series of a repository and GPU model have tried. Series without a run are left out."""
    drivers, compilers = gpus.list_versions(session, gpu_model)
    series = {}
    for names, found in tried_configs.list_tried(session, repository, gpu_model).items():
        has_driver = not drivers or found.driver in {each.split(".")[0] for each in drivers}
        is_known = any(found.compiler.startswith(f"{each} ") for each in compilers)
        has_compiler = not compilers or is_known or is_branch(repository)  # a toolchain of its own compiles branches
        keys = {sha256[:KEY_LENGTH]: is_near for sha256, is_near in found.near.items()}
        source = found.source_sha256 if has_driver and has_compiler else ""
        series[names] = Tried(list(keys), [key for key in keys if keys[key]], found.kept, source)
    return Shares(day, series)

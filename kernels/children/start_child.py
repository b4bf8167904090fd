"""Starts kernels/child.py in a Python that lacks Tilewatch: `python -I start_child.py fork FD`."""

import importlib.util
import runpy
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[2]


def _add_package() -> None:
    file, folders = PACKAGE / "__init__.py", [str(PACKAGE)]
    spec = importlib.util.spec_from_file_location("tilewatch", file, submodule_search_locations=folders)
    assert spec is not None
    assert spec.loader is not None
    sys.modules["tilewatch"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["tilewatch"])


if __name__ == "__main__":
    _add_package()
    try:
        runpy.run_module("tilewatch.kernels.child", run_name="__main__", alter_sys=True)
    except ModuleNotFoundError as error:
        if error.name not in ("cuda", "cuda.tile"):
            raise
        sys.exit(f"{sys.executable} has no cuda-tile; install the version there that `tilewatch doctor` prints")

"""The syntax of a repository says which kernels it has, which files lead to them, and how modules are imported."""

from tilewatch.kernels.proposing.repository_sources import KernelName, read_sources

OPS = b"""
import cuda.tile as ct

@ct.kernel(occupancy=2)
def scale_kernel(x): ...

@ct.kernel
def unused_kernel(x): ...

def launch(x):
    ct.launch(0, (1,), scale_kernel, (x,))

def scale(x):
    return launch(x)
"""
TEXTS = {
    "src/ops/__init__.py": b"",
    "src/ops/scaling.py": OPS,
    "tests/test_scaling.py": b"from ops.scaling import scale\nimport lxml\n\n@ct.kernel\ndef tried(x): ...\n",
    "scripts/01-run.py": b"import cuda.tile as ct\n\n@ct.kernel\ndef own(x): ...\n\nprint(own)\n",
    "src/other.py": b"def scale_kernel_of_another(x): return x\n",
    "broken.py": b"def (",
}


def test_kernels_are_found_by_their_decorator_but_not_in_tests() -> None:
    assert read_sources(TEXTS).kernels == (
        KernelName("scripts/01-run.py", "own"),
        KernelName("src/ops/scaling.py", "scale_kernel"),
        KernelName("src/ops/scaling.py", "unused_kernel"),
    )


def test_a_repository_of_tests_alone_has_their_kernels() -> None:
    file = "tests/test_scaling.py"
    assert read_sources({file: TEXTS[file]}).kernels == (KernelName(file, "tried"),)


def test_a_driver_leads_to_kernels_through_functions_that_call_each_other() -> None:
    """No driver names `launch` or the kernel."""
    found = {each.file: {kernel.name for kernel in each.kernels} for each in read_sources(TEXTS).drivers}
    assert found == {"tests/test_scaling.py": {"scale_kernel"}, "scripts/01-run.py": {"own"}}


def test_a_driver_whose_names_lead_nowhere_leads_to_the_file_that_its_name_contains() -> None:
    """It calls the host code by a text."""
    driver = b"from ops import call\n\ndef test_it():\n    call('rms_norm')\n"
    texts = {"src/rms_norm.py": OPS, "src/rope.py": OPS, "tests/test_rms_norm_backward.py": driver}
    (found,) = read_sources(texts).drivers
    assert {each.file for each in found.kernels} == {"src/rms_norm.py"}


def test_a_module_is_imported_from_the_folder_that_is_no_package() -> None:
    sources = read_sources(TEXTS)
    assert sources.modules["src/ops/scaling.py"] == "ops.scaling"
    assert sources.modules["scripts/01-run.py"] == "01-run"
    assert set(sources.path) == {"src", "scripts"}


def test_the_name_that_the_repository_itself_imports_has_priority() -> None:
    """Also for a folder without `__init__.py`."""
    texts = {"pkg/ops/a.py": OPS, "run.py": b"from pkg.ops.a import scale\n"}
    sources = read_sources(texts)
    assert (sources.modules["pkg/ops/a.py"], sources.path) == ("pkg.ops.a", (".",))


def test_what_is_imported_under_a_condition_is_not_required() -> None:
    text = b"import lxml\ntry:\n    import flash_attn\nexcept ImportError:\n    pass\n"
    assert read_sources({"a.py": text}).required == {"lxml"}


def test_a_script_imports_what_lies_beside_it_from_its_own_folder() -> None:
    """The samples of cutile-python do: without their folder, a watch file that imports them does not load."""
    script = b"from utils.timing import report\n" + OPS + b"\nif __name__ == '__main__':\n    scale(1)\n"
    texts = {"samples/__init__.py": b"", "samples/scaling.py": script, "tests/test_it.py": b"import samples.scaling"}
    beside = {"samples/utils/timing.py": b"def report(): ..."}
    assert read_sources({**texts, **beside}).path == (".", "samples")
    assert read_sources({**texts, "utils/timing.py": b""}).path == (".",)

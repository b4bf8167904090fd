"""Each place that opens files by path, and whose files they are. What a commit brought is opened in the sandbox alone:
a link in it may name a terminal, and a file may have no end."""

import ast
from collections.abc import Iterator
from pathlib import Path

import tilewatch

PACKAGE = Path(tilewatch.__file__).parent
ROOMS = ("kernels", "worker", "db", "")
OPENING = {"open", "read_text", "read_bytes", "copytree", "copyfile", "copy2"}

IN_SANDBOX = {
    "kernels/compiling/compiler_input.py:LinkedLibrary.read",
    "kernels/compiling/compiler_input.py:compile_input",
    "kernels/compiling/compiler_input.py:make_input.stop",
    "kernels/compiling/cubin.py:read_static_facts",
    "kernels/catalog/loading.py:_read",
    "kernels/watching/project.py:_hash_tree",
}
"""Files of a commit, read by the child process that runs it."""

GUARDED = {"tilewatch/given_files.py:open_given", "kernels/recording/recording_file.py:_read_lines"}
"""Files of anybody: only regular ones, up to a size."""

OURS = {
    "db/server/embedded.py:_lock",
    "db/server/embedded.py:find_holder",
    "db/server/embedded.py:_passwords",
    "db/server/embedded.py:write_private",
    "db/server/programs.py:_copied",
    "kernels/children/child_process.py:ChildProcess.__init__",
    "kernels/compiling/compiler_guard.py:CompilerGuard._watch",
    "kernels/compiling/deferred_nvcc.py:DeferredNvcc._compile",  # flags of DeepGEMM, left by the process that measures
    "kernels/compiling/local_cubins.py:LocalCubins.send",
    "kernels/gpu/loaded_libraries.py:read_loaded_versions",
    "kernels/gpu/profiled_launches.py:_wait_for",
    "kernels/toolchains/mixing.py:_link_package",  # pip's own
    "kernels/gpu/health/xid_watch.py:KernelLog.open",
    "kernels/gpu/health/xid_watch.py:Watch.__init__",
    "kernels/children/compile_cache.py:_lock",
    "kernels/children/compile_cache.py:_make",
    "kernels/children/compile_cache.py:_remove_unused",
    "kernels/children/environments.py:_remove_unused",
    "kernels/children/environments.py:provide",
    "kernels/measuring/gpu_turn.py:_open",
    "kernels/measuring/journal.py:Journal.__enter__",
    "kernels/measuring/other_processes.py:_describe_process",
    "kernels/recording/recording_file.py:write",
    "kernels/children/sandbox.py:_allow",
    "kernels/children/sandbox.py:find_need_of_root",
    "kernels/toolchains/install.py:_hold_lock",
    "kernels/toolchains/toolchain.py:_read",
    "kernels/comparing/toolchains/reproduce.py:_describe_sass",
    "kernels/comparing/toolchains/reproduce.py:_write_sass",
    "kernels/comparing/toolchains/time_pair.py:time_one_process",
    "db/server/free_ports.py:_draw_port",
    "tilewatch/processes.py:last_words",
    "worker/git/owner_python.py:find",
    "tilewatch/processes.py:list_children",
    "tilewatch/processes.py:measure_resident",
    "tilewatch/processes.py:measure_usage",
    "tilewatch/processes.py:open_log",
    "worker/git/clones.py:_locked",
    "worker/gpu/baseline_kernels.py:prepare",
    "worker/gpu/uncounted.py:_read",
    "worker/gpu/uncounted.py:read_counters",
    "worker/local/watchdog.py:start",
    "worker/process/metrics_folder.py:_is_used",
    "worker/process/metrics_folder.py:count_in",
    "worker/process/progress.py:count_switches",
    "worker/settings.py:Settings.connection",
    "worker/steps/spool.py:_sync",
    "worker/steps/spool.py:keep",
    "worker/steps/spool.py:read",
}
"""Files that Tilewatch or the system wrote."""

OF_THE_CALLER = {
    "kernels/comparing/toolchains/reproduce.py:write_case",  # copies links as links
    "tilewatch/tuned.py:_choose_table",
    "tilewatch/tuned.py:read_tables",
    "worker/cli/toolchains/group.py:add",
    "worker/git/working_tree.py:copy_working_tree",  # copies links as links
}
"""Files of the person who runs the command, or who set the node up."""


def list_openings() -> Iterator[str]:
    for room in ROOMS:
        folder = PACKAGE / room
        for file in sorted(folder.rglob("*.py") if room else folder.glob("*.py")):
            if "migrations" in file.parts or file.is_relative_to(PACKAGE / "kernels" / "library"):
                continue
            name = f"{room or 'tilewatch'}/{file.relative_to(folder)}"
            yield from (f"{name}:{function}" for function in find_openings(ast.parse(file.read_text()), ""))


def find_openings(node: ast.AST, function: str) -> Iterator[str]:
    for each in ast.iter_child_nodes(node):
        named = isinstance(each, ast.FunctionDef | ast.ClassDef)
        within = f"{function}.{each.name}".strip(".") if named else function
        if isinstance(each, ast.Call) and name_of(each.func) in OPENING:
            yield function
        yield from find_openings(each, within)


def name_of(called: ast.expr) -> str:
    if isinstance(called, ast.Attribute):
        return called.attr
    return called.id if isinstance(called, ast.Name) else ""


def test_every_place_that_opens_files_says_whose_they_are() -> None:
    assert set(list_openings()) == IN_SANDBOX | GUARDED | OURS | OF_THE_CALLER


def test_a_new_place_is_found() -> None:
    source = "class Reader:\n    def read(self, path):\n        return path.read_text()\n"
    assert list(find_openings(ast.parse(source), "")) == ["Reader.read"]

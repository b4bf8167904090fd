"""Compiles configs into the cubin store, one at a time in child processes that can be killed.

One runs a library and says what its config launches; another, which runs no library, compiles that. The compiler has a
limit of CPU time and a longer one of wall time; the child has a still longer one, for a compiler that ignores both. A
failing config is an outcome, never an exception.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tilewatch.kernels.children.child_process import ChildDied, ChildHung
from tilewatch.kernels.compiling.compile_children import BuildError, CompileChildren
from tilewatch.kernels.compiling.local_cubins import LocalCubins
from tilewatch.kernels.compiling.store import StoreError, is_final
from tilewatch.kernels.library_errors import PackageMissing
from tilewatch.kernels.results import Compiled, Params, StaticFacts
from tilewatch.kernels.toolchains.toolchain import Toolchain
from tilewatch.kernels.toolchains.versions import compiler_version

LIMIT_S = 15.0
"""CPU seconds that a config may take. 31 to 35 configs of the 500-config FP8 space take longer, and none of them is
fast (H200 machine, 2026-11)."""

WALL_LIMITS = 8
"""A compiler is stopped after this many times its limit in wall time, whatever CPU time it got: it hangs, or the
machine is so busy that others wait too long. Such a timeout is not final (kernels/compiling/store.py)."""

SLACK_S = 30.0
"""Start of the child, bytecode and static facts, on a busy machine."""


MEMORY_BYTES = 5 << 28
"""The configs that never end take 2 to 3 GiB within LIMIT_S, those that end in time 120 to 500 MiB (sm_90 and sm_100,
tileiras 13.4, 2026-11), of resident memory. Two compilers and everything else then fit a machine with 4 GiB."""


@dataclass(frozen=True)
class CodeIdentity:
    """Names the code of a config: equal identities are equal code, launched alike. Both names are None if the kernel is
    not valid code."""

    content_key: str | None = None
    launch_sha256: str | None = None
    failure: str | None = None


class Compiler:
    """Compiles for as long as it is open. Not thread-safe: one per process or thread."""

    def __init__(
        self,
        store_url: str,
        *,
        limit_s: float = LIMIT_S,
        wall_limit_s: float | None = None,
        memory_bytes: int = MEMORY_BYTES,
        toolchain: Toolchain | None = None,
    ) -> None:
        """`limit_s` is CPU time; `wall_limit_s` is WALL_LIMITS times as long, unless it is given. `toolchain` compiles;
        None is the installed one. Raises StoreError."""
        self._cubins = LocalCubins(store_url)
        self.limit_s = limit_s
        self.wall_limit_s = WALL_LIMITS * limit_s if wall_limit_s is None else wall_limit_s
        self.memory_bytes = memory_bytes
        self._packages = toolchain.folder.absolute() if toolchain is not None and toolchain.folder is not None else None
        self._children = CompileChildren(self._packages, self._cubins)

    @property
    def version(self) -> str:
        """Names everything that compiles here in one line, with the limits, since a timeout is an outcome too.

        Raises BuildError where the child of a toolchain in a folder, which alone knows what it imports, does not start.
        """
        return f"{self._read_toolchain_version()} limit {self.limit_s:g}s {self.memory_bytes / 2**30:g}GiB"

    def compile(
        self, library: Path, kernel: str, problem: str, config: Params, arch: str, *, code_key: str | None = None
    ) -> Compiled:
        """Compiles one config; where its host code cannot run here, what was traced elsewhere under `code_key`.

        Raises BuildError when nothing could compile here, whatever the config, PackageMissing when the host code needs
        a package and nothing is traced, and StoreError when the store cannot be used.
        """
        request = self._request(library, kernel, problem, config, arch)
        try:
            traced = self._read("read", request)
        except PackageMissing:
            found = None if code_key is None else self._cubins.store.find_traced(self._traced_key(code_key))
            if found is None:
                raise
            traced = found
        except ChildHung:
            return self._failed(
                "timeout", f"the library did not answer within {self._patience_s:g} s", arch, self._patience_s
            )
        except ChildDied as died:
            return self._failed("error", f"the library's process died: {died}", arch, 0.0)
        return self._compile({**request, "traced": traced})

    def trace(
        self, library: Path, kernel: str, problem: str, config: Params, arch: str, *, code_key: str
    ) -> Mapping[str, Any]:
        """Writes what a config launches into the store, for machines that cannot run its host code, and returns it
        (config_code.py says in what form). Raises like `compile`, but that a config that is not valid code is traced
        as such."""
        request = self._request(library, kernel, problem, config, arch)
        try:
            traced = self._read("trace", request)
        except (ChildHung, ChildDied) as died:
            raise BuildError(f"{kernel} on {problem} with {config} cannot be traced: {died}") from None
        self._cubins.store.put_traced(self._traced_key(code_key), traced)
        return traced

    def _traced_key(self, code_key: str) -> str:
        """Returns the key of traced code. It names the toolchain, because bytecode of one toolchain is not fed to
        another."""
        if self._packages is None:
            return code_key
        return hashlib.sha256(f"{code_key} {self._read_toolchain_version()}".encode()).hexdigest()

    def _compile(self, request: Mapping[str, Any]) -> Compiled:
        arch = request["arch"]
        if self._cubins.remote is not None:  # which the child cannot ask
            key = self._name(request).content_key
            stored = None if key is None else self._cubins.remote.outcome(key)
            if stored is not None and is_final(stored, self.limit_s):
                return self._outcome({**stored, "reused": True}, arch)
        try:
            answer = self._ask("compile", request)
        except ChildHung:
            return self._failed(
                "timeout", f"the compiler did not stop within {self._patience_s:g} s", arch, self._patience_s
            )
        except ChildDied as died:
            return self._failed("error", f"the compiler process died: {died}", arch, 0.0)
        self._cubins.send()
        return self._outcome(answer, arch)

    def identify(self, library: Path, kernel: str, problem: str, config: Params, arch: str) -> CodeIdentity:
        """Names a config's code by its bytecode, which takes no compiler. Raises like `compile`."""
        request = self._request(library, kernel, problem, config, arch)
        try:
            traced = self._read("identify", request)
        except (ChildHung, ChildDied) as died:
            return CodeIdentity(failure=f"the library's process died: {died}")
        return self._name({**request, "traced": traced})

    def _name(self, request: Mapping[str, Any]) -> CodeIdentity:
        try:
            answer = self._ask("identify", request)
        except (ChildHung, ChildDied) as died:
            return CodeIdentity(failure=f"the compiler process died: {died}")
        return CodeIdentity(answer["content_key"], answer.get("launch_sha256"), answer.get("failure"))

    def close(self) -> None:
        """Ends the children at once, also in the middle of a compile."""
        self._children.close()
        self._cubins.close()

    def kill(self) -> None:
        """Ends the compile under way from another thread; its outcome is an error. `close` is still to be called."""
        self._children.kill()

    @property
    def _patience_s(self) -> float:
        return self.wall_limit_s + SLACK_S

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _request(self, library: Path, kernel: str, problem: str, config: Params, arch: str) -> Mapping[str, Any]:
        return {
            "library": str(library),
            "kernel": kernel,
            "problem": problem,
            "config": dict(config),
            "arch": arch,
            "store": self._cubins.url,
            "limit_s": self.limit_s,
            "wall_limit_s": self.wall_limit_s,
            "memory_bytes": self.memory_bytes,
        }

    def _read(self, ask: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns what the library's process says of a config (traced_code.py), which nobody has checked. Raises
        ChildDied or ChildHung too."""
        child = self._children.find_tracer(request["library"])
        answer = child.ask({**request, "ask": ask}, deadline_s=self._patience_s)
        if "package_missing" in answer:
            raise PackageMissing(str(answer["package_missing"]))
        if "error" in answer:
            raise BuildError(str(answer["error"]))
        traced = answer.get("traced")
        if not isinstance(traced, dict):  # a library found the descriptor and wrote to it
            child.close()
            raise ChildDied("its answer is not what was asked for")
        return traced

    def _ask(self, ask: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        answer = self._children.find_compiler().ask({**request, "ask": ask}, deadline_s=self._patience_s)
        if "store_error" in answer:
            raise StoreError(answer["store_error"])
        if "error" in answer:
            raise BuildError(answer["error"])
        return answer

    def _read_toolchain_version(self) -> str:
        """Asks the child. That of the installed toolchain is not started for it: a plan often compiles nothing."""
        return compiler_version() if self._packages is None else self._children.read_version()

    def _failed(self, status: Any, failure: str, arch: str, compile_s: float) -> Compiled:
        return Compiled(status, self.version, arch, compile_s, 0.0, reused=False, failure=failure)

    def _outcome(self, answer: Mapping[str, Any], arch: str) -> Compiled:
        facts = answer.get("facts")
        return Compiled(
            status=answer["status"],
            compiler=self.version,
            arch=arch,
            compile_s=answer["compile_s"],
            cpu_s=answer["cpu_s"],
            reused=answer.get("reused", False),
            failure=answer.get("failure"),
            content_key=answer["content_key"],
            code_sha256=answer.get("code_sha256"),
            symbol=answer.get("symbol"),
            facts=StaticFacts(**{**facts, "remarks": tuple(facts["remarks"])}) if facts else None,
        )

"""Compiles configs into the cubin store, one at a time, in child processes that can be killed.

One child traces the launches of a config, and another compiles them. A failing config raises no exception."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tilewatch.kernels.children.child_process import ChildDied, ChildHung
from tilewatch.kernels.compiling.compile_children import BuildError, CompileChildren
from tilewatch.kernels.compiling.local_cubins import LocalCubins
from tilewatch.kernels.compiling.store import StoreError, require_room
from tilewatch.kernels.library_errors import PackageMissing
from tilewatch.kernels.results import PROCESS_DIED, Compiled, Params, StaticFacts, is_final
from tilewatch.kernels.toolchains.toolchain import Toolchain
from tilewatch.kernels.toolchains.versions import compiler_version, describe_other_compiler

LIMIT_S = 15.0
"""CPU seconds that a config may take to compile. 31 to 35 of the 500 configs in the space of the FP8 kernel take
longer, and no such config is fast (H200, 2026-11)."""

WALL_LIMITS = 8
"""Wall time after which a compiler is stopped, as a multiple of its limit of CPU time. The compiler then hangs, or the
machine is too busy, so such a timeout is not final (kernels/compiling/store.py)."""

SLACK_S = 30.0
"""Seconds added to the wall limit for starting the child, making bytecode and reading static facts."""

MEMORY_BYTES = 5 << 28
"""Most resident memory of a compiler. Compilations that never end take 2 to 3 GiB within LIMIT_S, all others 120 to 500
MiB (sm_90 and sm_100, tileiras 13.4, 2026-11). Two compilers fit a machine with 4 GiB."""


@dataclass(frozen=True)
class CodeIdentity:
    """Hashes of a config's code and of its launch arguments. If the code is invalid, both hashes are None."""

    content_key: str | None = None
    launch_sha256: str | None = None
    failure: str | None = None


class Compiler:
    """Compiles configs until it is closed. Each thread needs its own compiler."""

    def __init__(
        self,
        store_url: str,
        *,
        limit_s: float = LIMIT_S,
        wall_limit_s: float | None = None,
        memory_bytes: int = MEMORY_BYTES,
        toolchain: Toolchain | None = None,
    ) -> None:
        """Makes a compiler that stores cubins at a URL. `limit_s` is CPU time."""
        self._cubins = LocalCubins(store_url)
        self.limit_s = limit_s
        self.wall_limit_s = WALL_LIMITS * limit_s if wall_limit_s is None else wall_limit_s
        self.memory_bytes = memory_bytes
        self._packages = toolchain.folder.absolute() if toolchain is not None and toolchain.folder is not None else None
        self._children = CompileChildren(self._packages, self._cubins)

    @property
    def version(self) -> str:
        """Returns the compiler's version, CPU time limit and memory limit in one line."""
        return f"{self._read_toolchain_version()} limit {self.limit_s:g}s {self.memory_bytes / 2**30:g}GiB"

    def compile(
        self, library: Path, kernel: str, problem: str, config: Params, arch: str, *, code_key: str | None = None
    ) -> Compiled:
        """Compiles a config and returns the outcome. Raises BuildError, or PackageMissing for a missing package."""
        request = self._make_request(library, kernel, problem, config, arch)
        try:
            traced = self._ask_tracer("read", request)
        except PackageMissing as missing:
            if code_key is None:
                raise
            missing.compiler = self._read_toolchain_version()
            # Another machine may have traced it.
            found = self._cubins.store.find_traced(_make_traced_key(code_key, missing.compiler))
            if found is None:
                raise
            traced = found
        except ChildHung:
            return self._make_failure(
                "timeout", f"the library did not answer within {self._deadline_s:g} s", arch, self._deadline_s
            )
        except ChildDied as died:
            return self._make_failure("error", f"the library's {PROCESS_DIED}{died}", arch, 0.0)
        return self._compile({**request, "traced": traced})

    def trace(
        self,
        library: Path,
        kernel: str,
        problem: str,
        config: Params,
        arch: str,
        *,
        code_key: str,
        compiler: str | None = None,
    ) -> Mapping[str, Any]:
        """Traces a config's launches, stores them for other machines, and returns them as JSON. Raises BuildError."""
        wanted = compiler or self._read_toolchain_version()
        request = self._make_request(library, kernel, problem, config, arch)
        try:
            traced = self._ask_tracer("trace", request)
        except (ChildHung, ChildDied) as died:
            raise BuildError(f"{kernel} on {problem} with {config} cannot be traced: {died}") from None
        if traced.get("compiler") != wanted:  # who asked would not find it, and would ask again
            raise BuildError(describe_other_compiler(traced.get("compiler"), wanted))
        self._cubins.store.put_traced(_make_traced_key(code_key, wanted), traced)
        return traced

    def _compile(self, request: Mapping[str, Any]) -> Compiled:
        arch = request["arch"]
        if self._cubins.remote is not None:  # the child has no credentials for it
            key = self._identify_code(request).content_key
            stored = None if key is None else self._cubins.remote.outcome(key)
            if stored is not None and is_final(stored, self.limit_s):
                return self._make_outcome({**stored, "reused": True}, arch)
        try:
            answer = self._ask_compiler("compile", request)
        except ChildHung:
            return self._make_failure(
                "timeout", f"the compiler did not stop within {self._deadline_s:g} s", arch, self._deadline_s
            )
        except ChildDied as died:
            return self._make_failure("error", f"the compiler {PROCESS_DIED}{died}", arch, 0.0)
        self._cubins.send()
        return self._make_outcome(answer, arch)

    def identify(self, library: Path, kernel: str, problem: str, config: Params, arch: str) -> CodeIdentity:
        """Returns hashes of a config's code and launch arguments, without compiling."""
        request = self._make_request(library, kernel, problem, config, arch)
        try:
            traced = self._ask_tracer("identify", request)
        except (ChildHung, ChildDied) as died:
            return CodeIdentity(failure=f"the library's {PROCESS_DIED}{died}")
        return self._identify_code({**request, "traced": traced})

    def _identify_code(self, request: Mapping[str, Any]) -> CodeIdentity:
        try:
            answer = self._ask_compiler("identify", request)
        except (ChildHung, ChildDied) as died:
            return CodeIdentity(failure=f"the compiler {PROCESS_DIED}{died}")
        return CodeIdentity(answer["content_key"], answer.get("launch_sha256"), answer.get("failure"))

    def close(self) -> None:
        """Kills the children at once, even during a compilation."""
        self._children.close()
        self._cubins.close()

    def kill(self) -> None:
        """Stops a compilation that another thread runs. Call `close` afterwards."""
        self._children.kill()

    @property
    def _deadline_s(self) -> float:
        return self.wall_limit_s + SLACK_S

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make_request(self, library: Path, kernel: str, problem: str, config: Params, arch: str) -> Mapping[str, Any]:
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

    def _ask_tracer(self, ask: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the launches that the tracing child sends, as unchecked JSON."""
        child = self._children.find_tracer(request["library"])
        answer = child.ask({**request, "ask": ask}, deadline_s=self._deadline_s)
        if "package_missing" in answer:
            raise PackageMissing(str(answer["package_missing"]))
        if "error" in answer:
            raise BuildError(str(answer["error"]))
        traced = answer.get("traced")
        if not isinstance(traced, dict):  # the library's code wrote to the child's answer pipe
            child.close()
            raise ChildDied("its answer is not what was asked for")
        return traced

    def _ask_compiler(self, ask: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        child = self._children.find_compiler()
        answer = child.ask({**request, "ask": ask, "made": self._cubins.made}, deadline_s=self._deadline_s)
        if "store_error" in answer:
            raise StoreError(answer["store_error"])
        if "error" in answer:
            raise BuildError(answer["error"])
        return answer

    def _read_toolchain_version(self) -> str:
        """Returns the compiler's version."""
        # Only a toolchain needs a child for this, and some plans compile nothing.
        return compiler_version() if self._packages is None else self._children.read_version()

    def _make_failure(self, status: Any, failure: str, arch: str, compile_s: float) -> Compiled:
        require_room()
        return Compiled(status, self.version, arch, compile_s, 0.0, reused=False, failure=failure)

    def _make_outcome(self, answer: Mapping[str, Any], arch: str) -> Compiled:
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


def _make_traced_key(code_key: str, compiler: str) -> str:
    """Returns the store key of traced code. Other compiler versions cannot read this code."""
    return hashlib.sha256(f"{code_key} {compiler}".encode()).hexdigest()

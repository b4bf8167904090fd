"""Finds the kernels whose code differs between two library folders. Equal code is neither compiled nor timed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tilewatch.configs import config_option
from tilewatch.kernels.comparing.code_sentences import write_code_sentences
from tilewatch.kernels.comparing.configs import Candidates, ConfigSource, RecordedWinner, choose_configs
from tilewatch.kernels.comparing.outcome import Outcome, OutcomeKind, list_moves
from tilewatch.kernels.comparing.targets import Library, Target
from tilewatch.kernels.compiling.compiler import CodeIdentity, Compiler
from tilewatch.kernels.compiling.compiler_pool import CompilerPool
from tilewatch.kernels.compiling.store import CubinStore
from tilewatch.kernels.results import Compiled, Cubin, Params
from tilewatch.metrics import Metric


@dataclass(frozen=True)
class Code:
    """The code of one config in one version. `compiled` is None before compiling."""

    config: Params
    identity: CodeIdentity
    compiled: Compiled | None = None

    @property
    def cubin(self) -> Cubin | None:
        """Returns the cubin of this config, or None if it did not compile."""
        return None if self.compiled is None else self.compiled.find_cubin(self.config)

    @property
    def machine_code(self) -> tuple[str | None, str | None]:
        """Returns hashes of the instructions and of the launch. If both are equal, the GPU runs the same code."""
        return (None if self.compiled is None else self.compiled.code_sha256, self.identity.launch_sha256)


@dataclass(frozen=True)
class Changed:
    """The code of a kernel and problem in both versions, by config, the preferred config first."""

    target: Target
    source: ConfigSource
    base: tuple[Code, ...]
    head: tuple[Code, ...]
    code_sentence: str = ""
    """Says which source lines differ between the preferred configs' codes. Empty if no lines were compared."""

    def outcome(self, **fields: object) -> Outcome:
        base, head = self.base[0], self.head[0]
        facts = [None if code.compiled is None else code.compiled.facts for code in (base, head)]
        options = f"{config_option(base.config)} -> {config_option(head.config)}"
        configs = [] if base.config == head.config else [f"config {options}"]
        known = Outcome(
            self.target.kernel,
            self.target.problem,
            self.target.arch,
            "changed",
            moved=(*configs, *list_moves(*facts), *([f"code: {self.code_sentence}"] if self.code_sentence else [])),
            base_config=base.config,
            head_config=head.config,
            base_facts=facts[0],
            head_facts=facts[1],
            config_source=self.source,
        )
        return replace(known, **fields)  # type: ignore[arg-type]


@dataclass
class Comparison:
    """A comparison of two versions: its settings, and the outcomes so far. `gpu` is empty without a GPU."""

    base: Library
    head: Library
    gpu: str
    pool: CompilerPool
    winners: Callable[[], Sequence[RecordedWinner]]
    source: ConfigSource = ConfigSource.auto
    given: Candidates | None = None
    may_race: bool = True
    metric: Metric = "time"
    outcomes: dict[Target, Outcome] = field(default_factory=dict)

    def end(self, target: Target, kind: OutcomeKind, reason: str = "") -> None:
        """Sets the outcome of a target whose code was not compared."""
        self.outcomes[target] = Outcome(target.kernel, target.problem, target.arch, kind, reason)


def find_changed(comparison: Comparison, targets: Sequence[Target]) -> list[Changed]:
    """Returns the kernels and problems whose machine code differs. Sets the outcomes of all others."""
    compared = [each for each in targets if not _end_without_code(comparison, each)]
    if not compared:
        return []
    winners = () if comparison.given else comparison.winners()
    chosen: list[tuple[Target, Candidates]] = []
    for target in compared:
        candidates = comparison.given or choose_configs(
            target,
            comparison.gpu or target.arch,
            winners,
            comparison.source,
            may_sweep=bool(comparison.gpu) and comparison.may_race,
        )
        if candidates is None:
            comparison.end(target, "failed", f"there is no {comparison.source} of it to take a config from")
        else:
            chosen.append((target, candidates))
    identified = _identify(comparison, chosen)
    differing = [each for each in identified if not end_if_identical(comparison, each, _get_identity)]
    compiled = [each for each in _compile(comparison, differing) if not _end_if_broken(comparison, each)]
    return _explain(comparison, [each for each in compiled if not end_if_identical(comparison, each, machine_codes)])


def end_by_static_facts(comparison: Comparison, changed: Sequence[Changed]) -> None:
    for each in changed:
        has_moved = replace(each, code_sentence="").outcome().moved
        comparison.outcomes[each.target] = each.outcome() if has_moved else each.outcome(kind="unchanged")


def _end_without_code(comparison: Comparison, target: Target) -> bool:
    """Sets a target's outcome if its code need not be compared. Returns whether the outcome was set."""
    if target.failure is not None:
        comparison.end(target, "neither" if target.is_left_out else "failed", target.failure)
        return True
    if target.base is None or target.head is None:
        comparison.end(target, "added" if target.base is None else "removed")
        return True
    given = comparison.given
    if not target.has_same_source or (given is not None and given.base != given.head):
        return False
    comparison.end(target, "identical")
    return True


def _identify(comparison: Comparison, chosen: Sequence[tuple[Target, Candidates]]) -> list[Changed]:
    def work(target: Target, library: Library, config: Params, compiler: Compiler) -> Code:
        named = compiler.identify(library.folder, target.kernel, target.problem, config, target.arch)
        return Code(config, named)

    works = []
    for target, candidates in chosen:
        works += [partial(work, target, comparison.base, config) for config in candidates.base]
        works += [partial(work, target, comparison.head, config) for config in candidates.head]
    codes = iter(comparison.pool.run_all(works))
    return [
        Changed(
            target,
            candidates.source,
            tuple(next(codes) for _ in candidates.base),
            tuple(next(codes) for _ in candidates.head),
        )
        for target, candidates in chosen
    ]


def _compile(comparison: Comparison, differing: Sequence[Changed]) -> list[Changed]:
    """Returns the targets with their compiled code. Equal code is compiled once."""
    wanted: dict[tuple[str | None, str], tuple[Target, Library, Params]] = {}
    for each in differing:
        for library, codes in ((comparison.base, each.base), (comparison.head, each.head)):
            for code in codes:
                if code.identity.content_key is not None:
                    key = (code.identity.content_key, each.target.arch)
                    wanted.setdefault(key, (each.target, library, code.config))

    works = [partial(target.compile, library.folder, config) for target, library, config in wanted.values()]
    done = comparison.pool.run_all(works)
    compiled = dict(zip(wanted, done, strict=True))

    def finish(codes: Sequence[Code], arch: str) -> tuple[Code, ...]:
        return tuple(replace(code, compiled=compiled.get((code.identity.content_key, arch))) for code in codes)

    return [
        replace(each, base=finish(each.base, each.target.arch), head=finish(each.head, each.target.arch))
        for each in differing
    ]


def _explain(comparison: Comparison, changed: Sequence[Changed]) -> list[Changed]:
    pairs = {each.target: _find_key_pair(each) for each in changed}
    wanted = [pair for pair in pairs.values() if pair is not None]
    sentences = write_code_sentences(CubinStore(comparison.pool.store_url), wanted, jobs=comparison.pool.jobs)
    return [
        each if (pair := pairs[each.target]) is None else replace(each, code_sentence=sentences[pair])
        for each in changed
    ]


def _find_key_pair(changed: Changed) -> tuple[str, str] | None:
    """Returns the keys of the base's and the head's cubins in the store, or None if a cubin is missing."""
    base, head = changed.base[0].cubin, changed.head[0].cubin
    return None if base is None or head is None else (base.content_key, head.content_key)


def _end_if_broken(comparison: Comparison, each: Changed) -> bool:
    """Sets the outcome if no config compiles in one version or in both. Returns whether the outcome was set."""
    failures = [{_find_failure(code) for code in codes} for codes in (each.base, each.head)]
    if failures[0] == failures[1] and None not in failures[0]:
        comparison.outcomes[each.target] = each.outcome(kind="neither", reason=_find_failure(each.head[0]))
        return True
    for library, codes in ((comparison.base, each.base), (comparison.head, each.head)):
        if not any(code.cubin for code in codes):
            comparison.end(each.target, "failed", f"{library.name} does not compile: {_find_failure(codes[0])}")
            return True
    return False


def _find_failure(code: Code) -> str | None:
    return code.identity.failure or (code.compiled.failure if code.compiled else None)


def end_if_identical(comparison: Comparison, each: Changed, name: Callable[[Code], object]) -> bool:
    """Sets a target's outcome if both versions have equal code for all configs. Returns whether it was set."""
    named = [{config_option(code.config): name(code) for code in codes} for codes in (each.base, each.head)]
    if len(each.base) == len(each.head) == 1:
        named = [dict.fromkeys([""], name(codes[0])) for codes in (each.base, each.head)]
    same = named[0] == named[1] and any(code is not None for code in named[0].values())
    if same:
        comparison.outcomes[each.target] = each.outcome(kind="identical", moved=())
    return same


def _get_identity(code: Code) -> object:
    return None if code.identity.content_key is None else code.identity


def machine_codes(code: Code) -> object:
    return None if code.cubin is None else code.machine_code

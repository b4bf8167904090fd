"""Measures on NVIDIA GPUs, through the child processes of kernels/measuring."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tilewatch.db.lifecycle.quarantine import OpenQuarantine
from tilewatch.kernels import HARNESS
from tilewatch.kernels.checklist.of_winner import add_checklist
from tilewatch.kernels.children import gpu_user
from tilewatch.kernels.children.child_process import ChildProcess
from tilewatch.kernels.comparing.gpu_bench import open_bench
from tilewatch.kernels.device import Gpu, processes_on
from tilewatch.kernels.gpu.health import watcher
from tilewatch.kernels.gpu.health.illness import Reading
from tilewatch.kernels.gpu.health.watcher import NoAnswer, Watcher
from tilewatch.kernels.measuring.baseline_cache import SeriesToPrepare
from tilewatch.kernels.measuring.journal import Journal, journal_path
from tilewatch.kernels.measuring.kept_process import KeptProcess
from tilewatch.kernels.measuring.measure import MeasureRequest, count_run, measure_uncounted
from tilewatch.kernels.measuring.pair_bench import PairBench, ReplaySide
from tilewatch.kernels.measuring.replay import ReplayRequest, ReplayResult, replay
from tilewatch.kernels.results import Cubin, PlannedTrial, RunResult, TrialResult
from tilewatch.kernels.toolchains.toolchain import list_toolchains
from tilewatch.metrics import split_kernel
from tilewatch.worker.context import Context
from tilewatch.worker.git import watched
from tilewatch.worker.gpu import baseline_kernels, uncounted
from tilewatch.worker.gpu.sweep_to_measure import SweepToMeasure
from tilewatch.worker.gpu.visible_gpu import require_driver, require_packages, visible_gpu
from tilewatch.worker.queue.replay_job import BuildSide, ReplayJob

kept = KeptProcess()
"""The process that measured the last series, kept open for the next one. Each process of the pool has its own."""


@dataclass(frozen=True)
class RealGpu:
    """An NVIDIA GPU of one of the models in `gpu_models`. CUDA_VISIBLE_DEVICES selects the GPU."""

    gpu_models: frozenset[str]
    context: Context

    @property
    def host(self) -> str:
        return self.context.node

    def own_gpu(self) -> Gpu:
        return visible_gpu(self.gpu_models)

    def require_software(self, gpu: Gpu) -> None:
        require_driver(gpu)
        require_packages()

    def find_need_of_root(self, gpu: Gpu) -> str | None:
        """Returns the reason why host code on this GPU must run as root; None if another user can run host code."""
        return gpu_user.find_refusal(gpu.uuid, ChildProcess) if gpu_user.is_of_root() else None

    def measure(self, sweep: SweepToMeasure, gpu: Gpu, *, on_trial: Callable[[TrialResult], None]) -> RunResult:
        """Measures a sweep. Reuses the trials that an interrupted attempt of the same job finished."""
        library = watched.library_at(self.context, sweep.facts.repository, sweep.facts.sha, sweep.library)
        together = sweep.together
        series = [SeriesToPrepare(library, kernel, problem, tuple(names)) for kernel, problem, names in together]
        needed = SeriesToPrepare(library, sweep.facts.kernel, sweep.facts.problem, sweep.baselines)
        baseline_kernels.prepare(self.context.baselines, series, gpu, self.context.store_url, needed)
        configs = sweep.choose_configs(gpu)
        planned = [PlannedTrial(each.params, each.content_key) for each in configs]
        identity = (sweep.job_key, gpu.uuid, gpu.driver, HARNESS)
        with Journal(journal_path(self.context.journals, planned, identity)) as journal:

            def trial_ended(trial: TrialResult) -> None:
                journal.add(trial)
                on_trial(trial)

            request = MeasureRequest(
                library=library,
                kernel=sweep.facts.kernel,
                problem=sweep.facts.problem,
                arch=sweep.facts.arch,
                store_url=self.context.store_url,
                cubins=tuple(Cubin(each.params, each.content_key, each.symbol) for each in configs),
                gpu_index=gpu.index,
                baselines=sweep.baselines,
                earlier=dict(journal.trials),  # not from the database: another GPU may have measured those
                ships=sweep.ships,
                host=self.context.node,
                environments=list_toolchains(self.context.baseline_environments),
                counted=sweep.counted,
                drawn=tuple(each.params for each in configs if each.drawn),
                wide=sweep.facts.reason == "manual",  # a person who wants drawn configs wants all of them
            )
            run = measure_uncounted(request, on_trial=trial_ended, kept=kept)
            if len(configs) < len(sweep.configs) and sweep.last_sweep is not None:
                run = replace(run, result=run.result.note(last_sweep=f"{sweep.last_sweep.swept_at:%Y-%m-%d}"))
            result = count_run(run, self.context.store_url, gpu, request.counted, uncounted.refuse_for_now)
            is_counted = any("counters" in each.detail for each in result.measurements if each.role == "kernel")
            if not isinstance(run.described, str) and run.configs and not is_counted:
                uncounted.keep(self.context.uncounted, result.key, gpu, run, request)
            else:
                result = add_checklist(result, request, tuple(request.cubins))
            journal.delete()
        return result

    def replay(self, asked: ReplayJob, gpu: Gpu, *, on_launch: Callable[[int], None]) -> ReplayResult:
        """Times two builds side by side and returns the result."""
        question = asked.question
        kernel, metric = split_kernel(question.kernel)
        request = ReplayRequest(
            kernel=kernel,
            problem=question.problem,
            arch=question.arch,
            store_url=self.context.store_url,
            base=self._side(asked, question.base),
            head=self._side(asked, question.head),
            launches=question.launches,
            gpu_index=gpu.index,
            host=self.context.node,
            metric=metric,
        )
        return replay(request, on_launch=on_launch)

    def open_bench(self, gpu: Gpu) -> PairBench:
        return open_bench(gpu, self.context.store_url)

    def probe(self, gpu: Gpu) -> "RealProbe":
        return RealProbe(gpu.uuid)

    def _side(self, asked: ReplayJob, side: BuildSide) -> ReplaySide:
        assert side.code is not None, "the prepare step compiled it"
        cubin = Cubin(side.params, side.code.content_key, side.code.symbol)
        return ReplaySide(watched.library_at(self.context, asked.repository, side.sha, asked.library), cubin)


class RealProbe:
    def __init__(self, gpu_uuid: str) -> None:
        self._gpu_uuid = gpu_uuid
        self._watcher = Watcher(gpu_uuid)

    def look(self) -> Reading:
        return self._watcher.look()

    def canary(self, _: OpenQuarantine) -> Sequence[Reading]:
        """Runs a canary (a short test) and returns the readings. Raises NoAnswer if another process uses the GPU."""
        self._require_alone()
        readings = watcher.canary(self._gpu_uuid)
        self._require_alone()
        return readings

    def _require_alone(self) -> None:
        others = processes_on(self._gpu_uuid)
        if others:
            raise NoAnswer(f"no canary on {self._gpu_uuid}: it is in use by {', '.join(others)}")

    def close(self) -> None:
        self._watcher.close()

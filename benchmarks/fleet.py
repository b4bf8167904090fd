"""Writes a year of a simulated fleet straight into the tables. The dashboard's figures are measured on it.

Postgres makes every number from a seed. Every fifth series changes once in the year, so that there is something to
find. Toolchains change twice."""

import datetime as dt
import hashlib
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from sqlalchemy import text
from sqlalchemy.orm import Session

REPOSITORY = "https://example.org/kernels.git"
GPU_MODELS = (
    ("h100", "NVIDIA H100", "sm_90", 1979.0, 3350.0),
    ("h200", "NVIDIA H200", "sm_90", 1979.0, 4800.0),
    ("b200", "NVIDIA B200", "sm_100", 4500.0, 8000.0),
    ("gb200", "NVIDIA GB200", "sm_100", 5000.0, 8000.0),
    ("b300", "NVIDIA B300", "sm_103", 4500.0, 8000.0),
    ("rtx5080", "NVIDIA GeForce RTX 5080", "sm_120", 225.1, 960.0),
    ("rtx5090", "NVIDIA GeForce RTX 5090", "sm_120", 419.0, 1792.0),
    ("a100", "NVIDIA A100", "sm_80", None, 2039.0),
)
KERNELS = ("gemm_fp8", "gemm_bf16", "grouped_gemm_fp8", "attention", "mla_decode", "rms_norm")
PROBLEMS = (
    "128x7168x16384",
    "320x32576x7168",
    "1024x4096x7168",
    "2048x2048x4096",
    "4096x4096x4096",
    "4096x7168x2048",
    "8192x2048x8192",
    "64x24576x1536",
    "64x32768x512",
    "64x7168x2048",
)
TILES = (32, 64, 128, 192, 256)
NARROW = {"tile_m": (64, 128, 256), "tile_n": (64, 128, 256), "tile_k": (64, 128, 256), "num_ctas": (1, 2)}
WIDE = {"tile_m": TILES, "tile_n": TILES, "tile_k": TILES, "num_ctas": (1, 2), "occupancy": (1, 2)}
WIDE_KERNEL, WIDE_PROBLEM = "gemm_fp8_hinted", "320x32576x7168"
SWEEPS_AT_ONCE = 6_000
"""Number of sweeps whose trials are written by one statement. Postgres keeps a statement's pending checks in memory."""

POINTS = """
insert into runs (key, sweep_id, origin, host, gpu_uuid, gpu_name, timer, toolchain, toolchain_sha256, telemetry,
                  sweep_gpu_s, started_at, finished_at)
select 'sim/' || s.id, s.id, 'simulated', 'sim-' || s.gpu_model, 'GPU-' || s.gpu_model, g.name, 'simulated',
       t.toolchain,
       encode(sha256(convert_to(t.toolchain::text, 'UTF8')), 'hex'),
       jsonb_build_array(
         jsonb_build_object('when', 'before rounds', 'sm_clock_mhz', 1980, 'power_w', 410, 'temperature_c', 55,
                            'throttled', '[]'::jsonb, 'unix_s', extract(epoch from s.created_at)),
         jsonb_build_object('when', 'after rounds', 'sm_clock_mhz', 1935, 'power_w', 655, 'temperature_c', 61,
                            'throttled', '[]'::jsonb, 'unix_s', extract(epoch from s.created_at) + 1)),
       21.5, s.created_at, s.created_at + interval '90 s'
from sweeps s join gpu_models g on g.slug = s.gpu_model join commits c on c.id = s.commit_id,
     lateral (select jsonb_build_object('driver', case when c.position < :changed_at then '580.82' else '590.11' end,
                                        'cuda-tile', '1.7.0', 'harness', '0.1.0') as toolchain) t
where s.id > :after order by s.id;
"""
# DeepGEMM reaches 55 to 60 % of the GPU's datasheet. The kernel's time is a constant factor of that, with 0.4 % noise
# and a change in some series, so that no time beats the datasheet. The sweep's few samples do not change: they only
# choose a winner, which is not stored. An A100 has 312 TFLOP/s.
BASE = """
create temporary table sim_base on commit drop as
select kernel, problem, gpu_model, baseline_us, slowness, baseline_us * slowness as base_us
from (select distinct kernel, problem, gpu_model, flops, bytes from sweeps) s join gpu_models g on g.slug = gpu_model,
     lateral (select 2 + greatest(flops / 1e6 / coalesce(case when kernel like '%fp8%' then g.fp8_tflops
                                                         else g.fp8_tflops / 2 end, 312),
                                  bytes / 1e3 / g.bandwidth_gbps)
                         / (0.55 + 0.05 * (hashint8extended(hashtext(s.problem), 1) & 1023) / 1024.0) as baseline_us,
                     0.8 + 0.5 * (hashint8extended(hashtext(s.kernel || s.problem || s.gpu_model), 2) & 1023) / 1024.0
                     as slowness) t;
"""
TIMES = """
create temporary table sim_times on commit drop as
select r.id as run_id, s.kernel, s.id as sweep_id, s.commit_id,
       b.baseline_us,
       b.slowness
       * (1 + 0.004 * (random() + random() + random() - 1.5))
       * case when k.key % 5 = 0 and c.position >= (k.key / 5) % :nights then 0.86 + 0.24 * (k.key % 2) else 1 end
         as slowness
from runs r join sweeps s on s.id = r.sweep_id join commits c on c.id = s.commit_id
     join sim_base b using (kernel, problem, gpu_model),
     lateral (select hashint8extended(hashtext(s.gpu_model || s.problem || s.kernel), 3) & 65535 as key) k
where s.id > :after;
"""
MEASUREMENTS = """
insert into measurements (run_id, implementation, role, config_id, samples_us, median_us, low_us, high_us, ratio,
                          ratio_low, ratio_high, detail, baseline)
select t.run_id, m.name, m.role, case when m.role = 'kernel' then best.config_id end,
       (select array_agg(m.us * (1 + 0.003 * (random() - 0.5)) order by i) from generate_series(1, 30) i),
       m.us, m.us * 0.998, m.us * 1.002,
       t.baseline_us / m.us, t.baseline_us / m.us * 0.997, t.baseline_us / m.us * 1.003, '{}',
       'deepgemm'
from sim_times t,
     lateral (select config_id from trials w where w.sweep_id = t.sweep_id order by median_us nulls last limit 1) best,
     lateral (values (t.kernel, 'kernel', t.baseline_us * t.slowness), ('deepgemm', 'baseline', t.baseline_us),
                                  ('cublaslt', 'baseline', t.baseline_us * 1.07)) m(name, role, us)
order by t.run_id;
"""
# Verdicts follow the planted changes, without the judge's rule.
VERDICTS = """
insert into verdicts (run_id, verdict, change, noise, smallest, history_points, policy, reason)
select run_id, case when change > 0.05 then 'regression' when change < -0.05 then 'improvement' else 'unchanged' end,
       change, 0.004, 0.012, 20, 'simulated',
       format('time %s %% against 0.4 %% noise', round((100 * change)::numeric, 1))
from (
    select t.run_id, t.slowness / lag(t.slowness) over (partition by s.kernel, s.problem, s.gpu_model order by t.run_id)
                     - 1 as change
    from sim_times t join sweeps s on s.id = t.sweep_id
) steps
where change is not null;
"""
# One regression per kernel and commit, with every series that changed there, as a judge would have confirmed it.
REGRESSIONS = """
insert into regressions (key, direction, repository, kernel, category, cause, good_commit_id, bad_commit_id, size, low,
                         high, state, opened_at, changed_at)
select distinct on (v.verdict, s.kernel, c.id)
       format('sim/%s/%s/%s', v.verdict, s.kernel, c.id), v.verdict, c.repository, s.kernel, 'code',
       'A made step of the simulated fleet.', p.id, c.id, v.change, v.change - 0.004, v.change + 0.004,
       case when c.position < :old then 'resolved' else 'new' end, r.finished_at,
       r.finished_at + case when c.position < :old then interval '7 days' else interval '0' end
from verdicts v join runs r on r.id = v.run_id join sweeps s on s.id = r.sweep_id join commits c on c.id = s.commit_id
     join commits p on p.position = c.position - 1
where v.verdict in ('regression', 'improvement')
order by v.verdict, s.kernel, c.id, abs(v.change) desc;

insert into regression_series (regression_id, kernel, problem, gpu_model, run_id, size, low, high)
select g.id, s.kernel, s.problem, s.gpu_model, r.id, v.change, v.change - 0.004, v.change + 0.004
from verdicts v join runs r on r.id = v.run_id join sweeps s on s.id = r.sweep_id
     join regressions g on g.direction = v.verdict and g.kernel = s.kernel and g.bad_commit_id = s.commit_id;

insert into regression_events (regression_id, at, who, action, to_state)
select id, opened_at, 'tilewatch', 'open', 'new' from regressions;

insert into regression_events (regression_id, at, who, action, from_state, to_state)
select id, changed_at, 'tilewatch', 'resolve', 'new', 'resolved' from regressions where state = 'resolved';
"""
SWEEPS = """
insert into submissions (key, reason, night, commit_id, gpu_model, measure, requested_at)
select 'sim/' || c.sha || '/' || g.slug, 'nightly', c.committed_at::date, c.id, g.slug, true,
       c.committed_at + interval '2 h'
from commits c, gpu_models g where c.sha = :sha
on conflict do nothing;

insert into sweeps (submission_id, commit_id, repository, kernel, problem, gpu_model, arch, source_sha256, space,
                    space_size, flops, bytes, created_at)
select b.id, b.commit_id, c.repository, k.kernel, p.problem, b.gpu_model, g.arch, 'sim', cast(:space as jsonb),
       :configs, w.flops, w.bytes, b.requested_at
from submissions b join commits c on c.id = b.commit_id join gpu_models g on g.slug = b.gpu_model,
     unnest(cast(:kernels as text[])) as k(kernel), unnest(cast(:problems as text[])) as p(problem),
     lateral (select split_part(p.problem, 'x', 1)::bigint as m, split_part(p.problem, 'x', 2)::bigint as n,
                     split_part(p.problem, 'x', 3)::bigint as k,
                     case when k.kernel like '%fp8%' then 1 else 2 end as size) d,
     lateral (select case k.kernel when 'rms_norm' then 4 * d.m * d.n else 2 * d.m * d.n * d.k end as flops,
                     case k.kernel when 'rms_norm' then 4 * d.m * d.n
                     else d.size * d.k * (d.m + d.n) + 2 * d.m * d.n end as bytes) w
where c.sha = :sha;
"""
COMPILATIONS = """
insert into compilations (code_key, compiler, arch, status, failure, content_key, code_sha256, symbol, registers,
                          stack_bytes, shared_bytes, code_bytes, cubin_bytes, compile_s, cpu_s, tma_loads, loads,
                          tensor_core_mmas, mmas, host)
select format('sim/%s/%s/%s', k.kernel, a.arch, c.id), 'tileiras 13.4', a.arch, o.status,
       case when o.status = 'timeout' then 'not compiled within 15 s' end,
       case when o.status = 'ok' then 'sim' end,
       case when o.status = 'ok' then format('sim/%s/%s/%s', k.kernel, a.arch, c.id) end, k.kernel,
       64 + (c.id * 37) % 192, case when c.id % 4 = 0 then 512 else 0 end, 98304, 30000, 90000, 2.5, 2.4, 2, 2, 1, 1,
       'sim'
from unnest(cast(:kernels as text[])) as k(kernel), (select distinct arch from gpu_models) a, configs c,
     lateral (select case when c.id % 17 = 0 then 'timeout' else 'ok' end as status) o
where c.sha256 like :space_name || '/%';
"""
# How much slower each config is than the best is drawn again every 90 commits, so that winners change over a year.
TRIALS = """
insert into trials (sweep_id, config_id, code_key, compilation_id, status, failure, samples_us, median_us, error)
select s.id, k.config_id, null, k.id, case when k.status = 'ok' then 'timed' else 'not_compiled' end, k.failure,
       case when k.status = 'ok' then array[v.us, v.us * 1.001, v.us * 0.999] end,
       case when k.status = 'ok' then v.us end, case when k.status = 'ok' then 0.004 end
from sweeps s join commits c on c.id = s.commit_id join sim_base b using (kernel, problem, gpu_model)
     join sim_trials k on k.kernel = s.kernel and k.arch = s.arch,
     lateral (select (c.position + 15 * length(s.kernel)) / 90 as era) e,
     lateral (select b.base_us * (1 + 0.03 * ((k.config_id * 7919 + 13 * e.era) % 41)) * (1 + 0.004 * random()) as us) v
where s.id > :after and s.id <= :up_to
order by s.id, k.config_id;
"""


@dataclass(frozen=True)
class Fleet:
    """The size of the simulated fleet. By default it has 365 nights, 60 series per GPU model and 54 configs: 9.5
    million trials.

    In the last `wide_nights` nights one more kernel is swept over 500 configs on every GPU model."""

    nights: int = 365
    gpu_models: int = 8
    kernels: int = 6
    problems: int = 10
    wide_nights: int = 0
    last_night: dt.date = dt.date(2026, 11, 20)


def fill(session: Session, fleet: Fleet) -> None:
    """Writes the fleet into an empty migrated database. The caller commits.

    Triggers and foreign keys are off until the commit: half of the time would go into checks of rows that are right by
    design."""
    session.execute(text("set local session_replication_role = replica"))
    session.execute(text("select setseed(0.4)"))
    session.execute(
        text("insert into gpu_models values (:slug, :name, :arch, :fp8, :gbps)"),
        [
            dict(zip(("slug", "name", "arch", "fp8", "gbps"), model, strict=True))
            for model in GPU_MODELS[: fleet.gpu_models]
        ],
    )
    shas = _commits(session, fleet)
    kernels, problems = KERNELS[: fleet.kernels], PROBLEMS[: fleet.problems]
    _space(session, "narrow", NARROW, kernels)
    _space(session, "wide", WIDE, (WIDE_KERNEL,))
    session.execute(
        text(
            "create temporary table sim_trials on commit drop as "
            "select k.id, split_part(k.code_key, '/', 2) as kernel, k.arch, split_part(k.code_key, '/', 4)::bigint "
            "as config_id, k.code_key, k.status, k.failure from compilations k"
        )
    )
    for i, sha in enumerate(shas):
        _sweeps(session, sha, NARROW, kernels, problems)
        if i >= len(shas) - fleet.wide_nights:
            _sweeps(session, sha, WIDE, (WIDE_KERNEL,), (WIDE_PROBLEM,))
    session.execute(text(BASE))
    last = session.scalar(text("select max(id) from sweeps")) or 0
    for after in range(0, last, SWEEPS_AT_ONCE):
        session.execute(text(TRIALS), {"after": after, "up_to": after + SWEEPS_AT_ONCE})
    session.execute(text(POINTS), {"after": 0, "changed_at": fleet.nights // 2})
    session.execute(text(TIMES), {"after": 0, "nights": fleet.nights})
    session.execute(text(MEASUREMENTS))
    session.execute(text(VERDICTS))
    for statement in REGRESSIONS.strip().split("\n\n"):
        session.execute(text(statement), {"old": fleet.nights - 30} if ":old" in statement else {})


def _sweeps(
    session: Session, sha: str, axes: dict[str, tuple[int, ...]], kernels: Sequence[str], problems: Sequence[str]
) -> None:
    about = {
        "sha": sha,
        "kernels": list(kernels),
        "problems": list(problems),
        "space": json.dumps({"axes": [[name, list(values)] for name, values in axes.items()]}),
        "configs": prod(len(values) for values in axes.values()),
    }
    for statement in SWEEPS.strip().split("\n\n"):
        values = {name: value for name, value in about.items() if f":{name}" in statement}
        session.execute(text(statement), values)


def _commits(session: Session, fleet: Fleet) -> list[str]:
    first = fleet.last_night - dt.timedelta(days=fleet.nights - 1)
    rows = [
        {
            "repository": REPOSITORY,
            "sha": hashlib.sha256(f"commit {i}".encode()).hexdigest()[:40],
            "position": i,
            "committed_at": dt.datetime.combine(first + dt.timedelta(days=i), dt.time(1), dt.UTC),
            "subject": f"Simulated change {i}",
        }
        for i in range(fleet.nights)
    ]
    session.execute(
        text(
            "insert into commits (repository, sha, position, committed_at, subject) "
            "values (:repository, :sha, :position, :committed_at, :subject)"
        ),
        rows,
    )
    return [str(row["sha"]) for row in rows]


def _space(session: Session, name: str, axes: dict[str, tuple[int, ...]], kernels: Sequence[str]) -> None:
    """Writes the configs of a search space, and the outcome of compiling each for every architecture."""
    rows = [
        {"sha256": f"{name}/{'/'.join(map(str, point))}", "params": json.dumps(dict(zip(axes, point, strict=True)))}
        for point in itertools.product(*axes.values())
    ]
    session.execute(text("insert into configs (sha256, params) values (:sha256, cast(:params as jsonb))"), rows)
    session.execute(text(COMPILATIONS), {"kernels": list(kernels), "space_name": name})

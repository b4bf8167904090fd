"""Implements `tilewatch demo`: runs a nightly for each commit of a small repository, on a simulated GPU."""

import contextlib
import datetime as dt
import functools
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tilewatch.configs import config_text
from tilewatch.db import migrate
from tilewatch.db.server.embedded import Embedded, Servers
from tilewatch.errors import ExpectedError
from tilewatch.nightlies import NightlyTimes
from tilewatch.worker.context import Context
from tilewatch.worker.local import demo_repository, port, programs
from tilewatch.worker.local.children import Children
from tilewatch.worker.local.demo_messages import Mailbox, open_mailbox
from tilewatch.worker.local.demo_repository import BASELINE_AT, LIBRARY, DemoCommit
from tilewatch.worker.local.recorded_database import run_jobs
from tilewatch.worker.local.up import DASHBOARD_LIMIT_S, wait
from tilewatch.worker.notify.outbox import Outbox, write_and_send
from tilewatch.worker.notify.update_alarms import update_alarms
from tilewatch.worker.settings import CHECKOUT, Settings
from tilewatch.worker.submitting.submit import submit_nightly

GPU = "sim"
ARCH = "sm_90"
TIMES = {demo_repository.SLOWER: 1.3, demo_repository.FASTER: 0.8}
"""The factor on the time of each kernel whose code changes."""
MOVED_BASELINE_US, MOVED_BASELINE_VERSION = 96.0, "0.2.0"
NOTIFY = """[channels.page]
webhook = '{url}'
[[routes]]
to = ['page']
about = ['regression', 'improvement', 'alarm']
"""
Print = Callable[[str], object]


class CannotDemonstrate(ExpectedError):
    """Raised if the demo cannot run on this machine. The message is a sentence."""


def run_demo(home: Path, dashboard_port: int, print_line: Print) -> None:
    """Runs the demo and serves its pages until Ctrl-C. The folder `home` is emptied first."""
    if reason := port.taken(dashboard_port):
        raise CannotDemonstrate(f"port {dashboard_port} cannot be used ({reason}); name another with --port")
    started = time.monotonic()
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True, mode=0o700)
    with contextlib.ExitStack() as stack:
        mailbox = stack.enter_context(open_mailbox())
        servers = stack.enter_context(Embedded(home, fsync=False))
        migrate.upgrade(servers.database_url)
        settings = make_settings(home, servers, dashboard_port, mailbox)
        children = Children(CHECKOUT, home / "log")
        stack.callback(children.stop)
        visitors = {**programs.child_environment(settings, servers), "TILEWATCH_ANONYMOUS": "act"}
        children.start(programs.dashboard(settings, visitors))
        answers = functools.partial(port.healthy, dashboard_port)
        wait(answers, children.restart_dead, DASHBOARD_LIMIT_S, "the dashboard does not answer")
        print_line(f"the dashboard is at http://localhost:{dashboard_port}, the messages are at {mailbox.url}")
        play_nights(settings, mailbox, print_line)
        inbox = f"http://localhost:{dashboard_port}/inbox"
        print_line(f"done after {time.monotonic() - started:.0f} s: the inbox is at {inbox}; Ctrl-C ends the demo")
        while True:
            children.restart_dead()
            time.sleep(1)


def play_nights(settings: Settings, mailbox: Mailbox, print_line: Print) -> None:
    """Makes the demo's repository, runs a night for each commit, and sends messages."""
    commits = demo_repository.make_repository(settings.repository, dt.datetime.now(dt.UTC).date())
    print_line(f"made a repository with {len(commits)} commits of two kernels in {settings.repository}")
    context = _plant(Context.of(settings), settings.home)
    for number, commit in enumerate(commits):
        _do_night(settings, context, number, commit)
        known = len(mailbox.messages)
        _notify(settings)
        news = "".join(f"\n  message: {each.subject}" for each in mailbox.messages[known:])
        print_line(f"night {number + 1} of {len(commits)}, {commit.sha[:10]} {commit.subject}{news}")


def _plant(context: Context, home: Path) -> Context:
    """Returns a context whose simulated GPU multiplies the times of changed kernels by the factors in TIMES."""
    planted = dict(context.simulation.planted)
    for kernel, times in TIMES.items():
        base, head = (_find_cubins(home, kernel, changed=changed) for changed in (False, True))
        planted |= {key: (base[config], times) for config, key in head.items()}
    return replace(context, simulation=replace(context.simulation, planted=planted))


def _find_cubins(home: Path, kernel: str, *, changed: bool) -> dict[str, str]:
    """Compiles a kernel before or after its change, and returns the cubin's key by config."""
    folder = home / "versions" / str(changed)
    demo_repository.write_kernel(folder, kernel, "a version of the demo", changed=changed)
    compiling = ("compile", kernel, "--arch", ARCH, "--library", str(folder), "--cubins", str(folder.parent / "cubins"))
    done = subprocess.run(
        [sys.executable, "-m", "tilewatch.kernels", *compiling, "--json"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise CannotDemonstrate(f"the tile compiler does not work here: {done.stderr.strip()[-500:]}")
    configs = json.loads(done.stdout)["configs"]  # in the order in which they were compiled
    return {config_text(each["config"]): each["content_key"] for each in configs if each["content_key"]}


def make_settings(home: Path, servers: Servers, dashboard_port: int, mailbox: Mailbox) -> Settings:
    """Writes the demo's notify.toml, which sends messages to the mailbox, and returns the demo's settings."""
    notify = home / "notify.toml"
    notify.write_text(NOTIFY.format(url=mailbox.url), encoding="utf-8")
    return Settings(
        home=home,
        store_url=(home / "cubins").as_uri(),
        database_url=servers.database_url,
        broker_url=servers.broker_url,
        repository=home / "demo-kernels",
        library=LIBRARY,
        port=dashboard_port,
        notify=notify,
        sim_trial_s=0.0,
    )


def _do_night(settings: Settings, context: Context, number: int, commit: DemoCommit) -> None:
    """Submits a commit and runs all jobs of its night in this process."""
    if number >= BASELINE_AT:
        moved = replace(context.simulation, baseline_us=MOVED_BASELINE_US, baseline_version=MOVED_BASELINE_VERSION)
        context = replace(context, simulation=moved)
    submit_nightly(settings, commit=commit.sha, gpus=(GPU,), night=commit.day)
    run_jobs(context, "demo")


def _notify(settings: Settings) -> None:
    """Opens and closes alarms, and sends the messages that are due."""
    outbox, now = Outbox.of(settings), dt.datetime.now(dt.UTC)
    update_alarms(outbox, (), NightlyTimes(), settings.regret_limit, now)
    write_and_send(outbox, now)

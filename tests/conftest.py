"""The servers that tests talk to: real ones, started once, or those that TEST_DATABASE_URL and TEST_REDIS_URL name.

TEST_DATABASE_URL must let us create databases; each test that asks for one gets its own, cloned from a migrated
template, and nothing that was there is touched. The Redis database that TEST_REDIS_URL names is emptied.
"""

import contextlib
import gc
import importlib.util
import os
import random
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from sqlalchemy import make_url
from sqlalchemy.orm import Session

from tests.dashboard.fixtures.small_database import fill
from tests.slow_tests import is_slow
from tilewatch.db import migrate, session
from tilewatch.db.server import free_ports
from tilewatch.db.server.embedded import Embedded, Servers

NewDatabase = Callable[[], AbstractContextManager[str]]
Admin = psycopg.Connection[tuple[Any, ...]]

LONG = (
    "tests/end_to_end/",
    "tests/worker/local/test_up.py",
    "tests/worker/local/test_demo.py",
    "tests/kernels/library/test_compiles.py",
    "tests/dashboard/views/",
)
"""Tests of half a minute and more. A process of pytest begins with them, and no other one takes some of them over: the
browser and what is imported for the views are started and made once."""

HAS_TORCH = importlib.util.find_spec("torch") is not None
"""Whether PyTorch is installed. A test may leave a stand-in in its place, so nobody asks later."""

MEMORY = Path("/dev/shm")  # noqa: S108 - a folder with a name of its own is made in it
MEMORY_NEEDED_BYTES = 6 * 2**30
"""A server's databases and its log of writes take up to 1.2 GB, and four processes have one each."""

STAND_INS = "tilewatch.kernels.watching.cuda_stand_ins"
GARBAGE_THRESHOLDS = gc.get_threshold()
"""While modules are imported Python looks for garbage a tenth as often, and never again at what is there then, half a
million objects that stay. To collect all tests takes 7.1 s of CPU time instead of 9.9 (2026-11-23)."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--order-seed", type=int, help="run files, and the tests of a file, in an order drawn by this seed"
    )


def pytest_configure() -> None:
    gc.set_threshold(10 * GARBAGE_THRESHOLDS[0], *GARBAGE_THRESHOLDS[1:])
    # OpenBLAS's other threads wait by running, on cores that other tests use; xdist's processes inherit it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _draw_own_ports()
    # A shell starts what it runs in the background with Ctrl-C ignored, and so would everything be that we start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _draw_own_ports() -> None:
    """Lets each process of xdist draw other free ports: two could draw the same one before one of them listens."""
    if name := os.environ.get("PYTEST_XDIST_WORKER"):
        count = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        own, draw = int(name.removeprefix("gw")) % count, free_ports._draw_port

        def draw_own() -> int:
            while (port := draw()) and port % count != own:
                pass
            return port

        free_ports._draw_port = draw_own


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the slow tests, and leaves out what only a release needs. Unless an order is drawn, the longest come first:
    one of them at the end would leave all other processes without work."""
    for item in filter(is_slow, items):
        item.add_marker("slow")
    if "release" not in config.getoption("markexpr"):
        left_out = [item for item in items if item.get_closest_marker("release") is not None]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    seed = config.getoption("order_seed")
    if seed is None:
        items.sort(key=lambda item: not item.nodeid.startswith(LONG))
    else:  # what a file's fixtures start is still started once
        drawn = random.Random(seed)
        places = {file: drawn.random() for file in dict.fromkeys(item.path for item in items)}
        items.sort(key=lambda item: (places[item.path], drawn.random()))


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    # As often as ever while tests run: the connections that a test left must not outlive its database.
    gc.set_threshold(*GARBAGE_THRESHOLDS)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is not None:
        from tilewatch.kernels import device  # not a cost for the tests that need no GPU

        if not device.gpus():
            pytest.skip("no NVIDIA GPU with a driver on this machine")
    if item.get_closest_marker("torch") is not None and not HAS_TORCH:
        pytest.skip("PyTorch is not installed")


@pytest.fixture(autouse=True)
def no_stand_in_is_left() -> Iterator[None]:
    """Fails a test that leaves stand-ins of CUDA packages in this process, because later tests would import them."""
    yield
    packages = [sys.modules.get(name) for name in ("cupy", "torch", "triton")]
    left = [each for each in (*sys.meta_path, *packages) if type(each).__module__.startswith(STAND_INS)]
    assert not left


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder that everybody may enter, unlike pytest's: started by root, the servers may have to run as nobody."""
    memory = in_memory()
    runs_programs = memory is not None and not os.statvfs(memory).f_flag & os.ST_NOEXEC
    with scratch_folder(memory if runs_programs else None) as folder:
        yield folder


@contextlib.contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="tilewatch-test-", dir=parent))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def in_memory() -> Path | None:
    """Where a folder costs no disk, if there is room: a database is 300 files, made in 15 ms there, in 150 on disk."""
    try:
        return MEMORY if shutil.disk_usage(MEMORY).free >= MEMORY_NEEDED_BYTES else None
    except OSError:
        return None


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    database_url, broker_url = os.environ.get("TEST_DATABASE_URL"), os.environ.get("TEST_REDIS_URL")
    if database_url and broker_url:
        yield Servers(database_url, broker_url)
        return
    with scratch_folder(in_memory()) as home, Embedded(home, fsync=False) as started:
        yield Servers(database_url or started.database_url, broker_url or started.broker_url)


@pytest.fixture(scope="session")
def admin(servers: Servers) -> Iterator[Admin]:
    """Makes and drops databases: one connection for all, since to log in is half of what a database costs."""
    with psycopg.connect(servers.database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="session")
def empty_database(servers: Servers, admin: Admin) -> NewDatabase:
    """Opens a new database without any table, and drops it afterwards."""
    return lambda: _database(admin, servers.database_url)


@pytest.fixture(scope="session")
def new_database(servers: Servers, admin: Admin) -> Iterator[NewDatabase]:
    """Opens a new migrated database, and drops it afterwards; for fixtures that want one for longer than a test."""
    with _database(admin, servers.database_url) as template:
        migrate.upgrade(template)
        session.engine(template).dispose()  # a database in use is no template
        yield lambda: _database(admin, servers.database_url, template=template)


@pytest.fixture
def database_url(new_database: NewDatabase) -> Iterator[str]:
    """A migrated database of this test's own."""
    with new_database() as url:
        yield url


@pytest.fixture
def db_session(database_url: str) -> Iterator[Session]:
    """A session that nobody else sees the writes of, unless the test commits."""
    options = session.UNSYNCHRONIZED
    with Session(session.engine(database_url), expire_on_commit=False, execution_options=options) as opened:
        yield opened


@pytest.fixture(scope="session")
def new_filled_database(servers: Servers, admin: Admin, new_database: NewDatabase) -> Iterator[NewDatabase]:
    """Opens a new small database with something of everything, and drops it afterwards; for tests that change it."""
    with new_database() as template:
        with session.session(template) as opened:
            fill(opened)
        session.engine(template).dispose()
        yield lambda: _database(admin, servers.database_url, template=template)


@pytest.fixture(scope="session")
def filled_url(new_filled_database: NewDatabase) -> Iterator[str]:
    """One small database with something of everything, for tests that only read."""
    with new_filled_database() as url:
        yield url


@pytest.fixture
def filled(filled_url: str) -> Iterator[Session]:
    with session.session(filled_url) as opened:
        yield opened


@pytest.fixture
def broker_url(servers: Servers) -> str:
    """An empty broker."""
    with redis.Redis.from_url(servers.broker_url) as client:
        client.flushdb()
    return servers.broker_url


@contextlib.contextmanager
def _database(admin: Admin, server_url: str, template: str | None = None) -> Iterator[str]:
    name = f"tilewatch_test_{secrets.token_hex(6)}"
    # Copying files takes 40 ms of Postgres' time, writing each page to the log first 60 (two cores, 2026-11-23).
    clone = f"template {make_url(template).database} strategy file_copy" if template else ""
    admin.execute(f"create database {name} {clone}")
    url = make_url(server_url).set(database=name).render_as_string(hide_password=False)
    try:
        yield url
    finally:
        session.engine(url).dispose()
        admin.execute(f"drop database {name} with (force)")  # a test may have left a process behind that uses it

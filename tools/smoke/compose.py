"""Runs the whole of docker compose once: TLS, a second node, a night, killed services, an upgrade, a restored backup.

    make smoke-compose                       with the machine's own engine, which pulls the base images
    make smoke-compose LOCAL=FOLDER          without a registry: engine and base images out of FOLDER, see trees.sh

It works in a clone that begins at an older commit, by default the one before the newest migration, and is upgraded to
what is committed here. The commands for certificates, the upgrade, the way back and new passwords are read from
docs/operate. Existing images of the same commit are not built again. Needs root. A machine runs only one at a time.
Ends with 1 at the first fault. Leaves no container and no volume.
"""

import argparse
import fcntl
import itertools
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.worker.fixtures import tiny_repository

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "10.99.0.1"
"""Address at which the node reaches the servers: one of the loopback device in its own namespace."""

ABBREVIATION = 10
PATIENCE_S = 300.0  # a deadline for what hangs, not a speed
PASSWORDS = ("POSTGRES_PASSWORD", "WORKER_PASSWORD", "BOARD_PASSWORD", "REDIS_PASSWORD")
KILLED = ("postgres", "redis", "judge", "tell", "compile", "beat", "api", "dashboard")

SIMULATED_NODE = """
services:
  gpu:
    image: tilewatch-worker:${TILEWATCH_VERSION:-0.1.0}
    build: !reset null
    deploy: !reset null
    command: [celery, -A, tilewatch.worker.app, worker, -l, INFO, -Q, gpu.sim, -n, gpu0@%h, -c, "1"]
    environment: {TILEWATCH_SIM_NODE: node1}
"""
USE_ALL_TABLES = """
do $$ declare name text; begin
    for name in select tablename from pg_tables where schemaname = 'public' loop
        execute format('lock table %I in row exclusive mode', name);
    end loop;
    perform pg_sleep(20);
end $$
"""
"""Locks of a transaction that somebody left open after writing: each kind of migration must wait for it."""


class Failed(Exception):
    """Something is not as it should be; the message says what."""


class Compose:
    """A clone with its .env, in which `docker compose` runs as a person would run it."""

    def __init__(self, clone: Path, environment: dict[str, str]) -> None:
        self.clone, self.environment = clone, environment
        self.settings: dict[str, str] = {}

    def set(self, **settings: str) -> None:
        """Writes .env again with some settings changed."""
        self.settings |= settings
        file = self.clone / ".env"
        file.touch(0o600)
        file.write_text("".join(f"{name}={value}\n" for name, value in self.settings.items()))

    def run(self, *words: str) -> str:
        """Returns the output of `docker compose`."""
        return self.shell(shlex.join(["docker", "compose", *words]))

    def shell(self, commands: str) -> str:
        """Returns the output of commands from a page; the first that fails ends them."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=self.clone,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise Failed(f"{commands}\nended with {done.returncode}:\n{done.stderr[-3000:]}")
        return done.stdout

    def tilewatch(self, *words: str) -> str:
        return self.run("exec", "-T", "judge", "tilewatch", *words)

    def sql(self, text: str) -> str:
        psql = ("psql", "--username=tilewatch", "--no-align", "--tuples-only", "--command", text, "tilewatch")
        return self.run("exec", "-T", "postgres", *psql).strip()

    def unhealthy(self) -> list[str]:
        """Returns the services that are not running, or whose health check fails."""
        listed = [json.loads(line) for line in self.run("ps", "--format", "json").splitlines()]
        well = {each["Service"] for each in listed if each["State"] == "running" and each["Health"] in ("", "healthy")}
        wanted = set(self.run("config", "--services").split()) - {"migrate", "logins"}
        return sorted(wanted - well)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--local", type=Path, help="the folder of engine and trees; without it, the machine's engine")
    parser.add_argument(
        "--before", metavar="COMMIT", help="begin at this commit (default: before the newest migration)"
    )
    options = parser.parse_args()
    began = time.monotonic()
    old, new = (
        git(ROOT, "rev-parse", f"--short={ABBREVIATION}", each)
        for each in (options.before or before_newest_migration(), "HEAD")
    )
    try:
        with (
            the_only_one(),
            local_engine(options.local, (old, new)) if options.local else own_engine() as (folder, environment),
        ):
            smoke(folder, environment, old, new)
    except Failed as reason:
        for each in (reason.__context__, reason):  # if the removal fails too, the first says why
            if isinstance(each, Failed):
                print(f"failed: {each}", file=sys.stderr)
        sys.exit(1)
    print(f"everything is as it should be, after {time.monotonic() - began:.0f} s")


def smoke(folder: Path, environment: dict[str, str], old: str, new: str) -> None:
    clone = folder / "clone"
    shutil.rmtree(clone, ignore_errors=True)
    abbreviation = f"core.abbrev={ABBREVIATION}"  # so that the tag that the page computes is the one used here
    subprocess.run(["git", "clone", "--quiet", "--config", abbreviation, str(ROOT), str(clone)], check=True)
    git(clone, "reset", "--quiet", "--hard", old)
    watched, shared = folder / "watched", folder / "cubins"
    for each in (watched, shared):
        shutil.rmtree(each, ignore_errors=True)
    tiny_repository.make(watched)
    shared.mkdir()
    os.chown(shared, 1000, 1000)
    servers = Compose(clone, environment)
    write_certificates(servers)
    servers.set(
        COMPOSE_FILE="docker-compose.yml:docker-compose.tls.yml",
        TILEWATCH_PUBLISH=ADDRESS,
        TILEWATCH_REPOSITORY=str(watched),
        TILEWATCH_SHARED=str(shared),
        TILEWATCH_LIBRARY="library",
        TILEWATCH_WATCH="h200",
        TILEWATCH_VERSION=old,
        **{name: secrets.token_hex(12) for name in PASSWORDS},
    )
    node = Compose(folder / "node", environment)
    shutil.rmtree(node.clone, ignore_errors=True)
    node.clone.mkdir()
    (node.clone / "simulated.yml").write_text(SIMULATED_NODE)
    (node.clone / "certs").mkdir()
    shutil.copy(clone / "certs" / "ca.crt", node.clone / "certs")
    node_password = secrets.token_hex(12)

    def set_node() -> None:
        shutil.copy(clone / "docker-compose.node.yml", node.clone)
        broker = f"rediss://:{servers.settings['REDIS_PASSWORD']}@{ADDRESS}:6379/0?ssl_ca_certs=/certs/ca.crt"
        verify = "sslmode=verify-full&sslrootcert=/certs/ca.crt"
        node.set(
            COMPOSE_FILE="docker-compose.node.yml:simulated.yml",
            TILEWATCH_DATABASE_URL=f"postgresql://node1:{node_password}@{ADDRESS}:5432/tilewatch?{verify}",
            TILEWATCH_BROKER_URL=broker,
            TILEWATCH_STORE_URL="file:///cubins",
            TILEWATCH_SHARED=str(shared),
            TILEWATCH_REPOSITORY=str(watched),
            TILEWATCH_NODE="node1",
            TILEWATCH_VERSION=servers.settings["TILEWATCH_VERSION"],
        )

    with ExitStack() as stacks:
        stacks.callback(remove, servers)
        stacks.callback(remove, node)
        with step("images"):
            if not has_image(environment, f"tilewatch-worker:{old}"):
                servers.run("build")
        with step("servers with TLS"):
            servers.run("up", "--detach")
            wait_for_health(servers)
            servers.sql(f"create role node1 login password '{node_password}' in role tilewatch_write")
        with step("a second node"):
            set_node()
            node.run("up", "--detach")
            wait_for(lambda: "node1" in servers.sql("select host from workers"), lambda: node.run("logs", "gpu"))
        with step("a night on the simulated GPU"):
            servers.tilewatch("submit", "nightly", "--gpu", "sim", "--who", "smoke")
            wait_for_jobs(servers)
            expect("runs and their node", servers.sql("select distinct count(*) over (), host from runs"), "2|node1")
        with step("a killed service of each kind comes back"):
            for service in KILLED:
                kill(servers, service)
            kill(node, "gpu")
            wait_for_health(servers)
            servers.tilewatch("submit", "nightly", "--gpu", "sim", "--who", "smoke", "--commit", commit(watched, 3))
            wait_for_jobs(servers)
        everything = "select (select count(*) from trials), (select count(*) from runs), (select max(id) from jobs)"
        before = servers.sql(everything)
        with step("an upgrade, under load and with an open transaction in the way of a migration"):
            servers.shell(block("operate/upgrading.md", "docker compose exec -T postgres pg_dump"))
            upgrade(servers, node, set_node, watched, new)
        with step("back to the version before, its backup into an empty database"):
            servers.set(TILEWATCH_VERSION=old)
            servers.shell(block("operate/data-safety.md", "docker compose down"))
            wait_for_health(servers)
            expect("trials, runs and the last job of before the upgrade", servers.sql(everything), before)
            servers.sql(f"create role node1 login password '{node_password}' in role tilewatch_write")
        with step("every password and the certificates anew"):
            rotate(servers)
            wait_for_health(servers)
        with step("a night with all of that"):
            shutil.copy(clone / "certs" / "ca.crt", node.clone / "certs")
            set_node()
            node.run("up", "--detach", "--force-recreate")
            servers.tilewatch("submit", "nightly", "--gpu", "sim", "--who", "smoke", "--commit", commit(watched, 7))
            wait_for_jobs(servers)


def upgrade(servers: Compose, node: Compose, set_node: Callable[[], None], watched: Path, new: str) -> None:
    revision = "select version_num from alembic_version"
    old_revision = servers.sql(revision)
    migrates = not newest_migration().name.startswith(f"{old_revision}_")
    lines = block("operate/upgrading.md", "git pull").splitlines()
    first = next(number for number, line in enumerate(lines) if "run --rm --no-deps migrate" in line)
    is_built = has_image(servers.environment, f"tilewatch-worker:{new}")
    servers.shell(
        "\n".join(line for line in lines[:first] if not (is_built and line.startswith("docker compose build")))
    )
    servers.set(TILEWATCH_VERSION=new)
    servers.tilewatch("submit", "nightly", "--gpu", "sim", "--who", "smoke", "--commit", commit(watched, 5))
    with dashboard_watched(servers):
        user = threading.Thread(target=servers.sql, args=(USE_ALL_TABLES,), daemon=True)
        user.start()
        wait_for(
            lambda: servers.sql("select 1 from pg_stat_activity where wait_event = 'PgSleep'"), lambda: "no transaction"
        )
        printed = servers.shell(lines[first])
        user.join()
        if migrates:
            if "waiting for a table that is in use" not in printed or servers.sql(revision) == old_revision:
                raise Failed(f"the migration did not wait for the transaction, or did nothing: {printed}")
            wait_for(lambda: "takes no job" in servers.sql("select doing from workers where kind = 'compile'"),
                     lambda: servers.sql("select name, doing from workers"))  # fmt: skip
        for line in lines[first + 1 :]:
            servers.shell(line)
        set_node()
        node.run("up", "--detach")
        wait_for_health(servers)
        wait_for_jobs(servers)
    attempts = "select distinct attempt from jobs where submission_id = (select max(id) from submissions)"
    expect("attempts of each job of the upgrade", servers.sql(attempts), "1")
    runs = "select count(*), count(distinct sweep_id) from runs where sweep_id in (select sweep_id from jobs"
    runs += " where submission_id = (select max(id) from submissions))"
    expect("runs and sweeps of the upgrade", servers.sql(runs), "2|2")


def before_newest_migration() -> str:
    """Returns the commit before the one that added the newest migration."""
    return git(ROOT, "log", "--diff-filter=A", "--format=%H^", "--", str(newest_migration()))


def newest_migration() -> Path:
    return max((ROOT / "db/migrations/versions").glob("[0-9]*.py"))


def git(clone: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", clone, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def rotate(servers: Compose) -> None:
    new = {name: secrets.token_hex(12) for name in PASSWORDS}
    change_owner, *others = block("operate/data-safety.md", "docker compose exec postgres psql").splitlines()
    servers.shell(change_owner.replace("NEW", new["POSTGRES_PASSWORD"]).replace("exec", "exec -T"))
    servers.set(**new)
    servers.shell("\n".join(others))
    shutil.rmtree(servers.clone / "certs")
    write_certificates(servers)
    servers.run("up", "--detach", "--force-recreate")


def write_certificates(servers: Compose) -> None:
    commands = block("operate/data-safety.md", "mkdir certs").replace("sudo ", "")
    servers.shell(commands.replace("DNS:db.example.org", f"IP:{ADDRESS}"))


def block(page: str, start: str) -> str:
    """Returns the block of commands on a page of docs/ whose first line starts with `start`."""
    text = (ROOT / "docs" / page).read_text()
    found = [each for each in re.findall(r"^```\n(.*?)^```", text, re.DOTALL | re.MULTILINE) if each.startswith(start)]
    if len(found) != 1:
        raise Failed(f"docs/{page} has {len(found)} blocks that start with {start!r}, not one")
    return str(found[0])


def remove(stack: Compose) -> None:
    if (stack.clone / ".env").exists():
        stack.run("--profile", "*", "down", "--volumes", "--timeout", "5")


def commit(watched: Path, factor: int) -> str:
    return tiny_repository.commit(watched, f"Times {factor}", factor=factor)


def wait_for_health(servers: Compose) -> None:
    wait_for(lambda: not servers.unhealthy(), lambda: f"not healthy: {servers.unhealthy()}")


def wait_for_jobs(servers: Compose) -> None:
    def left() -> str:
        return servers.sql("select state, kind, count(*) from jobs where state <> 'done' group by 1, 2")

    wait_for(lambda: not left(), left)


def kill(stack: Compose, service: str) -> None:
    """Kills a service by SIGKILL from the host, as when memory runs out. `docker kill` would prevent its restart."""
    container = stack.run("ps", "--quiet", service).split()[0]
    os.kill(int(docker(stack.environment, "inspect", "--format", "{{.State.Pid}}", container)), signal.SIGKILL)


@contextmanager
def dashboard_watched(servers: Compose) -> Iterator[None]:
    """Prints the longest time without an answer of the dashboard, pauses of 0.5 s included. Raises Failed if it never
    answered."""
    silences_s: list[float] = []
    over = threading.Event()

    def watch() -> None:
        last = time.monotonic()
        while not over.wait(0.5):
            ask = (*servers.environment.get("SMOKE_INSIDE", "").split(), "curl", "-fsS", "-m", "2")
            done = subprocess.run([*ask, "http://127.0.0.1:8501/_stcore/health"], capture_output=True, check=False)
            if done.returncode == 0:
                silences_s.append(time.monotonic() - last)
                last = time.monotonic()
        if silences_s:
            silences_s.append(time.monotonic() - last)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if not silences_s:
        raise Failed("the dashboard did not answer once")
    print(f"    the dashboard did not answer for {max(silences_s):.0f} s at most")


def wait_for(what: Callable[[], object], report: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        if time.monotonic() > deadline:
            raise Failed(f"it did not happen in {PATIENCE_S:.0f} s; {report()[-3000:]}")
        time.sleep(1)


def expect(name: str, found: str, wanted: str) -> None:
    if found != wanted:
        raise Failed(f"{name}: {found!r}, and {wanted!r} was expected")


@contextmanager
def step(name: str) -> Iterator[None]:
    began = time.monotonic()
    print(f"  {name} ...", flush=True)
    yield
    print(f"  {name}: {time.monotonic() - began:.0f} s", flush=True)


def has_image(environment: dict[str, str], name: str) -> bool:
    line = ["docker", "image", "inspect", name]
    return subprocess.run(line, env=environment, capture_output=True, check=False).returncode == 0


def docker(environment: dict[str, str], *words: str) -> str:
    done = subprocess.run(["docker", *words], env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"docker {' '.join(words)}: {done.stderr[-2000:]}")
    return done.stdout.strip()


@contextmanager
def the_only_one() -> Iterator[None]:
    """Refuses a second run on this machine: both would use the same address, network namespace and project names."""
    with (Path(tempfile.gettempdir()) / "tilewatch-smoke.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Failed("another smoke test runs on this machine") from None
        yield


@contextmanager
def own_engine() -> Iterator[tuple[Path, dict[str, str]]]:
    subprocess.run(["ip", "address", "replace", f"{ADDRESS}/32", "dev", "lo"], check=True)
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder), dict(os.environ)


@contextmanager
def local_engine(folder: Path, commits: Sequence[str]) -> Iterator[tuple[Path, dict[str, str]]]:
    """Starts the engine in its own namespaces, with base images that it makes first if they are missing."""
    folder = folder.absolute()
    scripts = Path(__file__).parent
    subprocess.run([scripts / "trees.sh", folder], check=True)
    environment = {**os.environ, "DOCKER_HOST": f"unix://{folder}/docker.sock", "DOCKER_CONFIG": str(folder / "config")}
    with engine(folder, "build", environment):
        if not has_image(environment, "valkey/valkey:9.1"):
            subprocess.run([scripts / "base_images.sh", folder], check=True)
        for commit, part in itertools.product(commits, ("worker", "dashboard")):
            if not has_image(environment, f"tilewatch-{part}:{commit}"):
                tree = f"git -C {shlex.quote(str(ROOT))} archive {commit}"
                build = f"docker build --quiet --network host --build-arg LIST={part} --tag tilewatch-{part}:{commit} -"
                subprocess.run(["bash", "-euo", "pipefail", "-c", f"{tree} | {build}"], env=environment, check=True)
    with engine(folder, "run", environment):
        subprocess.run(["ip", "-n", "smoke", "address", "replace", f"{ADDRESS}/32", "dev", "lo"], check=True)
        yield folder, {**environment, "SMOKE_INSIDE": "nsenter --net=/run/netns/smoke"}


@contextmanager
def engine(folder: Path, mode: str, environment: dict[str, str]) -> Iterator[None]:
    with (folder / "dockerd.log").open("w") as log:
        process = subprocess.Popen([Path(__file__).parent / "engine.sh", mode, folder], stdout=log, stderr=log)
    try:
        answers = ["docker", "info"]
        wait_for(
            lambda: subprocess.run(answers, env=environment, capture_output=True, check=False).returncode == 0,
            lambda: (folder / "dockerd.log").read_text(),
        )
        yield
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()

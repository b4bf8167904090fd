"""Lists pinned packages that have a known advisory: `python -m tools.advisories [--list FILE] [--ask]`.

The pinned versions are those of requirements/*.txt. The advisories come from a file in OSV's format (one JSON object a
line, https://ossf.github.io/osv-schema/), whose first line holds its date; so no network is needed. With --ask, OSV's
service is asked and the file is written again. The exit code is 1 if an advisory is known. It is 2 if the file is older
than MOST_DAYS, or says that OSV's service was not reached when it was written."""

import argparse
import datetime as dt
import json
import re
import sys
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "requirements" / "advisories.jsonl"
SERVICE = "https://api.osv.dev/v1"
MOST_DAYS = 30
ANSWER_LIMIT_S = 20.0

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


@dataclass(frozen=True, order=True)
class Pin:
    """A pinned package and its version. The name is in the form in which package indexes compare names."""

    name: str
    version: str


@dataclass(frozen=True)
class Known:
    """Holds the known advisories and the day on which they were read. `was_reached` is False if OSV's service did not
    answer that day."""

    day: dt.date
    advisories: tuple[Mapping[str, Any], ...]
    was_reached: bool = True


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--list", type=Path, default=LIST, metavar="FILE", help="the file of advisories")
    asked.add_argument("--ask", action="store_true", help="ask OSV's service, and write the file anew")
    options = asked.parse_args()
    pins = read_pins(sorted((ROOT / "requirements").glob("*.txt")))
    if options.ask:
        write_known(options.list, Known(dt.datetime.now(dt.UTC).date(), tuple(ask(pins))))
    known = read_known(options.list)
    found = find(pins, known.advisories)
    for pin, advisory in found:
        summary = advisory.get("summary") or advisory.get("details", "").split("\n")[0]
        print(f"{pin.name} {pin.version}: {advisory['id']} {summary}")
    age = (dt.datetime.now(dt.UTC).date() - known.day).days
    if not known.was_reached:
        print(f"{len(pins)} pinned packages; no service was reached on {known.day}, so nothing is known of them: --ask")
        sys.exit(2)
    print(f"{len(pins)} pinned packages, {len(found)} known advisories, of {known.day}")
    if age > MOST_DAYS:
        print(f"the list is {age} days old, at most {MOST_DAYS} are wanted: --ask reads it again")
    sys.exit(1 if found else 2 if age > MOST_DAYS else 0)


def read_pins(files: Iterable[Path]) -> list[Pin]:
    """Returns every version that the files pin, each once."""
    pinned = (_PIN.findall(file.read_text(encoding="utf-8")) for file in files)
    return sorted({Pin(normalize(name), version) for each in pinned for name, version in each})


def normalize(name: str) -> str:
    """Returns a package's name in the form in which indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_known(file: Path) -> Known:
    lines = file.read_text(encoding="utf-8").splitlines()
    first = json.loads(lines[0])
    return Known(dt.date.fromisoformat(first["day"]), tuple(map(json.loads, lines[1:])), first["was_reached"])


def write_known(file: Path, known: Known) -> None:
    lines = [{"day": known.day.isoformat(), "was_reached": known.was_reached}, *known.advisories]
    file.write_text("".join(json.dumps(each, sort_keys=True) + "\n" for each in lines), encoding="utf-8")


def find(pins: Iterable[Pin], advisories: Iterable[Mapping[str, Any]]) -> list[tuple[Pin, Mapping[str, Any]]]:
    """Returns each pinned version that an advisory names, with that advisory. Withdrawn advisories are left out."""
    counted = [each for each in advisories if "withdrawn" not in each]
    return [(pin, each) for pin in pins for each in counted if any(_affects(part, pin) for part in each["affected"])]


def _affects(part: Mapping[str, Any], pin: Pin) -> bool:
    package = part.get("package", {})
    if package.get("ecosystem") != "PyPI" or normalize(package.get("name", "")) != pin.name:
        return False
    ranges = [each for each in part.get("ranges", ()) if each.get("type") == "ECOSYSTEM"]
    return pin.version in part.get("versions", ()) or any(_holds(each["events"], pin.version) for each in ranges)


def _holds(events: Iterable[Mapping[str, str]], version: str) -> bool:
    """Returns True if a version lies in a range of OSV. A range goes from an `introduced` to the version before a
    `fixed`, or to a `last_affected`, which belongs to it."""
    try:
        at, inside = Version(version), False
        for event in events:
            if "introduced" in event:
                inside = inside or event["introduced"] == "0" or at >= Version(event["introduced"])
            elif "fixed" in event:
                inside = inside and at < Version(event["fixed"])
            elif "last_affected" in event:
                inside = inside and at <= Version(event["last_affected"])
    except InvalidVersion:
        return False
    return inside


def ask(pins: Iterable[Pin]) -> Iterator[Mapping[str, Any]]:
    """Yields each advisory of OSV's service that names one of these versions, once."""
    queries = [{"package": {"name": pin.name, "ecosystem": "PyPI"}, "version": pin.version} for pin in pins]
    answers = _post("/querybatch", {"queries": queries})["results"]
    for name in sorted({each["id"] for answer in answers for each in answer.get("vulns", ())}):
        with urllib.request.urlopen(f"{SERVICE}/vulns/{name}", timeout=ANSWER_LIMIT_S) as answer:  # noqa: S310 - https
            yield json.load(answer)


def _post(path: str, asked: Mapping[str, Any]) -> Any:
    request = urllib.request.Request(  # noqa: S310 - https
        f"{SERVICE}{path}", json.dumps(asked).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=ANSWER_LIMIT_S) as answer:  # noqa: S310 - https
        return json.load(answer)


if __name__ == "__main__":
    main()

"""Makes slim recordings of whole nights, so that every night that was recorded can be kept.

    python -m tools.slim_recording RECORDING... --to recordings/nights

A slim recording has the winner of each series with its samples, code facts, baselines, toolchain and telemetry. Other
trials, counters and the checklist are left out: a night takes 0.1 MB instead of 0.9 MB. The number of trials stays.
"""

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewatch.kernels.recording import recording_file

LEFT_OUT = ("checklist", "code_diff", "counters", "launch", "tied_counters")
"""Fields of a measurement's `detail` that are left out: they take most of the bytes, and a series of nights does not
need them."""

Row = Mapping[str, Any]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("recording", nargs="+", type=Path)
    asked.add_argument("--to", type=Path, required=True, help="the folder of the slim recordings")
    options = asked.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    for file in options.recording:
        contents = recording_file.read(file)
        count = recording_file.write(options.to / file.name, contents.header, slim(contents.rows))
        print(f"{options.to / file.name}: {count:,} of {len(contents.rows):,} rows")


def slim(rows: Sequence[Row]) -> Iterator[Row]:
    """Yields the rows that a slim recording keeps, in their order."""
    sweep_of = {row["key"]: row["sweep"] for row in rows if row["row"] == "run"}
    won = {
        sweep_of[row["run"]]: row["config"] for row in rows if row["row"] == "measurement" and row["role"] == "kernel"
    }
    tried = Counter(row["sweep"] for row in rows if row["row"] == "trial")
    timed = Counter(row["sweep"] for row in rows if row["row"] == "trial" and row["status"] == "timed")
    winners = [row for row in rows if row["row"] == "trial" and row["config"] == won.get(row["sweep"])]
    code = {(row["code_key"], row["compiler"]) for row in winners}
    for row in rows:
        if row["row"] == "trial" and row["config"] != won.get(row["sweep"]):
            continue
        if row["row"] == "compilation":
            if (row["code_key"], row["compiler"]) in code:
                yield {**row, "remarks": []}
        elif row["row"] == "run":
            yield {**row, "tie": []}
        elif row["row"] == "measurement":
            detail = {name: value for name, value in row["detail"].items() if name not in LEFT_OUT}
            if row["role"] == "kernel":
                sweep = sweep_of[row["run"]]
                detail["whole_sweep"] = {"tried": tried[sweep], "timed": timed[sweep]}
            yield {**row, "detail": detail}
        elif row["row"] != "replay":
            yield row


if __name__ == "__main__":
    main()

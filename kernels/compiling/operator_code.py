"""Stores the machine code of an operator's launches as one ZIP file of cubins. A second ZIP file has the bytecode."""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tilewatch.kernels.compiling.store import CubinStore

ELF, ZIP = b"\x7fELF", b"PK\x03\x04"
"""First bytes of a cubin and of a bundle."""

DEPENDENT = "programmatic_dependent_launches"
"""The field of a bundle's outcome with a flag per launch: whether it is a programmatic dependent launch. Bundles from
before 2026-11-29 lack it."""


class NamedLaunch(Protocol):
    """One kernel launch. Launches with equal `launch_key` compile to equal code."""

    @property
    def launch_key(self) -> str: ...

    @property
    def symbol(self) -> str: ...

    @property
    def programmatic_dependent_launch(self) -> bool: ...


def hash_bundle(content_keys: Sequence[str], launches: Sequence[NamedLaunch]) -> str:
    """Returns the content key of a bundle of launches."""
    parts = [
        (each.launch_key, content_key, each.programmatic_dependent_launch)
        for each, content_key in zip(launches, content_keys, strict=True)
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def store_bundle(
    store: CubinStore, launches: Sequence[NamedLaunch], outcomes: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Stores a config's cubins as one bundle, and returns the config's outcome. Stores nothing if a launch failed."""
    for outcome in outcomes.values():
        if outcome["status"] != "ok" or "error" in outcome:
            return outcome
    content_key = hash_bundle([outcomes[each.launch_key]["content_key"] for each in launches], launches)
    result = _join(content_key, launches, outcomes)
    if store.outcome(content_key) is None:
        parts = {launch_key: outcome["content_key"] for launch_key, outcome in outcomes.items()}
        cubins = {launch_key: store.cubin(part) for launch_key, part in parts.items()}
        kept = {launch_key: code for launch_key, part in parts.items() if (code := store.bytecode(part)) is not None}
        store.put(content_key, result, _zip(cubins), _zip(kept) if len(kept) == len(parts) else None)
    return {**result, "reused": all(outcome["reused"] for outcome in outcomes.values())}


def _join(key: str, launches: Sequence[NamedLaunch], outcomes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    parts = [outcomes[each.launch_key] for each in launches]
    facts = [each["facts"] for each in outcomes.values()]
    codes = list(map(_hash_launched_code, launches, parts))
    is_plain = codes == [parts[0]["code_sha256"]]
    joined = {name: sum(each[name] for each in facts) for name in facts[0] if name != "remarks"}
    joined |= {name: max(each[name] for each in facts) for name in ("registers", "stack_bytes", "shared_bytes")}
    return {
        "status": "ok",
        "compile_s": sum(each["compile_s"] for each in outcomes.values()),
        "cpu_s": sum(each["cpu_s"] for each in outcomes.values()),
        "content_key": key,
        "code_sha256": codes[0] if is_plain else hashlib.sha256("".join(codes).encode()).hexdigest(),
        "symbol": "+".join(each.symbol for each in launches),
        DEPENDENT: [each.programmatic_dependent_launch for each in launches],
        "facts": {**joined, "remarks": [remark for each in facts for remark in each["remarks"]]},
    }


def _hash_launched_code(launch: NamedLaunch, outcome: Mapping[str, Any]) -> str:
    """Returns the hash of a launch's machine code."""
    code: str = outcome["code_sha256"]
    # A dependent launch may overlap the previous launch, and then takes another time.
    return f"{code} programmatic dependent launch" if launch.programmatic_dependent_launch else code


def _zip(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name), content)  # dated 1980, so that equal code gives equal bundles
    return out.getvalue()


def read_bundle(content: bytes) -> dict[str, bytes]:
    """Returns the cubins of a bundle by launch key."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def list_code(stored: bytes) -> dict[str, bytes]:
    """Returns the files in a ZIP bundle by launch key, or any other file under the key ""."""
    return read_bundle(stored) if stored.startswith(ZIP) else {"": stored}

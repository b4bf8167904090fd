"""Puts the machine code of an operator's launches together: a bundle is stored as one cubin is.

A bundle is a ZIP file, uncompressed, with one cubin for each different launch, named by the launch's key. Its bytecode
is one too.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tilewatch.kernels.compiling.store import CubinStore

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The first time that ZIP knows: equal code gives equal files."""


class NamedLaunch(Protocol):
    """One kernel launch: `key` is equal for what ct.launch compiles alike, `symbol` is the kernel's name in its
    cubin."""

    @property
    def key(self) -> str: ...

    @property
    def symbol(self) -> str: ...

    @property
    def programmatic_dependent_launch(self) -> bool: ...


def bundle_key(content_keys: Sequence[str], launches: Sequence[NamedLaunch]) -> str:
    """Names a bundle by its launches in their order: by their code, what it is looked up by, and how it is launched."""
    parts = [
        (each.key, content_key, each.programmatic_dependent_launch)
        for each, content_key in zip(launches, content_keys, strict=True)
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def bundle(
    store: CubinStore, launches: Sequence[NamedLaunch], outcomes: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Stores the bundle and returns the operator's outcome: that of its first launch that failed, else all together.

    `outcomes` are the launches' own by their keys; each has its cubin in the store.
    """
    for outcome in outcomes.values():
        if outcome["status"] != "ok" or "error" in outcome:
            return outcome
    key = bundle_key([outcomes[each.key]["content_key"] for each in launches], launches)
    result = _join(key, launches, outcomes)
    if store.outcome(key) is None:
        keys = {key: outcome["content_key"] for key, outcome in outcomes.items()}
        kept = {key: bytecode for key, each in keys.items() if (bytecode := store.bytecode(each)) is not None}
        cubins = {key: store.cubin(each) for key, each in keys.items()}
        store.put(key, result, _zip(cubins), _zip(kept) if len(kept) == len(keys) else None)
    return {**result, "reused": all(outcome["reused"] for outcome in outcomes.values())}


def _join(key: str, launches: Sequence[NamedLaunch], outcomes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    parts = [outcomes[each.key] for each in launches]
    facts = [each["facts"] for each in outcomes.values()]
    codes = list(map(_identify, launches, parts))
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
        "facts": {**joined, "remarks": [remark for each in facts for remark in each["remarks"]]},
    }


def _identify(launch: NamedLaunch, outcome: Mapping[str, Any]) -> str:
    """Returns the hash of a launch's machine code. One that may begin before the launch ahead of it has ended has
    another: what is timed is another thing."""
    code: str = outcome["code_sha256"]
    return f"{code} programmatic dependent launch" if launch.programmatic_dependent_launch else code


def _zip(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content)
    return out.getvalue()


def read_bundle(content: bytes) -> dict[str, bytes]:
    """Returns the cubins of a bundle by the keys of their launches."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}

"""Each bounded field of a recording takes its last right value and refuses the next one."""

import pytest
from pydantic import TypeAdapter, ValidationError

from tilewatch.kernels.recording import rows
from tilewatch.text import LONGEST_NAME

POSITION = rows.CommitFields.__annotations__["position"]
BOUNDS: dict[str, tuple[object, tuple[object, ...], tuple[object, ...]]] = {
    "count": (rows.Count, (0, 2**31 - 1), (-1, 2**31)),  # integer of Postgres
    "big count": (rows.BigCount, (0, 2**63 - 1), (-1, 2**63)),  # bigint of Postgres
    "positive": (rows.Positive, (1e-30, 9.99e29), (0.0, 1e30)),
    "not negative": (rows.NotNegative, (0.0, 9.99e29), (-1e-30, 1e30)),
    "number": (rows.Number, (-9.99e29, 9.99e29), (-1e30, 1e30)),
    "position": (POSITION, (0, 10_000_000), (-1, 10_000_001)),
    "name": (rows.Name, ("n", "n" * LONGEST_NAME), ("", "n" * (LONGEST_NAME + 1), "n\n", "n\u2028")),
    "text": (rows.Text, ("", "t" * 100_000), ("t" * 100_001, "\0")),
    "hex": (rows.Hex, ("0", "f" * 128), ("", "f" * 129, "g", "F")),
    "samples": (rows.Samples, ([], [1.0] * 1_000_000), ([1.0] * 1_000_001, [0.0])),
}


@pytest.mark.parametrize("field", BOUNDS)
def test_a_bounded_field_takes_its_last_value_and_refuses_the_next(field: str) -> None:
    kind, right, wrong = BOUNDS[field]
    adapter: TypeAdapter[object] = TypeAdapter(kind)
    for value in right:
        assert adapter.validate_python(value) == value
    for value in wrong:
        with pytest.raises(ValidationError):
            adapter.validate_python(value)

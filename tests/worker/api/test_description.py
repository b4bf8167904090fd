"""/openapi.json describes the operations, and the operations answer as it says, whatever is asked."""

from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings

from tilewatch.worker.api.operations import OPERATIONS, VERSION
from tilewatch.worker.api.server import make_app
from tilewatch.worker.settings import Settings

if TYPE_CHECKING:
    from schemathesis import Case

EXAMPLES = 25


def test_every_operation_answers_as_it_is_described(server: str) -> None:
    """Schemathesis asks what the description allows and what it forbids, and compares the answers with it."""
    import schemathesis  # not a cost for the collection of other tests

    described = schemathesis.openapi.from_url(f"{server}/openapi.json")
    asked = [found.ok() for found in described.get_all_operations()]
    assert len(asked) == len(OPERATIONS)
    for operation in asked:

        @given(operation.as_strategy())
        @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        def answers_as_described(case: "Case") -> None:
            case.call_and_validate()

        answers_as_described()


def test_every_operation_is_described_in_words() -> None:
    app = make_app(Settings(database_url="postgresql://nobody/none", broker_url="redis://nobody"))
    paths = app.openapi()["paths"]
    assert set(paths) == {VERSION + operation.path for operation in OPERATIONS}
    for operation in OPERATIONS:
        described = paths[VERSION + operation.path][operation.method.lower()]
        assert described["operationId"] == operation.name
        assert described["description"].endswith(".")
        assert ({} in described["security"]) == (operation.right == "read")

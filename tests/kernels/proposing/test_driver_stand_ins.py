"""Stand-ins for the packages that a driver imports and that are not installed."""

import importlib

from tilewatch.kernels.proposing.driver_stand_ins import packages_replaced


def test_a_package_that_is_replaced_is_named_and_one_that_is_installed_is_not() -> None:
    with packages_replaced(["no_such_package", "pydantic", "never_imported"]) as replaced:
        importlib.import_module("no_such_package.integrate").quad(1)
        importlib.import_module("pydantic")
    assert replaced == {"no_such_package"}

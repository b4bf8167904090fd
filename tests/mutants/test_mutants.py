"""The lists of mutants fit the code: each text is there once, and each test that must notice it exists."""

from tests.mutants.mutants import ROOT, read_mutants


def test_every_mutant_can_be_applied() -> None:
    for mutant in read_mutants():
        assert mutant.apply((ROOT / mutant.file).read_text())


def test_every_mutant_names_a_test() -> None:
    for mutant in read_mutants():
        file, _, function = mutant.test.partition("::")
        source = (ROOT / file).read_text()
        assert not function or f"def {function.split('[')[0]}(" in source, mutant.name

"""A config has one name, one text for people and one for commands, which is read back as it was."""

import pytest

from tilewatch.configs import BadConfigText, config_key, config_option, config_text, parse_config

CONFIG = {"tile_m": 64, "num_ctas": 1}


def test_the_order_of_parameters_is_that_of_the_text_and_no_part_of_the_name() -> None:
    other = dict(reversed(CONFIG.items()))
    assert config_key(CONFIG) == config_key(other)
    assert config_key(CONFIG) != config_key({**CONFIG, "tile_m": 128})
    assert config_text(CONFIG) == "tile_m=64 num_ctas=1"
    assert config_text(other) == "num_ctas=1 tile_m=64"
    assert config_option(CONFIG) == config_option(other) == "num_ctas=1,tile_m=64"


def test_a_kernel_without_parameters_has_one_config() -> None:
    assert (config_text({}), config_option({}), parse_config("")) == ("the only config", "", {})


@pytest.mark.parametrize(
    "config",
    [
        {"num_ctas": 1, "tile_m": 64},
        {},
        {"LOAD_LATENCY": -1, "out_dtype": "float32", "share": 0.5, "wide": True, "2.tile": 8, "group": None},
    ],
)
def test_a_config_is_typed_as_a_comparison_prints_it(config: dict[str, object]) -> None:
    assert parse_config(config_option(config)) == config


def test_what_is_no_config_says_so() -> None:
    for text in ("tile_m", "tile_m=", "=4", "tile_m=4,"):
        with pytest.raises(BadConfigText, match="is not a name and a value"):
            parse_config(text)

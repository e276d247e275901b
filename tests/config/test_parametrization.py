"""What init.law=mup decides in other sections, and what a user may set there."""

import pytest

from seedbed.config import Config, InitConfig, ModelConfig
from seedbed.config.load import from_tree, parse_yaml, to_yaml, with_init
from seedbed.errors import InputError

MUP = ["init.law=mup", "init.base_width=64"]
WIDE = ["model.d_model=256", "model.attention.n_heads=8"]


def decided(config: Config) -> tuple:
    return config.model.output_multiplier, config.model.attention.scale, config.optim.base_width


def test_mup_decides_the_multipliers():
    assert decided(Config.load(None, [*MUP, *WIDE])) == (64 / 256, 8 / 32, 64)
    usual = Config.load(None, ["init.law=mup", "init.base_width=256", "model.d_model=256"])
    assert decided(usual) == (1.0, 1 / 8, 256)  # heads of 64 have the usual scale


def test_other_laws_leave_everything_as_usual_and_free():
    assert decided(Config.load(None, WIDE)) == (1.0, 32**-0.5, None)
    by_hand = ["model.output_multiplier=0.5", "model.attention.scale=0.1", "optim.base_width=32"]
    assert decided(Config.load(None, by_hand)) == (0.5, 0.1, 32)
    assert decided(Config.load(None, [*WIDE, by_hand[0]])) == (0.5, 32**-0.5, None)


@pytest.mark.parametrize(
    ("override", "due"),
    [("model.output_multiplier=1.0", "0.25"), ("model.attention.scale=0.125", "0.25"), ("optim.base_width=32", "64")],
)
def test_a_part_of_mup_cannot_be_changed(override, due):
    path, _, value = override.partition("=")
    with pytest.raises(InputError) as caught:
        Config.load(None, [*MUP, *WIDE, override])
    told = f"override '{override}': {path}={value}: init.law=mup makes it {due} here; leave it out or set it to null"
    assert str(caught.value) == told
    assert decided(Config.load(None, [*MUP, *WIDE, f"{path}=null"])) == (0.25, 0.25, 64)
    assert decided(Config.load(None, [*MUP, *WIDE, f"{path}={due}"])) == (0.25, 0.25, 64)


@pytest.mark.parametrize("overrides", [MUP, ["model.attention.scale=0.1"], []])
def test_a_saved_configuration_says_it_all_and_reloads_to_itself(overrides):
    config = Config.load(None, [*overrides, *WIDE])
    tree = parse_yaml(to_yaml(config), "test")
    assert tree["model"]["output_multiplier"] == config.model.output_multiplier
    assert tree["optim"]["base_width"] == config.optim.base_width
    assert from_tree(tree, "test") == config


def test_a_file_from_before_these_fields_is_the_same_configuration():
    for law in ([], MUP):
        config = Config.load(None, [*law, *WIDE])
        tree = config.dump()
        del tree["model"]["output_multiplier"], tree["model"]["attention"]["scale"], tree["optim"]["base_width"]
        assert from_tree(tree, "test") == config


def test_another_law_over_a_saved_file_brings_its_own_multipliers(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(to_yaml(Config.load(None, [*MUP, *WIDE])))
    assert decided(Config.load(str(path), ["init.law=gpt2"])) == (1.0, 32**-0.5, None)
    assert decided(Config.load(str(path), ["init.law=gpt2", "model.output_multiplier=0.5"])) == (0.5, 32**-0.5, None)
    with pytest.raises(InputError, match=r"model\.output_multiplier=0\.25: init\.law=mup makes it 0\.5 here"):
        Config.load(str(path), ["init.base_width=128"])
    path.write_text(to_yaml(Config.load(None, WIDE)))
    assert decided(Config.load(str(path), MUP)) == (0.25, 0.25, 64)
    # what was set by hand is never dropped unsaid
    path.write_text(to_yaml(Config.load(None, [*WIDE, "model.attention.scale=0.1"])))
    with pytest.raises(InputError, match=r"model\.attention\.scale=0\.1: init\.law=mup makes it"):
        Config.load(str(path), MUP)
    path.write_text(to_yaml(Config.load(None, [*WIDE, "model.output_multiplier=0.5"])))
    assert decided(Config.load(str(path), ["init.law=gpt2"])) == (0.5, 32**-0.5, None)


def test_a_configuration_with_another_initialization():
    config = Config.load(None, [*WIDE, "model.output_multiplier=0.5"])
    other = with_init(config, InitConfig(law="mup", base_width=32))
    assert decided(other) == (0.125, 0.25, 32)
    assert decided(with_init(other, InitConfig(law="normal"))) == (1.0, 32**-0.5, None)
    assert with_init(config, InitConfig(law="gpt2")).model == config.model
    assert with_init(config, config.init) == config


def test_a_model_section_by_itself_has_the_usual_multipliers():
    model = ModelConfig(vocab_size=8)
    assert (model.output_multiplier, model.attention.scale) == (None, None)  # the decoder takes 1 and K^-1/2


@pytest.mark.parametrize("override", ["init.base_width=0", "init.base_width=-4", "init.base_width=1.5"])
def test_a_base_width_is_a_width(override):
    with pytest.raises(InputError, match="base_width"):
        Config.load(None, ["init.law=mup", override])

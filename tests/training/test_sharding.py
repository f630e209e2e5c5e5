"""Names of the layers that FSDP2 shards; that a model then trains is shown in tests/recipes/test_launch.py."""

from types import SimpleNamespace

import pytest

from hf_trainplus.training.sharding import around_input_embedding, shard_input_embedding_once
from tests.budget.costs import tiny_models
from tests.support import tiny


def trainer_of(model, version=2, names=None):
    plugin = SimpleNamespace(fsdp_version=version, transformer_cls_names_to_wrap=names)
    return SimpleNamespace(model=model, accelerator=SimpleNamespace(state=SimpleNamespace(fsdp_plugin=plugin)))


@pytest.mark.parametrize(
    ("model", "version", "given", "names"),
    [
        (tiny.bert, 2, None, ["BertLayer"]),
        (tiny.bert, 1, None, None),
        (tiny.bert, 2, ["BertEncoder"], ["BertEncoder"]),
        (tiny.llama, 2, None, None),
        (tiny_models.gpt2, 2, None, None),
    ],
)
def test_the_module_around_the_embedding_is_no_unit(model, version, given, names):
    trainer = trainer_of(model(), version, given)
    shard_input_embedding_once(trainer)
    assert trainer.accelerator.state.fsdp_plugin.transformer_cls_names_to_wrap == names


def test_without_a_plugin_nothing_happens():
    trainer = SimpleNamespace(model=tiny.bert(), accelerator=SimpleNamespace(state=SimpleNamespace()))
    shard_input_embedding_once(trainer)
    assert vars(trainer.accelerator.state) == {}


def test_a_model_without_an_embedding_has_nothing_around_it():
    from torch import nn

    assert around_input_embedding(nn.Sequential(nn.Linear(1, 1))) == set()

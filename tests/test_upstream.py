"""The private members of Trainer that are used exist in the installed release."""

import inspect

import pytest
import transformers
from transformers import Trainer

from hf_trainplus import _upstream as upstream


@pytest.mark.parametrize("name", sorted(upstream.PRIVATE_MEMBERS))
def test_the_installed_trainer_has_it(name):
    assert hasattr(Trainer, name), f"transformers {transformers.__version__} has no Trainer.{name}"


@pytest.mark.parametrize("name", sorted(upstream.PRIVATE_MEMBERS))
def test_the_table_lists_what_is_used(name):
    source = inspect.getsource(upstream)
    assert source.count(name) >= 2, f"{name} is listed and not used"


@pytest.mark.parametrize("name", sorted(upstream.PRIVATE_ATTRIBUTES))
def test_the_installed_loop_sets_it(name):
    assert f"self.{name} = " in inspect.getsource(Trainer), f"transformers {transformers.__version__} sets no {name}"
    assert inspect.getsource(upstream).count(name) >= 2


def test_every_overridden_private_method_is_listed():
    overridden = {name for name in vars(upstream.UpstreamTrainer) if name.startswith("_") and not name.startswith("__")}
    overridden = {name for name in overridden if not name.startswith("_plus_")}
    overridden = {name for name in overridden if callable(getattr(upstream.UpstreamTrainer, name))}
    assert overridden <= set(upstream.PRIVATE_MEMBERS)


def test_overridden_methods_take_upstreams_arguments():
    bound = set()
    for name, method in vars(upstream.UpstreamTrainer).items():
        if not callable(method) or not hasattr(Trainer, name) or name.startswith("__"):
            continue
        theirs = list(inspect.signature(getattr(Trainer, name)).parameters.values())
        ours = inspect.signature(method)
        positional = [object()] * sum(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in theirs)
        ours.bind(*positional)
        bound.add(name)
    assert {"_evaluate", "_save_checkpoint", "_run_epoch", "log"} <= bound

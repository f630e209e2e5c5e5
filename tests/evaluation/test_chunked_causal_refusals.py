"""When the loss without logits is refused, and that the reason is said once."""

import logging

import pytest
import torch
import transformers as tf
from peft import LoraConfig, TaskType, get_peft_model
from torch import nn

from hf_trainplus.evaluation.chunked_causal import ChunkedCausalLoss
from tests.support import loss_models as models
from tests.support.loss_models import LENGTH, VOCABULARY

pytestmark = [
    # what peft and torch.compile say about their own code
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
]


def custom_loss():
    model = models.llama()
    model.loss_function = lambda *args, **options: torch.tensor(1.0)
    return model


def adapted_head():
    return get_peft_model(models.llama(), LoraConfig(task_type=TaskType.CAUSAL_LM, target_modules=["lm_head"], r=2))


def other_head():
    model = models.llama()
    model.lm_head = nn.Sequential(model.lm_head)
    return model


def replaced_forward():
    model = models.llama()
    model.lm_head.forward = lambda hidden: hidden @ model.lm_head.weight.T
    return model


def compiled_in_place():
    model = models.llama()
    model.model.layers[0].compile()
    return model


def offloaded():
    model = models.llama()
    model.lm_head._hf_hook = object()
    return model


REFUSED = {
    "seq2seq": (models.t5, "no causal language model"),
    "unshifted": (lambda: models.bart(tf.BartForCausalLM), "no causal language model"),
    "custom_loss": (custom_loss, "no causal language model"),
    "adapted_head": (adapted_head, "not a plain linear map"),
    "other_head": (other_head, "not a plain linear map"),
    "replaced_forward": (replaced_forward, "not a plain linear map"),
    "compiled_in_place": (compiled_in_place, "compiled in place"),
    "replicated": (lambda: nn.DataParallel(models.llama()), "one process a device"),
    "offloaded": (offloaded, "offloaded"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_are_said_once(case, caplog):
    make, reason = REFUSED[case]
    model, chunked = make(), ChunkedCausalLoss()
    with caplog.at_level(logging.WARNING, logger="hf_trainplus"):
        assert not chunked.applies(model)
        assert chunked.example_losses(model, models.token_batch(2)) is None
        assert not chunked.check(model, models.token_batch(2))
    assert reason in chunked.reason
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert reason in caplog.text


def test_smoothing_that_the_trainer_does_not_shift_is_refused():
    wrapper = nn.Module()
    wrapper.model = models.llama()
    assert ChunkedCausalLoss().applies(wrapper)
    chunked = ChunkedCausalLoss(label_smoothing=0.1)
    assert not chunked.applies(wrapper)
    assert "without shifting" in chunked.reason


def test_another_rank_can_refuse():
    chunked = ChunkedCausalLoss()
    assert chunked.check(models.llama(), models.token_batch(2))
    chunked.refuse("another rank refused")
    assert chunked.example_losses(models.llama(), models.token_batch(2)) is None
    assert chunked.reason == "another rank refused"


def extra_loss():
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    router = {"num_local_experts": 2, "output_router_logits": True, "router_aux_loss_coef": 0.5}
    config = tf.MixtralConfig(vocab_size=VOCABULARY, num_key_value_heads=2, **sizes, **router)
    return models.build(tf.MixtralForCausalLM, config)


def changed_logits():
    model = models.llama()
    model.lm_head.register_forward_hook(lambda module, args, logits: logits * 1.01)
    return model


@pytest.mark.parametrize("make", [extra_loss, changed_logits])
def test_what_the_embedding_does_not_explain_is_refused(make):
    model, chunked = make(), ChunkedCausalLoss()
    assert chunked.applies(model)
    assert not chunked.check(model, models.token_batch(2))
    assert chunked.reason.startswith("its own loss is ")


@pytest.mark.parametrize(
    "change",
    [
        lambda inputs: inputs.pop("labels"),
        lambda inputs: inputs.update(pixel_values=torch.zeros(2, 3, 8, 8)),
        lambda inputs: inputs.update(attention_mask=torch.ones(2, 1, LENGTH, LENGTH)),
    ],
    ids=["unlabelled", "pixels", "square_mask"],
)
def test_batches_that_cannot_be_compared_are_refused(change):
    inputs, chunked = models.token_batch(2), ChunkedCausalLoss()
    change(inputs)
    assert not chunked.check(models.llama(), inputs)
    assert "its batches have no labels, or tensors that are not (batch, length)" in chunked.reason


def test_a_head_that_is_called_twice_is_refused():
    class Twice(tf.LlamaForCausalLM):
        def forward(self, input_ids, **options):
            if input_ids.shape[1] > 32:
                super().forward(input_ids, **options)
            return super().forward(input_ids, **options)

    model = models.build(Twice, models.llama().config)
    inputs = {"input_ids": torch.randint(3, VOCABULARY, (2, 40))}
    inputs["labels"] = inputs["input_ids"]
    chunked = ChunkedCausalLoss()
    assert chunked.example_losses(model, inputs) is None
    assert "was called 2 times" in chunked.reason

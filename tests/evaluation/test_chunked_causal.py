"""The loss without logits against the model's own, and how it leaves the model."""

import pytest
import torch
import transformers as tf
from peft import LoraConfig, PromptTuningConfig, TaskType, get_peft_model
from torch import nn
from torch.nn import functional
from transformers import Trainer, TrainingArguments

from hf_trainplus.evaluation.chunked_causal import ChunkedCausalLoss
from hf_trainplus.evaluation.loss_kinds import projected_rows
from hf_trainplus.evaluation.losses import batch_loss, find_loss_kind, reproduces
from tests.support import loss_models as models
from tests.support.launch import ROOT, torchrun
from tests.support.loss_models import LENGTH, VOCABULARY
from tests.support.tensor_watch import TensorWatch

pytestmark = [
    # what peft says about transformers
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
]

_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_HYBRID = {"mamba_d_ssm": 16, "mamba_n_heads": 2, "mamba_d_head": 8, "mamba_d_state": 4, "head_dim": 8}


def sized(model, config, **options):
    return lambda: models.build(getattr(tf, model), getattr(tf, config)(**_SIZES, **options))


FAMILIES = {
    "llama": models.llama,
    "tied": lambda: models.llama(tie_word_embeddings=True),
    "gpt2": models.gpt2,
    "bert_decoder": models.bert_decoder,
    "bias": sized("PhiForCausalLM", "PhiConfig"),
    "factor": sized("CohereForCausalLM", "CohereConfig", logit_scale=0.3),
    "divisor": sized("GraniteForCausalLM", "GraniteConfig", logits_scaling=8.0),
    "divisor_that_multiplies": sized("HyperCLOVAXForCausalLM", "HyperCLOVAXConfig", logits_scaling=0.125),
    "multiplier": sized("FalconH1ForCausalLM", "FalconH1Config", lm_head_multiplier=0.3, **_HYBRID),
    "cap_of_gemma2": sized("Gemma2ForCausalLM", "Gemma2Config", head_dim=8, final_logit_softcapping=2.0),
    "cap_of_gemma3": sized("Gemma3ForCausalLM", "Gemma3TextConfig", head_dim=8, final_logit_softcapping=2.0),
    "unread_field": lambda: models.build(
        tf.MptForCausalLM,
        tf.MptConfig(d_model=16, n_heads=2, n_layers=1, vocab_size=VOCABULARY, logit_scale=0.5),
    ),
}


def run(model, inputs):
    with torch.no_grad():
        return model(**inputs)


def token_accuracy(outputs, labels):
    targets = labels[:, 1:]
    return ((outputs.logits[:, :-1].argmax(-1) == targets) & (targets != -100)).sum(1)


def lora(model, *targets):
    torch.manual_seed(1)
    config = LoraConfig(task_type=TaskType.CAUSAL_LM, target_modules=list(targets), r=2, init_lora_weights=False)
    return get_peft_model(model, config).eval()


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_have_the_loss_and_the_accuracy_of_the_logits(family):
    model, inputs = FAMILIES[family](), models.token_batch(4)
    chunked = ChunkedCausalLoss()
    losses = chunked.example_losses(model, inputs)
    assert chunked.reason is None
    outputs = run(model, inputs)
    assert batch_loss(losses).item() == pytest.approx(outputs.loss.item(), abs=1e-5)
    rows = find_loss_kind(model).example_losses(outputs, inputs)
    assert losses.loss_sum.tolist() == pytest.approx(rows.loss_sum.tolist(), rel=1e-5)
    assert losses.target_count.tolist() == rows.target_count.tolist()
    assert losses.correct_count.tolist() == token_accuracy(outputs, inputs["labels"]).tolist()
    assert losses.loss_sum.dtype == torch.float64
    assert not losses.loss_sum.requires_grad


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_and_masked_rows(side):
    model, inputs = models.llama(), models.token_batch(3)
    inputs["labels"][1] = -100
    amount = (6, 0) if side == "left" else (0, 6)
    fills = {"input_ids": 0, "attention_mask": 0, "labels": -100}
    padded = {name: functional.pad(value, amount, value=fills[name]) for name, value in inputs.items()}
    losses = ChunkedCausalLoss().example_losses(model, padded)
    expected = find_loss_kind(model).example_losses(run(model, padded), padded)
    assert losses.loss_sum.tolist() == pytest.approx(expected.loss_sum.tolist(), rel=1e-5)
    assert losses.target_count.tolist() == expected.target_count.tolist()
    assert losses.target_count[1] == losses.loss_sum[1] == losses.correct_count[1] == 0


def test_a_batch_without_any_target():
    inputs = models.token_batch(2)
    inputs["labels"][:] = -100
    losses = ChunkedCausalLoss().example_losses(models.llama(), inputs)
    assert losses.loss_sum.tolist() == [0.0, 0.0]
    assert losses.target_count.tolist() == losses.correct_count.tolist() == [0, 0]


def test_one_row_of_one_token():
    inputs = {name: value[:1, :1] for name, value in models.token_batch(1).items()}
    chunked = ChunkedCausalLoss()
    assert chunked.example_losses(models.llama(), inputs).target_count.tolist() == [0]
    # Nothing was compared there, so that the next batch still is.
    assert chunked._transform is None
    assert chunked.example_losses(models.llama(), models.token_batch(2)).target_count.tolist() == [5, 8]
    assert chunked._transform is not None


@pytest.mark.parametrize("rows", [1, 3])
def test_smoothed_losses_are_those_of_the_trainer(rows, tmp_path):
    model, inputs = models.llama(), models.token_batch(rows)
    args = TrainingArguments(str(tmp_path), label_smoothing_factor=0.2, report_to=[], use_cpu=True)
    with torch.no_grad():
        own_loss = Trainer(model, args).compute_loss(model, dict(inputs))
    losses = ChunkedCausalLoss(label_smoothing=0.2).example_losses(model, inputs)
    assert reproduces(losses, own_loss, tolerance=1e-5)


def test_half_precision_weights():
    model, inputs = models.llama().bfloat16(), models.token_batch(4)
    losses = ChunkedCausalLoss().example_losses(model, inputs)
    assert batch_loss(losses).item() == pytest.approx(run(model, inputs).loss.item(), abs=1e-3)


def test_autocast():
    model, inputs = models.llama(), models.token_batch(4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = ChunkedCausalLoss().example_losses(model, inputs)
        own_loss = run(model, inputs).loss.item()
    rounding = abs(own_loss - run(model, inputs).loss.item())
    assert rounding > 1e-4
    assert abs(batch_loss(losses).item() - own_loss) < rounding / 4


@pytest.mark.parametrize("cast", ["bfloat16 weights", "autocast", "float32"])
def test_neither_logits_nor_a_cast_of_the_whole_embedding_exist(cast):
    vocabulary, rows = 4_000, 6
    config = tf.LlamaConfig(**{**_SIZES, "vocab_size": vocabulary})
    model = models.build(tf.LlamaForCausalLM, config)
    inputs = {"input_ids": torch.randint(3, vocabulary, (rows, 40))}
    inputs["labels"] = inputs["input_ids"]
    chunked = ChunkedCausalLoss(tile=(64, 32_000))
    if cast == "bfloat16 weights":
        model = model.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=cast == "autocast"):
        assert chunked.check(model, inputs)
        with TensorWatch() as watch:
            losses = chunked.example_losses(model, inputs)
    assert losses.target_count.tolist() == [39] * rows
    assert watch.largest <= 32_000 < vocabulary * 16 < rows * 40 * vocabulary


def test_only_targets_are_projected(monkeypatch):
    seen = []
    original = projected_rows.projected_cross_entropy
    monkeypatch.setattr(
        projected_rows,
        "projected_cross_entropy",
        lambda hidden, *args, **options: seen.append(len(hidden)) or original(hidden, *args, **options),
    )
    model, inputs = models.llama(), models.token_batch(4)
    chunked = ChunkedCausalLoss()
    chunked.check(model, inputs)
    seen.clear()
    losses = chunked.example_losses(model, inputs, compare=False)
    assert seen == [int(losses.target_count.sum())]
    assert seen[0] < 4 * LENGTH


def test_the_comparison_runs_once_and_small():
    lengths = []
    model = models.llama()
    inputs = {"input_ids": torch.randint(3, VOCABULARY, (5, 60))}
    inputs["labels"] = inputs["input_ids"]
    model.model.register_forward_pre_hook(
        lambda module, args, options: lengths.append(tuple(options["input_ids"].shape)), with_kwargs=True
    )
    chunked = ChunkedCausalLoss()
    for _ in range(5):
        assert chunked.example_losses(model, inputs) is not None
    # the first three are also compared with their own labels
    assert lengths == [(1, 32), *[(5, 60)] * 6, *[(5, 60)] * 2]


def test_the_model_is_left_as_it_was():
    model, inputs = models.llama(), models.token_batch(3)
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    outputs = run(model, inputs)
    ChunkedCausalLoss().example_losses(model, inputs)
    assert model.training
    assert not model.lm_head._forward_pre_hooks
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(run(model, inputs).logits, outputs.logits)
    model(**inputs).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_the_hook_is_gone_after_an_error():
    model, inputs = models.llama(), models.token_batch(3)
    chunked = ChunkedCausalLoss()
    assert chunked.check(model, inputs)
    inputs["labels"][0, 2] = VOCABULARY + 5
    with pytest.raises(ValueError, match=rf"targets range from \d+ to {VOCABULARY + 5} and the vocabulary has 50"):
        chunked.example_losses(model, inputs)
    assert not model.lm_head._forward_pre_hooks


def test_adapters():
    model, inputs = lora(models.llama(), "q_proj", "down_proj"), models.token_batch(3)
    losses = ChunkedCausalLoss().example_losses(model, inputs)
    assert reproduces(losses, run(model, inputs).loss, tolerance=1e-5)


def test_prompt_tuning():
    config = PromptTuningConfig(task_type=TaskType.CAUSAL_LM, num_virtual_tokens=4, token_dim=16)
    model, inputs = get_peft_model(models.llama(), config).eval(), models.token_batch(3)
    chunked = ChunkedCausalLoss()
    losses = chunked.example_losses(model, inputs)
    assert chunked.reason is None
    assert reproduces(losses, run(model, inputs).loss, tolerance=1e-5)


def test_a_module_that_holds_the_model():
    class Wrapper(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = models.llama()

        def forward(self, input_ids, attention_mask, labels=None):
            return self.model(input_ids=input_ids, attention_mask=attention_mask, labels=labels)

    model, inputs = Wrapper(), models.token_batch(3)
    assert reproduces(ChunkedCausalLoss().example_losses(model, inputs), run(model, inputs).loss, tolerance=1e-5)


def test_compiled_models_run_uncompiled():
    model, inputs = models.llama(), models.token_batch(3)
    compiled = torch.compile(model, backend=lambda *args: pytest.fail("compiled"))
    assert reproduces(ChunkedCausalLoss().example_losses(compiled, inputs), run(model, inputs).loss, tolerance=1e-5)


def test_weights_that_are_not_finite_give_a_loss_that_is_not():
    model, inputs = models.llama(), models.token_batch(2)
    with torch.no_grad():
        model.model.norm.weight[0] = float("nan")
    chunked = ChunkedCausalLoss()
    losses = chunked.example_losses(model, inputs)
    assert losses.loss_sum.isnan().all()
    assert losses.correct_count.tolist() == [0, 0]
    assert chunked.reason is None


@pytest.mark.distributed
@pytest.mark.slow
def test_sharded_weights_give_the_losses_of_one_process():
    done = torchrun(ROOT / "tests/support/chunked_fsdp2.py")
    assert "rows agree on 2 ranks" in done.stdout

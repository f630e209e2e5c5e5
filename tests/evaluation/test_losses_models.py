"""Which loss kind a model has: by class, through wrappers, and where it is not known."""

import pytest
import torch
import transformers as tf
from peft import LoraConfig, PromptTuningConfig, TaskType, get_peft_model
from torch import nn

from hf_trainplus.evaluation.loss_kinds import model_class
from hf_trainplus.evaluation.losses import find_loss_kind, reproduces
from tests.support import loss_models as models

pytestmark = [
    # what peft and torch.compile say about their own code
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
]


class Wrapper(nn.Module):
    """A user's module around a model, as in `forward(*args, **kwargs)`."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *args, **kwargs):
        return self.model(*args, **kwargs)


class MyTagger(tf.BertForTokenClassification):
    """A user's subclass with a name of its own."""


class Weighted(tf.BertForTokenClassification):
    """A user's subclass with a loss of its own."""

    def forward(self, **inputs):
        outputs = super().forward(**inputs)
        outputs.loss = outputs.loss * 3
        return outputs


def run(model, inputs):
    with torch.no_grad():
        return model.eval()(**inputs)


def agrees(model, inputs):
    outputs = run(model, inputs)
    return reproduces(find_loss_kind(model).example_losses(outputs, inputs), outputs.loss, tolerance=1e-6)


@pytest.fixture
def one_process(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_adapters_are_looked_through():
    model = get_peft_model(models.llama(), LoraConfig(task_type=TaskType.CAUSAL_LM, target_modules=["q_proj"], r=2))
    assert find_loss_kind(model).name == "causal_lm"
    assert agrees(model, models.token_batch(3))
    classifier = get_peft_model(models.bert(models.SEQUENCE, num_labels=3), LoraConfig(task_type=TaskType.SEQ_CLS, r=2))
    assert find_loss_kind(classifier).name == "sequence_classification"
    assert agrees(classifier, models.row_batch(models.classes)(3))


def test_smoothing_shifts_the_labels_of_an_adapted_causal_model():
    model = get_peft_model(models.llama(), LoraConfig(task_type=TaskType.CAUSAL_LM, target_modules=["q_proj"], r=2))
    assert find_loss_kind(model, label_smoothing=0.1).shifted
    assert not find_loss_kind(models.t5(), label_smoothing=0.1).shifted
    # Trainer goes by the name of the outermost class.
    assert not find_loss_kind(Wrapper(models.llama()), label_smoothing=0.1).shifted


def test_virtual_tokens_of_prompt_tuning_stand_before_the_labels():
    config = PromptTuningConfig(task_type=TaskType.CAUSAL_LM, num_virtual_tokens=4, token_dim=16)
    model = get_peft_model(models.llama(), config)
    inputs = models.token_batch(3)
    losses = find_loss_kind(model).example_losses(run(model, inputs), inputs)
    assert agrees(model, inputs)
    # The last virtual token predicts the first label.
    assert losses.target_count[0] == (inputs["labels"][0] != -100).sum()


def test_distributed_wrappers_are_looked_through(one_process):
    model = nn.parallel.DistributedDataParallel(models.llama())
    assert find_loss_kind(model).name == "causal_lm"
    assert agrees(model, models.token_batch(2))
    assert find_loss_kind(torch.compile(model)).name == "causal_lm"
    assert find_loss_kind(model, label_smoothing=0.1).shifted


def test_compiled_and_replicated_models_are_looked_through():
    assert find_loss_kind(torch.compile(models.t5())).name == "seq2seq"
    assert find_loss_kind(nn.DataParallel(models.gpt2())).name == "causal_lm"


def test_engines_are_looked_through_by_name():
    engine = type("DeepSpeedEngine", (nn.Module,), {})()
    engine.module = models.gpt2()
    assert find_loss_kind(engine).name == "causal_lm"


def test_a_module_that_holds_one_model_has_its_loss():
    assert find_loss_kind(Wrapper(models.gpt2())).name == "causal_lm"
    assert agrees(Wrapper(models.gpt2()), models.token_batch(2))
    assert find_loss_kind(Wrapper(nn.DataParallel(models.gpt2()))).name == "causal_lm"


def test_a_module_that_holds_two_models_has_no_known_loss():
    both = Wrapper(models.gpt2())
    both.teacher = models.llama()
    assert find_loss_kind(both) is None


def test_a_subclass_has_the_loss_of_its_base():
    model = models.build(MyTagger, models.bert_config(num_labels=models.VOCABULARY))
    assert model.loss_type is None
    assert find_loss_kind(model).name == "token_classification"
    assert agrees(model, models.token_batch(3))


def test_a_loss_of_ones_own_is_told_by_the_check():
    assert not agrees(models.build(Weighted, models.bert_config(num_labels=models.VOCABULARY)), models.token_batch(3))


def test_loss_type_set_by_the_user_counts():
    model = models.build(MyTagger, models.bert_config(num_labels=models.VOCABULARY))
    model.loss_type = "ForMaskedLM"
    assert find_loss_kind(model).name == "masked_lm"


def test_a_loss_function_put_on_the_model_is_not_known():
    model = models.llama()
    model.loss_function = lambda *args, **kwargs: torch.tensor(1.0)
    assert find_loss_kind(model) is None


@pytest.mark.parametrize(
    "model",
    [
        lambda: nn.Linear(2, 2),
        lambda: models.bert(tf.BertModel),
        lambda: models.bert(tf.BertForPreTraining),
        lambda: tf.ViTForMaskedImageModeling(
            tf.ViTConfig(
                hidden_size=16,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=16,
                image_size=8,
                patch_size=4,
                encoder_stride=4,
            )
        ),
    ],
    ids=["linear", "encoder", "pretraining", "masked_images"],
)
def test_other_models_have_no_known_loss(model):
    assert find_loss_kind(model()) is None


def test_a_router_loss_is_told_by_the_check():
    config = tf.MixtralConfig(
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_local_experts=2,
        vocab_size=models.VOCABULARY,
        router_aux_loss_coef=0.5,
    )
    model = models.build(tf.MixtralForCausalLM, config)
    assert agrees(model, models.token_batch(2))
    model.config.output_router_logits = True
    assert not agrees(model, models.token_batch(2))


@pytest.mark.parametrize("name", [*model_class._KIND_OF_CLASS])
def test_classes_known_by_name_exist(name):
    assert issubclass(getattr(tf, name), tf.PreTrainedModel)


_SIZES = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "vocab_size": models.VOCABULARY,
    "max_position_embeddings": 32,
    "max_target_positions": 32,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_OTHER_SIZES = {"emb_dim": 16, "n_layers": 1, "n_heads": 2, "vocab_size": models.VOCABULARY}
_CPM = {"hidden_size": 16, "num_attention_heads": 2, "dim_head": 8, "dim_ff": 16, "num_hidden_layers": 1}
_UNSHIFTED = {
    "BigBirdPegasusForCausalLM": (tf.BigBirdPegasusConfig, {**_SIZES, "attention_type": "original_full"}),
    "BlenderbotForCausalLM": (tf.BlenderbotConfig, _SIZES),
    "BlenderbotSmallForCausalLM": (tf.BlenderbotSmallConfig, _SIZES),
    "CpmAntForCausalLM": (tf.CpmAntConfig, {**_CPM, "vocab_size": models.VOCABULARY}),
    "FlaubertWithLMHeadModel": (tf.FlaubertConfig, _OTHER_SIZES),
    "MBartForCausalLM": (tf.MBartConfig, _SIZES),
    "MarianForCausalLM": (tf.MarianConfig, _SIZES),
    "MvpForCausalLM": (tf.MvpConfig, _SIZES),
    "PLBartForCausalLM": (tf.PLBartConfig, _SIZES),
    "PegasusForCausalLM": (tf.PegasusConfig, _SIZES),
    "TrOCRForCausalLM": (tf.TrOCRConfig, _SIZES),
    "WhisperForCausalLM": (tf.WhisperConfig, _SIZES),
    "XLMWithLMHeadModel": (tf.XLMConfig, _OTHER_SIZES),
}


@pytest.mark.parametrize("name", [*_UNSHIFTED])
def test_decoders_that_do_not_shift(name):
    config, sizes = _UNSHIFTED[name]
    model = models.build(getattr(tf, name), config(**sizes))
    assert find_loss_kind(model).name == "unshifted_lm"
    assert agrees(model, models.token_batch(3))


@pytest.mark.parametrize(
    ("name", "config"),
    [("MarianMTModel", tf.MarianConfig(**_SIZES, decoder_start_token_id=1))],
)
def test_translators_known_by_name(name, config):
    model = models.build(getattr(tf, name), config)
    assert find_loss_kind(model).name == "seq2seq"
    assert agrees(model, models.token_batch(3))

"""Which kind of loss a model takes, read from its class, its ``loss_type`` and its configuration."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn
from transformers import PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

_WRAPPERS = {"DataParallel", "DeepSpeedEngine", "DistributedDataParallel", "FullyShardedDataParallel"}

# Decoders of encoder-decoders on their own, and two older models: their position t predicts the label at t.
_UNSHIFTED = (
    "BartForCausalLM",
    "BigBirdPegasusForCausalLM",
    "BlenderbotForCausalLM",
    "BlenderbotSmallForCausalLM",
    "CpmAntForCausalLM",
    "FlaubertWithLMHeadModel",
    "MBartForCausalLM",
    "MarianForCausalLM",
    "MvpForCausalLM",
    "PLBartForCausalLM",
    "PegasusForCausalLM",
    "TrOCRForCausalLM",
    "WhisperForCausalLM",
    "XLMWithLMHeadModel",
    "XLNetLMHeadModel",
)
_ENCODER_DECODERS = (
    "EncoderDecoderModel",
    "MarianMTModel",
    "SeamlessM4TForSpeechToText",
    "SeamlessM4TForTextToText",
    "SeamlessM4Tv2ForSpeechToText",
    "SeamlessM4Tv2ForTextToText",
    "SpeechEncoderDecoderModel",
    "VisionEncoderDecoderModel",
)
_KIND_OF_CLASS = {
    "BertGenerationDecoder": "causal_lm",
    "ReformerModelWithLMHead": "causal_lm",
    **dict.fromkeys(_UNSHIFTED, "unshifted_lm"),
    **dict.fromkeys(_ENCODER_DECODERS, "seq2seq"),
}

# Fragments of class names and values of ``loss_type``; the first that occurs in the name counts.
_KIND_OF_FRAGMENT = {
    "ForCausalLM": "causal_lm",
    "LMHeadModel": "causal_lm",
    "ForConditionalGeneration": "conditional_generation",
    "ForMaskedLM": "masked_lm",
    "ForTokenClassification": "token_classification",
    "ForSequenceClassification": "sequence_classification",
    "ForImageClassification": "sequence_classification",
    "ForVideoClassification": "sequence_classification",
    "ForAudioClassification": "sequence_classification",
    "ForQuestionAnswering": "question_answering",
    "ForMultipleChoice": "single_label",
    "ForNextSentencePrediction": "single_label",
}


def unwrap_model(model: nn.Module) -> nn.Module:
    """Return the module inside DDP, FSDP, DeepSpeed, ``torch.compile`` and PEFT; the model is not changed.

    Example:
        >>> unwrap_model(nn.DataParallel(nn.Linear(1, 1)))
        Linear(in_features=1, out_features=1, bias=True)
    """
    while True:
        inner = _inner_module(model)
        if inner is None:
            return model
        model = inner


def _inner_module(model: nn.Module) -> nn.Module | None:
    # Wrappers are known by the names of their classes: accelerate's own unwrapping imports DeepSpeed where it is
    # installed, which costs seconds and prints.
    inner: nn.Module | None = None
    names = {cls.__name__ for cls in type(model).__mro__}
    if names & _WRAPPERS:
        inner = model.module  # type: ignore[assignment]
    elif "OptimizedModule" in names:
        inner = model._orig_mod  # type: ignore[assignment]
    elif "PeftModel" in names:
        inner = model.get_base_model()  # type: ignore[operator]
    return inner


def find_pretrained(model: nn.Module) -> PreTrainedModel | None:
    """Return the transformers model inside the wrappers, or the only one that a user's own module holds directly."""
    inner = unwrap_model(model)
    if isinstance(inner, PreTrainedModel):
        return inner
    held = [child for child in inner.children() if isinstance(unwrap_model(child), PreTrainedModel)]
    return find_pretrained(held[0]) if len(held) == 1 else None


def kind_of_model(model: PreTrainedModel) -> str | None:
    """Return the name of the model's loss kind, or None where it is not known.

    A loss function that the user has put on the model is never known.
    """
    if "_loss_function" in vars(model):
        return None
    for name in _names(model):
        if name in _KIND_OF_CLASS:
            return _KIND_OF_CLASS[name]
        kind = next((kind for fragment, kind in _KIND_OF_FRAGMENT.items() if fragment in name), None)
        if kind == "conditional_generation":
            return "seq2seq" if getattr(model.config, "is_encoder_decoder", False) else "causal_lm"
        if kind is not None:
            return kind
    return None


def _names(model: PreTrainedModel) -> Iterator[str]:
    # A class that is known by its full name tells more than its ``loss_type``, which is cut from that name.
    yield from (cls.__name__ for cls in type(model).__mro__ if cls.__name__ in _KIND_OF_CLASS)
    loss_type = getattr(model, "loss_type", None)
    if isinstance(loss_type, str):
        yield loss_type
    # A user's subclass has a name of its own; the class below it still tells the head.
    yield from (cls.__name__ for cls in type(model).__mro__)


def trainer_shifts_smoothed_labels(model: nn.Module) -> bool:
    """Say whether ``Trainer`` shifts the labels under label smoothing: by the name of the model's class alone."""
    return type(unwrap_model(model)).__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()

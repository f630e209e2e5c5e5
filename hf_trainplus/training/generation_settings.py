"""How a trainer's model generates in evaluation: from the call, the arguments, the model and the tokenizer."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from transformers import GenerationConfig, Seq2SeqTrainer
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

from hf_trainplus import _upstream as upstream
from hf_trainplus.evaluation.generate_batch import GenerationSettings

if TYPE_CHECKING:
    from transformers import Trainer

_ONE_ANSWER = {"num_return_sequences": 1, "return_dict_in_generate": False}


def generation_settings(trainer: Trainer, model: Any) -> GenerationSettings:
    """Collect how to generate; the first that says something counts, and nothing of what is read is changed.

    The order: what ``Seq2SeqTrainer.evaluate(max_length=..., num_beams=..., ...)`` was called with, the arguments
    ``generation_max_new_tokens``, ``generation_max_length`` and ``generation_num_beams``, the argument
    ``generation_config``, ``model.generation_config``, upstream's defaults (20 new tokens, greedy search).

    Args:
        trainer: its arguments and tokenizer count.
        model: the model itself, with ``generate``.
    """
    args, called = trainer.args, upstream.generation_arguments(trainer)
    own = _own_config(trainer, model)
    new_tokens, length = _limit(called, args, own)
    given = {"num_beams": getattr(args, "generation_num_beams", None), **called}
    given = {key: value for key, value in given.items() if value is not None and key not in _LIMITS}
    synced = given.pop("synced_gpus", _is_sharded(trainer))
    config = copy.deepcopy(own)
    model_inputs = config.update(**given, **_ONE_ANSWER)  # type: ignore[no-untyped-call, unused-ignore]
    config.pad_token_id = _pad_id(trainer, config, model)
    if config.stop_strings is not None:
        model_inputs["tokenizer"] = trainer.processing_class
    return GenerationSettings(
        config=config,
        pad_id=config.pad_token_id,
        is_encoder_decoder=bool(getattr(model.config, "is_encoder_decoder", False)),
        seed=int(args.seed),
        synced=bool(synced),
        max_new_tokens=new_tokens,
        max_length=length,
        model_inputs=model_inputs,
    )


_LIMITS = ("max_new_tokens", "max_length")


def _limit(called: Mapping[str, Any], args: Any, own: GenerationConfig) -> tuple[int | None, int | None]:
    """Return (max_new_tokens, max_length), of which one at most is set."""
    argued = {
        "max_new_tokens": getattr(args, "generation_max_new_tokens", None),
        "max_length": getattr(args, "generation_max_length", None),
    }
    # upstream puts the argument into the call, where it must not stand over a limit of new tokens
    named = {key: value for key, value in called.items() if value != argued.get(key)}
    for source in (named.get, argued.get, lambda key: getattr(own, key)):
        for key in _LIMITS:
            value = source(key)
            if value is not None:
                return (int(value), None) if key == "max_new_tokens" else (None, int(value))
    return None, None


def _own_config(trainer: Trainer, model: Any) -> GenerationConfig:
    named = getattr(trainer.args, "generation_config", None)
    # Seq2SeqTrainer has put it on the model
    if named is not None and not isinstance(trainer, Seq2SeqTrainer):
        return Seq2SeqTrainer.load_generation_config(named)
    own = getattr(model, "generation_config", None)
    return own if isinstance(own, GenerationConfig) else GenerationConfig()  # type: ignore[no-untyped-call, unused-ignore]


def _pad_id(trainer: Trainer, config: GenerationConfig, model: Any) -> int:
    """Return the id that fills; where nobody names one, the end of a sequence, or else any: it is masked."""
    processing = trainer.processing_class
    ends = config.eos_token_id
    candidates = (
        getattr(getattr(processing, "tokenizer", processing), "pad_token_id", None),
        config.pad_token_id,
        getattr(model.config, "pad_token_id", None),
        ends if ends is None or isinstance(ends, int) else ends[0],
    )
    return int(next((value for value in candidates if value is not None and value >= 0), 0))


def _is_sharded(trainer: Trainer) -> bool:
    return bool(trainer.is_fsdp_enabled or is_deepspeed_zero3_enabled())  # type: ignore[no-untyped-call, unused-ignore]

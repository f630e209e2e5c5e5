"""Generation of encoder-decoder models on both trainers, and the arguments that say how to generate."""

import dataclasses

import numpy as np
import pytest
import torch
from transformers import GenerationConfig, HfArgumentParser, Seq2SeqTrainer, Seq2SeqTrainingArguments

from hf_trainplus import PlusSeq2SeqTrainer, PlusSeq2SeqTrainingArguments, PlusTrainer, PlusTrainingArguments
from hf_trainplus.training.generation_settings import generation_settings
from tests.support import tiny
from tests.support.generation import Recorder
from tests.training.test_outputs_and_labels import SequenceCollator, sequence_rows, t5


def seq2seq(folder, metric=None, cls=PlusSeq2SeqTrainer, kind=PlusSeq2SeqTrainingArguments, **options):
    args = kind(**tiny.quiet(folder, per_device_eval_batch_size=3, predict_with_generate=True, **options))
    return cls(t5(), args, eval_dataset=sequence_rows(), data_collator=SequenceCollator(), compute_metrics=metric)


@pytest.mark.parametrize(
    "options", [{"generation_max_length": 6}, {"generation_max_length": 5, "generation_num_beams": 2}]
)
def test_predictions_equal_those_of_the_stock_seq2seq_trainer(options, tmp_path):
    stock = seq2seq(tmp_path, cls=Seq2SeqTrainer, kind=Seq2SeqTrainingArguments, **options).predict(sequence_rows())
    ours = seq2seq(tmp_path, **options).predict(sequence_rows())
    width = ours.predictions.shape[1]
    assert np.array_equal(ours.predictions, stock.predictions[:, :width])
    assert (stock.predictions[:, width:] == 0).all()
    assert ours.label_ids.min() == -100, "a target that is none is never mistaken for the padding id"
    filled = np.where(ours.label_ids < 0, 0, ours.label_ids)
    assert np.array_equal(filled, np.where(stock.label_ids < 0, 0, stock.label_ids)[:, : filled.shape[1]])


def test_arguments_of_the_call_reach_generate(tmp_path):
    recorder = Recorder()
    trainer = seq2seq(tmp_path, recorder, generation_max_new_tokens=9, generation_max_length=4)
    widths = []
    for call in ({}, {"max_length": 3}, {"max_new_tokens": 5, "num_beams": 2}):
        trainer.evaluate(**call)
        widths.append(recorder.seen[-1].predictions.shape[1])
    assert widths == [10, 3, 6]


def test_ranks_of_sharded_weights_are_kept_in_step(tmp_path, monkeypatch):
    trainer = seq2seq(tmp_path)
    assert not generation_settings(trainer, trainer.model).synced
    trainer.is_fsdp_enabled = True
    assert generation_settings(trainer, trainer.model).synced
    trainer.is_fsdp_enabled = False
    monkeypatch.setattr("hf_trainplus.training.generation_settings.is_deepspeed_zero3_enabled", lambda: True)
    assert generation_settings(trainer, trainer.model).synced


def test_an_encoder_decoder_under_plus_trainer(tmp_path):
    recorder, other = Recorder(), Recorder()
    seq2seq(tmp_path, recorder, PlusTrainer, PlusTrainingArguments, generation_max_new_tokens=5).evaluate()
    seq2seq(tmp_path, other, generation_max_new_tokens=5).evaluate()
    assert np.array_equal(recorder.seen[0].predictions, other.seen[0].predictions)


def test_a_prediction_step_of_ones_own_generates_in_its_own_way(tmp_path):
    class Own(PlusSeq2SeqTrainer):
        def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None, **kwargs):
            loss, _, labels = super().prediction_step(model, inputs, prediction_loss_only, ignore_keys, **kwargs)
            return loss, torch.full((len(labels), 2), 11), labels

    recorder = Recorder()
    metrics = seq2seq(tmp_path, recorder, Own, generation_max_length=6).evaluate()
    assert recorder.seen[0].predictions.tolist() == [[11, 11]] * 7
    assert "eval_generation_examples" not in metrics


def test_a_generation_config_of_the_arguments_counts_on_both_trainers(tmp_path):
    @dataclasses.dataclass
    class Both(Seq2SeqTrainingArguments, PlusTrainingArguments):
        pass

    given = GenerationConfig(max_new_tokens=3, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)
    for cls in (PlusTrainer, PlusSeq2SeqTrainer):
        recorder = Recorder()
        seq2seq(tmp_path, recorder, cls, Both, generation_config=given).evaluate()
        assert recorder.seen[0].predictions.shape[1] == 4


def test_fields_are_parsed_and_the_seq2seq_arguments_inherit_them():
    words = [
        "--output_dir",
        "o",
        "--use_cpu",
        "--report_to",
        "none",
        "--predict_with_generate",
        "--generation_eval_steps",
        "50",
    ]
    words += ["--generation_eval_size", "0.25", "--generation_max_new_tokens", "12"]
    for kind in (PlusTrainingArguments, PlusSeq2SeqTrainingArguments):
        (args,) = HfArgumentParser(kind).parse_args_into_dataclasses(words)
        found = (args.predict_with_generate, args.generation_eval_steps, args.generation_eval_size)
        assert found == (True, 50, 0.25)
        assert args.generation_max_new_tokens == 12
        plain = kind("o", use_cpu=True, report_to="none")
        assert (plain.predict_with_generate, plain.generation_eval_size) == (False, None)


@pytest.mark.parametrize(
    ("option", "match"),
    [
        ({"generation_eval_steps": 0}, "generation_eval_steps=0; allowed"),
        ({"generation_eval_size": -1}, "generation_eval_size=-1; allowed"),
        ({"generation_eval_size": 2.5}, "generation_eval_size=2.5; allowed"),
        ({"generation_max_new_tokens": 0}, "generation_max_new_tokens=0; allowed"),
    ],
)
def test_values_out_of_range_are_refused(option, match):
    with pytest.raises(ValueError, match=match):
        PlusTrainingArguments("o", use_cpu=True, report_to="none", **option)

"""The generation loop: what is generated, how long, and that a row's text does not depend on the rows beside it."""

import copy

import numpy as np
import pytest
import torch
from transformers import T5Config, T5ForConditionalGeneration

from hf_trainplus.evaluation.generate_batch import GenerationSettings, generate_batch
from hf_trainplus.evaluation.generated_ids import FilledIds, mark_generated
from hf_trainplus.evaluation.generation import GenerationLoop
from hf_trainplus.evaluation.loop import EvaluationLeft
from hf_trainplus.evaluation.metrics import load_metric
from hf_trainplus.evaluation.metrics.adapters import MetricReducer, as_metric
from hf_trainplus.evaluation.rows import RowCollector
from hf_trainplus.evaluation.windows import LoadedBatch
from tests.support import tiny
from tests.support.counting_model import END, PAD, CountingModel, WordDecoder, counting_rows


def settings_of(model, **options):
    config = copy.deepcopy(model.generation_config)
    config.pad_token_id = PAD
    for key in [key for key in options if hasattr(config, key) and key not in ("max_length", "max_new_tokens")]:
        setattr(config, key, options.pop(key))
    return GenerationSettings(config, PAD, bool(model.config.is_encoder_decoder), **options)


def completion_rows(n=6):
    rows = tiny.causal_rows(n, low=5)
    for k, row in enumerate(rows):
        row["labels"] = [-100] * (len(row["input_ids"]) - 1 - k % 3) + row["labels"][-1 - k % 3 :]
    return rows


def answers(found):
    return [row[kept].tolist() for row, kept in zip(found.ids, found.generated, strict=True)]


@pytest.mark.parametrize("make", [tiny.llama, tiny.gpt2])
@pytest.mark.parametrize(
    "how",
    [{}, {"num_beams": 2}, {"do_sample": True}, {"do_sample": True, "num_beams": 2}, {"do_sample": True, "top_k": 5}],
)
def test_a_text_does_not_depend_on_the_rows_beside_it(make, how):
    model, rows = make().eval(), completion_rows()
    settings = settings_of(model, max_new_tokens=6, seed=3, **how)
    together = answers(generate_batch(model, tiny.PaddingCollator()(rows), settings, range(6)))
    for order in ([5, 0, 3], [2], [4, 1]):
        batch = tiny.PaddingCollator("left", extra=1)([rows[k] for k in order])
        assert answers(generate_batch(model, batch, settings, order)) == [together[k] for k in order]


def test_sampling_depends_on_seed_and_position_and_leaves_the_random_state():
    model, batch = tiny.llama().eval(), tiny.PaddingCollator()(completion_rows())
    before = torch.random.get_rng_state()
    runs = [
        answers(generate_batch(model, batch, settings_of(model, do_sample=True, max_new_tokens=6, seed=seed), rows))
        for seed, rows in ((1, range(6)), (1, range(6)), (2, range(6)), (1, range(6, 12)))
    ]
    assert torch.equal(before, torch.random.get_rng_state())
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
    assert runs[0] != runs[3]


def test_the_prompt_is_cut_off_and_the_answer_ends_at_its_end():
    model, rows = CountingModel(), counting_rows([5, 17, 19])
    found = generate_batch(model, tiny.PaddingCollator()(rows), settings_of(model, max_new_tokens=30), range(3))
    assert answers(found) == [list(range(6, END + 1)), [18, 19, END], [END]]
    assert found.ids[1].tolist() == [18, 19, END] + [PAD] * 12
    assert found.scored[2].tolist() == [END] + [-100] * 14
    assert found.references[1, :4].tolist() == [18, 19, END, -100]


@pytest.mark.parametrize("new", [1, 4])
def test_the_limit_of_new_tokens_reaches_generate(new):
    model, rows = CountingModel(), counting_rows([5, 9])
    found = generate_batch(model, tiny.PaddingCollator()(rows), settings_of(model, max_new_tokens=new), range(2))
    assert answers(found) == [list(range(6, 6 + new)), list(range(10, 10 + new))]


def test_max_length_counts_the_prompt_and_not_its_padding():
    model, rows = CountingModel(), counting_rows([3, 8])
    settings = settings_of(model, max_length=9)
    lengths = [len(range(1, 4)), len(range(2, 9))]
    together = answers(generate_batch(model, tiny.PaddingCollator()(rows), settings, range(2)))
    assert [len(answer) for answer in together] == [9 - length for length in lengths]
    for k in range(2):
        alone = generate_batch(model, tiny.PaddingCollator()(rows[k : k + 1]), settings, [k])
        assert answers(alone) == [together[k]]


def test_a_prompt_that_leaves_no_room_is_named():
    model, batch = CountingModel(), tiny.PaddingCollator()(counting_rows([3, 8]))
    with pytest.raises(
        ValueError, match=r"row 31 has a prompt of 7 tokens and max_length=7.*generation_max_new_tokens"
    ):
        generate_batch(model, batch, settings_of(model, max_length=7), [30, 31])


@pytest.mark.parametrize("own", [{}, {"max_length": 50}, {"max_new_tokens": 2}])
def test_the_models_own_limit_gives_way_without_a_word(own, caplog, recwarn):
    model, rows = CountingModel(), counting_rows([5, 9])
    model.generation_config.update(**own)
    before = model.generation_config.to_dict()
    found = generate_batch(model, tiny.PaddingCollator()(rows), settings_of(model, max_new_tokens=4), range(2))
    assert [len(answer) for answer in answers(found)] == [4, 4]
    assert model.generation_config.to_dict() == before
    assert not [record for record in caplog.records if "max_length" in record.message]
    assert not recwarn.list


def t5():
    torch.manual_seed(0)
    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=40,
            d_model=16,
            d_ff=32,
            d_kv=8,
            num_layers=1,
            num_heads=2,
            decoder_start_token_id=3,
            pad_token_id=0,
        )
    ).eval()


@pytest.mark.parametrize("how", [{}, {"num_beams": 2}, {"do_sample": True}])
@pytest.mark.parametrize("limit", [{"max_new_tokens": 5}, {"max_length": 6}])
def test_an_encoder_decoder_keeps_its_start_which_is_not_scored(how, limit):
    model, rows = t5(), tiny.causal_rows(5, low=4)
    settings = settings_of(model, seed=1, **limit, **how)
    found = generate_batch(model, tiny.PaddingCollator()(rows), settings, range(5))
    assert (found.ids[:, 0] == 3).all()
    assert (found.scored[:, 0] == -100).all()
    assert found.ids.shape[1] <= 6
    for k in range(5):
        alone = generate_batch(model, tiny.PaddingCollator()(rows[k : k + 1]), settings, [k])
        assert answers(alone) == [answers(found)[k]]


def test_marks_by_hand():
    ids = torch.tensor([[2, 5, 2, 7], [2, 6, 7, 8]])
    assert mark_generated(ids, 1, [2]).tolist() == [[False, True, True, False], [False, True, True, True]]
    assert mark_generated(ids, 0, []).all()
    assert mark_generated(ids, 1, [2], torch.tensor([3, 1])).tolist()[1] == [False, True, False, False]


def batches_of(rows, size):
    collate = tiny.PaddingCollator()
    for first in range(0, len(rows), size):
        positions = np.arange(first, min(first + size, len(rows)))
        yield LoadedBatch(positions, np.ones(len(positions), bool), collate([rows[k] for k in positions]))


def loop_of(model, **options):
    return GenerationLoop(model, settings_of(model, max_new_tokens=30), **options)


def test_the_loop_scores_and_keeps_rows_in_dataset_order():
    model, rows, metric = CountingModel(), counting_rows([5, 17, 19, 8], wrong=[2]), load_metric("exact_match")
    reducer = MetricReducer([as_metric(metric, tokenizer=WordDecoder())])
    batches = list(batches_of(rows, 2))[::-1]
    ticks = iter([10.0, 12.5])
    counted = []
    output = loop_of(
        model,
        metrics=reducer,
        collector=RowCollector(),
        on_batch=lambda rows, tokens: counted.append((rows, tokens)),
        clock=lambda: next(ticks),
    ).run(batches)
    assert output.index.tolist() == [0, 1, 2, 3]
    assert output.columns.metrics == {"exact_match": 0.75}
    assert output.columns.scores["exact_match"][np.argsort(output.columns.index)].tolist() == [1, 1, 0, 1]
    assert [row[kept].tolist() for row, kept in zip(output.batch.ids, output.batch.generated, strict=True)] == [
        list(range(end + 1, END + 1)) for end in (5, 17, 19, 8)
    ]
    assert (output.seconds, counted) == (2.5, [(2, 13), (2, 18)])


def test_fillers_count_nowhere():
    rows = counting_rows([5, 17])
    batch = next(batches_of(rows, 2))._replace(real=np.array([False, True]))
    counted = []
    output = loop_of(CountingModel(), collector=RowCollector(), on_batch=lambda *done: counted.append(done)).run(
        [batch]
    )
    assert output.index.tolist() == [1]
    assert len(output.batch.ids) == 1
    assert counted == [(1, 3)]


def test_a_batch_that_does_not_fit_is_cut_and_run_again():
    model, rows = CountingModel(), counting_rows([5, 17, 19, 8, 3])

    def two_rows_fit():
        if model.shapes[-1][0] > 2:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")

    model.on_forward = two_rows_fit
    loop = loop_of(model, collector=RowCollector())
    output = loop.run(batches_of(rows, 5))
    assert output.index.tolist() == [0, 1, 2, 3, 4]
    assert loop.limit.lowered(8) == 2
    assert [int(kept.sum()) for kept in output.batch.generated] == [15, 3, 1, 12, 17]


def test_it_is_left_between_two_batches():
    asked = []

    def should_leave():
        asked.append(True)
        return len(asked) > 1

    model = CountingModel()
    with pytest.raises(EvaluationLeft, match="after 1 batches of generation"):
        loop_of(model, should_leave=should_leave).run(batches_of(counting_rows([18, 18, 18]), 1))
    assert {shape[0] for shape in model.shapes} == {1}


def test_a_users_batch_function_is_given_the_padding_id():
    seen = []

    def function(prediction, compute_result):
        seen.append(prediction.predictions)
        return {"rows": len(seen)} if compute_result else {}

    reducer = MetricReducer([FilledIds(as_metric(function, batch_eval_metrics=True), pad_id=7)])
    output = loop_of(CountingModel(), metrics=reducer).run(batches_of(counting_rows([5, 17, 19, 8]), 2))
    assert output.columns.metrics == {"rows": 2}
    assert [int(ids.min()) for ids in seen] == [6, 7]
    assert all((ids >= 0).all() for ids in seen)

"""Two real processes generate what one process generates, and end together."""

import json

import pytest

from tests.support.counting_model import END, PAD
from tests.support.generation import ENDS, Recorder, completion_rows, counting, exact_match, sampling_llama
from tests.support.launch import ROOT, torchrun

pytestmark = [pytest.mark.slow, pytest.mark.distributed]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    done = torchrun(ROOT / "tests/support/generation_two_ranks.py", tmp_path_factory.mktemp("two"), timeout=180)
    line = next(line for line in done.stdout.splitlines() if line.startswith("FOUND "))
    return json.loads(line[len("FOUND ") :])


def test_ranks_hold_the_same_values(found):
    assert found["ranks_agree"] is True


def test_ranks_with_3_and_9_tokens_to_go_end_together(found):
    assert found["lengths"] == [3, 9]
    assert found["forwards"] == [9, 9]


def test_sharded_weights_generate_what_whole_ones_do(found):
    assert found["sharded"] == found["whole"]
    assert len({len(answer) for answer in found["whole"]}) > 1


def test_scores_and_ids_equal_one_process(found, tmp_path):
    alone = counting(tmp_path, exact_match()).evaluate()
    assert found["exact_match"] == [6 / 8, 8, pytest.approx(alone["eval_loss"], abs=1e-6)]
    answers = [[token for token in row if token != PAD] for row in found["counted"]]
    assert answers == [list(range(end + 1, END + 1)) for end in ENDS]
    assert [row[0] for row in found["predicted"]] == [end + 1 for end in ENDS[:5]]


@pytest.mark.parametrize(("name", "size"), [("sampled", None), ("sampled_few", 3)])
def test_sampled_texts_equal_one_process(found, name, size, tmp_path):
    recorder = Recorder()
    options = {"generation_max_new_tokens": 6, "generation_eval_size": size}
    counting(tmp_path, recorder, completion_rows(), sampling_llama(), **options).evaluate()
    assert found[name] == recorder.seen[0].predictions.tolist()


def test_a_metric_that_fails_on_one_rank_fails_on_all(found):
    assert "another rank" in found["failed_0"]

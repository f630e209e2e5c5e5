"""A loss of a trainer's own is raced once rows have shown that it is theirs, and never when batch mates matter."""

import torch

from hf_trainplus import PlusTrainer
from tests.training.test_race import evaluations, finished, make


class OwnLoss(PlusTrainer):
    """Computes itself what a formula of ours gives row by row."""

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        outputs = model(**inputs)
        loss = torch.nn.functional.cross_entropy(outputs.logits, inputs["labels"])
        return (loss, outputs) if return_outputs else loss


class MatesMatter(PlusTrainer):
    """Scores each row against the others of its batch."""

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        outputs = model(**inputs)
        logits = outputs.logits - outputs.logits.mean(dim=0)
        loss = torch.nn.functional.cross_entropy(logits, inputs["labels"]) * len(logits) ** 0.5
        return (loss, outputs) if return_outputs else loss


def run(kind, folder, mode):
    return finished(make(folder / mode, mode, max_steps=6, kind=kind))


def test_a_trainers_own_loss_is_raced(tmp_path):
    full, race = (run(OwnLoss, tmp_path, mode) for mode in ("full", "race"))
    assert race._scheduled.race.session is not None
    assert race.state.best_global_step == full.state.best_global_step
    assert race._scheduled.race.session.race.state.pairs < 6 * 400
    # the rows that showed it are not evaluated twice
    assert race._scheduled.race.session._driver.rows_evaluated < race._scheduled.race.session.race.state.pairs


def test_a_loss_that_depends_on_batch_mates_is_not(tmp_path, caplog):
    race = run(MatesMatter, tmp_path, "race")
    assert "may depend on the rows beside it" in caplog.text
    assert {entry["eval_examples"] for entry in evaluations(race)} == {400}

"""A hyperparameter search compares every value, so it gets exact ones: stock's trials, prunings and best trial."""

import pytest
from transformers import Trainer, TrainingArguments

from hf_trainplus import PlusTrainer, PlusTrainingArguments, load_metric
from tests.support import tiny
from tests.training.test_race import SMALL, learnable

optuna = pytest.importorskip("optuna")
RATES = [1e-4, 3e-2, 1e-5, 1e-3]


def share_right(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def search(folder, *, races):
    """Return the best trial and the study of all learning rates, with half of the trials pruned when they are behind."""
    arguments = tiny.quiet(
        folder,
        max_steps=4,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=100,
        eval_strategy="steps",
        eval_steps=1,
        metric_for_best_model="loss",
        lr_scheduler_type="constant",
    )
    trainer = (PlusTrainer if races else Trainer)(
        None,
        PlusTrainingArguments(**arguments, eval_mode="race") if races else TrainingArguments(**arguments),
        model_init=lambda trial: tiny.bert(),
        train_dataset=learnable(32, seed=1),
        eval_dataset=learnable(200),
        data_collator=tiny.PaddingCollator(),
        compute_metrics=load_metric("accuracy") if races else share_right,
    )
    if races:
        trainer._scheduled.race.limits = SMALL
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = optuna.storages.InMemoryStorage()
    best = trainer.hyperparameter_search(
        hp_space=lambda trial: {"learning_rate": trial.suggest_categorical("learning_rate", RATES)},
        compute_objective=lambda metrics: metrics["eval_loss"],
        n_trials=len(RATES),
        direction="minimize",
        backend="optuna",
        sampler=optuna.samplers.GridSampler({"learning_rate": RATES}, seed=1),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=2, n_warmup_steps=1),
        storage=storage,
        study_name="rates",
    )
    return best, optuna.load_study(study_name="rates", storage=storage).trials


@pytest.mark.slow
def test_a_raced_search_has_stocks_values_prunings_and_best_trial(tmp_path, caplog):
    stock, stocks = search(tmp_path / "stock", races=False)
    best, trials = search(tmp_path / "race", races=True)
    assert "a hyperparameter search compares every value" in caplog.text
    assert [trial.state for trial in trials] == [trial.state for trial in stocks]
    assert (best.run_id, best.hyperparameters) == (stock.run_id, stock.hyperparameters)
    for trial, other in zip(trials, stocks, strict=True):
        assert trial.intermediate_values == pytest.approx(other.intermediate_values, rel=1e-5)
        assert trial.value == pytest.approx(other.value, rel=1e-5)
    assert optuna.trial.TrialState.PRUNED in {trial.state for trial in trials}

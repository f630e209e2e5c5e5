"""FLOP/s and model FLOPs utilisation of a model whose count is known."""

import pytest
import torch
from transformers import Trainer, TrainingArguments

from hf_trainplus.callbacks._torch_devices import peak_flops_of_name
from hf_trainplus.callbacks.step_clock import StepClockCallback
from tests.support import tiny


class Matrices(torch.nn.Module):
    """Square matrices one after the other, whose rows count as one input each."""

    main_input_name = "x"

    def __init__(self, width, layers):
        super().__init__()
        self.width, self.layers = (
            width,
            torch.nn.ModuleList(torch.nn.Linear(width, width, bias=False) for _ in range(layers)),
        )

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return {"loss": x.float().square().mean()}

    def num_parameters(self, exclude_embeddings):
        """Return what makes upstream's count, 6 x numbers of the input x parameters, that of the matrices."""
        return self.width * len(self.layers)


class Rows(torch.utils.data.Dataset):
    def __init__(self, n, width):
        self.n, self.width = n, width

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return {"x": torch.full((self.width,), float(index % 3))}


def train(folder, callback, attach, *, width=32, layers=2, batch=4, steps=6, resume=None, **options):
    args = TrainingArguments(
        **{
            **tiny.quiet(folder, max_steps=steps, logging_steps=2, per_device_train_batch_size=batch),
            "save_steps": 2,
            "remove_unused_columns": False,
            **options,
        }
    )
    trainer = Trainer(
        Matrices(width, layers),
        args,
        train_dataset=Rows(batch * steps * args.gradient_accumulation_steps, width),
        callbacks=None if attach else [callback],
    )
    if attach:
        callback.attach(trainer)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


@pytest.mark.parametrize("attach", [True, False])
def test_utilisation_is_the_known_count_over_time_and_peak_also_after_a_resume(tmp_path, attach):
    options = {"gradient_accumulation_steps": 3, "save_strategy": "steps"}
    first = StepClockCallback(peak_flops=1e9)
    train(tmp_path, first, attach, steps=4, **options)
    callback = StepClockCallback(peak_flops=1e9)
    trainer = train(tmp_path, callback, attach, resume=str(tmp_path / "checkpoint-4"), steps=10, **options)
    a_step = 3 * 6 * 4 * 32**2 * 2
    assert trainer.state.total_flos == 10 * a_step
    summary, rates = callback.summary(), callback.report.throughput
    assert summary["steps"] == 6
    aside = sum(summary["seconds"][part] for part in ("evaluation", "saving", "skipping"))
    seconds = summary["ranks"]["total_seconds"] - sum(
        summary["ranks"]["spreads"][part]["mean"] for part in ("evaluation", "saving", "skipping")
    )
    assert seconds == pytest.approx(summary["total_seconds"] - aside, rel=0.2)
    assert rates.tflops_per_device == pytest.approx(6 * a_step / seconds / 1e12)
    assert rates.model_flops_utilization_percent == pytest.approx(100 * 6 * a_step / seconds / 1e9)
    logged = [entry for entry in trainer.state.log_history if "speed/tflops_per_device" in entry]
    assert [entry["step"] for entry in logged if entry["step"] > 4] == ([6, 8, 10] if attach else [])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
def test_a_known_matrix_workload_reaches_its_utilisation_through_the_clock(tmp_path, monkeypatch):
    monkeypatch.setattr(TrainingArguments, "n_gpu", property(lambda self: 1))
    peak = peak_flops_of_name(torch.cuda.get_device_name(0), "bf16")
    if peak is None:
        pytest.skip("the device's peak is not in the table")
    callback = StepClockCallback()
    train(tmp_path, callback, True, width=8192, layers=8, batch=8192, steps=8, use_cpu=False, bf16=True)
    rates = callback.report.throughput
    print(f"{rates.tflops_per_device:.0f} TFLOP/s, {rates.model_flops_utilization_percent:.1f} % of the peak")
    assert rates.model_flops_utilization_percent == pytest.approx(100 * rates.tflops_per_device * 1e12 / peak)
    # autocast copies weights and the optimizer runs in float32: below what the bare matrices reach
    assert 10 < rates.model_flops_utilization_percent < 100

"""estimate_cost: the right values of the known example, and whole estimates of tiny models."""

import pytest
from transformers import LlamaConfig

import hf_trainplus
from hf_trainplus.budget.cost import estimate_cost
from tests.budget.costs import tiny_models


def test_the_public_name():
    assert hf_trainplus.estimate_cost is estimate_cost


def test_the_right_values():
    """An article in circulation prints 3.15e24, 7.0e6, 3.5e15 and 9e8: wrong by powers of ten."""
    cost = estimate_cost(175e9, tokens=300e9, evaluation_tokens=1e6, peak_tflops=312, utilisation=0.4)
    print(
        f"training {cost.training_flops:.3g} FLOPs = {cost.training_gpu_hours:.3g} GPU-hours; "
        f"evaluation {cost.evaluation_flops:.2g} FLOPs = {cost.evaluation_gpu_hours:.2f} GPU-hours; "
        f"ratio {cost.training_to_evaluation:.2g}"
    )
    assert cost.training_flops == pytest.approx(3.15e23)
    assert cost.training_gpu_hours == pytest.approx(7.0e5, rel=0.005)
    assert cost.evaluation_flops == pytest.approx(3.5e17)
    assert cost.evaluation_gpu_hours == pytest.approx(0.78, abs=0.005)
    assert cost.training_to_evaluation == pytest.approx(9.0e5)


def tiny(**changes):
    options = {"tokens": 1e6, "sequence_length": 48, "device": "l4", "batch_size": 2, **changes}
    return estimate_cost(tiny_models.llama(), **options)


def test_hours_time_energy_and_money_hang_together():
    cost = tiny(devices=4, scaling_efficiency=0.9, evaluation_tokens=1e5, evaluations=10, usd_per_device_hour=2.0)
    assert cost.gpu_hours == pytest.approx(cost.training_gpu_hours + 10 * cost.evaluation_gpu_hours)
    assert cost.wall_clock_seconds == pytest.approx(cost.gpu_hours * 3600 / 4)
    assert cost.usd == pytest.approx(cost.gpu_hours * 2)
    assert cost.energy_kwh == pytest.approx(cost.gpu_hours * 72 / 1000)


def test_training_costs_three_forward_passes_of_as_many_tokens():
    cost = tiny(evaluation_tokens=1e6)
    assert cost.training_to_evaluation == pytest.approx(3.0)


def test_without_an_evaluation_there_is_no_ratio():
    cost = tiny()
    assert (cost.evaluation_flops, cost.training_to_evaluation, cost.evaluation_gpu_hours) == (None, None, None)
    assert cost.evaluations == 0


def test_checkpointing_costs_operations_and_saves_memory():
    plain, again = tiny(), tiny(gradient_checkpointing=True)
    assert again.training_flops > 1.2 * plain.training_flops
    assert again.memory.activations < plain.memory.activations


def test_it_says_whether_a_device_holds_it():
    big = LlamaConfig(num_hidden_layers=32, num_attention_heads=32)
    options = {"tokens": 1e9, "sequence_length": 2048}
    assert estimate_cost(big, device="l4", **options).fits is False
    assert estimate_cost(big, device="l4", devices=64, sharding="zero3", weight_bytes=2, **options).fits is True
    assert tiny().fits is True
    assert estimate_cost(big, peak_tflops=100, **options).fits is None


@pytest.mark.parametrize(
    ("sharding", "bytes_a_weight"), [("none", 4 + 2), ("zero1", 2), ("zero2", 2), ("fsdp_full", 4)]
)
def test_deepspeeds_engines_hold_weights_in_16_bits_with_a_float32_copy(sharding, bytes_a_weight):
    """2 + 2 + 12 bytes a weight (Rajbhandari et al. 2020, section 3.1), without a flag; DDP and FSDP keep float32."""
    memory = estimate_cost(1e6, tokens=1e9, peak_tflops=1, sharding=sharding).memory
    assert memory.weights + memory.casts == bytes_a_weight * 1e6
    assert memory.optimizer == (12 if sharding.startswith("zero") else 8) * 1e6


def test_deepspeed_keeps_float32_in_float32_and_where_it_is_said():
    options = {"tokens": 1e9, "peak_tflops": 1, "sharding": "zero2"}
    assert estimate_cost(1e6, precision="fp32", **options).memory.states == 16e6
    assert estimate_cost(1e6, weight_bytes=4, **options).memory.states == (4 + 4 + 8 + 2) * 1e6
    assert estimate_cost(1e6, master_weights=False, **options).memory.states == (2 + 2 + 8) * 1e6


def test_an_encoder_decoder_counts_both_sides():
    options = {"tokens": 4800, "sequence_length": 48, "device": "l4"}
    both = estimate_cost(tiny_models.t5(), target_tokens=4800, target_length=48, **options)
    short = estimate_cost(tiny_models.t5(), target_tokens=480, target_length=5, **options)
    assert short.training_flops < 0.7 * both.training_flops


def test_attention_needs_a_length():
    with pytest.raises(ValueError, match=r"LlamaForCausalLM has attention.*Set sequence_length=512 .--sequence-length"):
        estimate_cost(tiny_models.llama(), tokens=1e6, device="l4")


def test_targets_need_a_decoder():
    with pytest.raises(ValueError, match="has no decoder of its own; leave out target_tokens"):
        tiny(target_tokens=5)


def test_an_unknown_device_asks_for_its_peak():
    with pytest.raises(ValueError, match="--peak-tflops 123"):
        tiny(device="h300")
    assert tiny(device="h300", peak_tflops=500).energy_kwh is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"evaluations": -1}, "evaluations=-1; allowed are integers >= 0"),
        ({"evaluations": 5}, r"evaluations=5 without their tokens. Set evaluation_tokens=1e6 \(--eval-tokens\)"),
        ({"sequence_length": 0}, "sequence_length=0; allowed are integers >= 1"),
        ({"tokens": float("inf")}, "tokens=inf; allowed are finite"),
    ],
)
def test_numbers_out_of_range_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        tiny(**wrong)

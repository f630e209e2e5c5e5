"""The generation loop: continues the prompt of every row once, and keeps generated ids apart from all others."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from transformers import GenerationConfig

from hf_trainplus.evaluation.generated_ids import end_ids, mark_generated, start_width
from hf_trainplus.evaluation.loop import EvaluationLeft
from hf_trainplus.evaluation.memory_backoff import BatchLimit, Split, run_with_backoff
from hf_trainplus.evaluation.metric_rows import MetricColumns
from hf_trainplus.evaluation.metrics.adapters import MetricReducer
from hf_trainplus.evaluation.prompts import (
    IGNORED_LABEL,
    GenerationInputs,
    decoder_only_inputs,
    encoder_decoder_inputs,
)
from hf_trainplus.evaluation.ranks import Ranks
from hf_trainplus.evaluation.row_seeds import RowSeededSampling, row_seeds
from hf_trainplus.evaluation.rows import RowCollector
from hf_trainplus.evaluation.windows import LoadedBatch

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class GenerationSettings:
    """How answers are generated.

    Args:
        config: upstream's configuration; a copy is passed to ``generate``.
        pad_id: fills prompts on the left and answers behind their end, >= 0.
        is_encoder_decoder: whether the prompt goes into an encoder.
        seed: with a row's position it seeds what is drawn for the row, >= 0.
        synced: forward passes are collectives (ZeRO-3, FSDP), so ranks go on until the last one is done.
        max_new_tokens: most new tokens of a row; it stands over any limit in ``config``.
        max_length: most tokens of a row, a decoder-only model's prompt among them, padding not; None for the limit in
            ``config``.
        model_inputs: further keyword arguments of ``generate``.
    """

    config: GenerationConfig
    pad_id: int
    is_encoder_decoder: bool
    seed: int = 0
    synced: bool = False
    max_new_tokens: int | None = None
    max_length: int | None = None
    model_inputs: Mapping[str, Any] = field(default_factory=dict)


class GeneratedBatch(NamedTuple):
    """What was generated for the rows of a batch.

    Args:
        ids: (rows, length) ids as ``generate`` returned them, a decoder-only model's prompt cut off; an
            encoder-decoder model's begin with the ids that its decoder was started with.
        generated: (rows, length) True for generated ids, up to and with a row's end of sequence.
        references: (rows, ...) target ids, -100 where there is none; None without labels.
        prompts: (rows, ...) the inputs that were continued, where they are kept.
    """

    ids: torch.Tensor
    generated: torch.Tensor
    references: torch.Tensor | None
    prompts: torch.Tensor | None = None

    @property
    def scored(self) -> torch.Tensor:
        """(rows, length) generated ids, -100 everywhere else, for metrics that leave out negative ids."""
        return self.ids.masked_fill(~self.generated, IGNORED_LABEL)


@dataclass(frozen=True)
class GenerationOutput:
    """What one pass found, on every rank alike.

    Args:
        index: (n,) positions of the rows, ascending.
        batch: the rows' ids as numpy arrays in dataset order; None when nothing was collected.
        columns: what metrics that reduce a batch at a time found; None without such metrics.
        seconds: wall-clock seconds on this rank.
    """

    index: npt.NDArray[np.int64]
    batch: GeneratedBatch | None
    columns: MetricColumns | None
    seconds: float


def generate_batch(
    model: Any, inputs: Mapping[str, Any], settings: GenerationSettings, positions: Sequence[int]
) -> GeneratedBatch:
    """Continue the prompts of one collated batch.

    Greedy search and beams depend on nothing but the rows; where tokens are drawn, each row draws from a random state
    of its own, which is set by the seed and the row's position. Neither the model's generation configuration nor a
    tokenizer is changed.

    Args:
        model: a model with ``generate``, not its distributed wrapper.
        inputs: a batch as the trainer's collator makes it.
        settings: how to generate.
        positions: (rows,) positions of the rows in the dataset.

    Raises:
        ValueError: a row has no prompt or one that leaves no room, rows are laid end to end, or tokens are drawn in a
            way that cannot be seeded by row.
    """
    prepared = _prepared(inputs, settings, positions)
    allowed = _allowed(prepared, settings, positions)
    config = copy.deepcopy(settings.config)
    _put_limit(config, model, prepared.begun, allowed, settings.max_length)
    with ExitStack() as stack:
        if config.do_sample:
            stack.enter_context(RowSeededSampling(row_seeds(settings.seed, positions)))
        if settings.max_new_tokens is None and settings.max_length is None:
            stack.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", message="Using the model-agnostic default", category=UserWarning)
        output = model.generate(
            **prepared.inputs, **settings.model_inputs, generation_config=config, synced_gpus=settings.synced
        )
    ids = (output if isinstance(output, torch.Tensor) else output.sequences)[:, prepared.prompt_width :]
    start = start_width(ids, prepared.inputs, model, config) if settings.is_encoder_decoder else 0
    generated = mark_generated(ids, start, end_ids(model, config), allowed)
    ids[:, start:] = ids[:, start:].masked_fill(~generated[:, start:], settings.pad_id)
    return GeneratedBatch(ids, generated, prepared.references)


def _prepared(inputs: Mapping[str, Any], settings: GenerationSettings, positions: Sequence[int]) -> GenerationInputs:
    if settings.is_encoder_decoder:
        return encoder_decoder_inputs(inputs)
    return decoder_only_inputs(inputs, settings.pad_id, positions=positions)


def _allowed(prepared: GenerationInputs, settings: GenerationSettings, positions: Sequence[int]) -> torch.Tensor | None:
    """Return how many new tokens each row may have; None where one length holds for all, or none is set.

    Upstream counts a row's padding into ``max_length``, so that a text's end would depend on the rows beside it.
    """
    if settings.max_new_tokens is not None:
        return torch.full((len(positions),), settings.max_new_tokens)
    if settings.max_length is None or settings.is_encoder_decoder:
        return None
    lengths: torch.Tensor = prepared.inputs["attention_mask"].sum(1).cpu()
    longest = int(lengths.argmax())
    if lengths[longest] >= settings.max_length:
        raise ValueError(
            f"row {positions[longest]} has a prompt of {int(lengths[longest])} tokens and max_length="
            f"{settings.max_length} counts the prompt; set generation_max_new_tokens, which does not."
        )
    return settings.max_length - lengths


def _put_limit(
    config: GenerationConfig, model: Any, begun: int, allowed: torch.Tensor | None, max_length: int | None
) -> None:
    """Say the limit in the one way in which the model's own limit does not come back beside it.

    Upstream fills what is None here from the model's configuration; of two limits it takes the one of new tokens, and
    warns of both in every batch.
    """
    if allowed is None and max_length is None:
        return
    new = int(allowed.max()) if allowed is not None else cast("int", max_length) - begun
    own = getattr(model, "generation_config", None)
    by_length = getattr(own, "max_length", None) is not None or allowed is None
    if by_length and getattr(own, "max_new_tokens", None) is None:
        config.max_length, config.max_new_tokens = begun + new, None
    else:
        config.max_length, config.max_new_tokens = None, new


@dataclass
class GenerationLoop:
    """One pass over rows that are generated for; it knows no Trainer.

    Ranks run equally many batches. A batch that does not fit in memory is cut and its rows run again.

    Args:
        model: the model itself, not its distributed wrapper.
        settings: how to generate.
        metrics: metrics that take generated ids a batch at a time; None for none.
        collector: keeps the generated ids; None to keep none.
        input_name: key of the inputs to keep beside them; None for none.
        on_batch: called after every batch with its number of real rows and of generated tokens.
        should_leave: asked before every batch, with one answer for all ranks; True leaves the evaluation.
        precision: makes the context that batches run in.
        limit: remembers how far batches had to be cut for lack of memory.
        split: cuts a batch that does not fit in memory.
        ranks: the processes that evaluate together.
        clock: seconds, monotonic.
    """

    model: Any
    settings: GenerationSettings
    metrics: MetricReducer | None = None
    collector: RowCollector | None = None
    input_name: str | None = None
    on_batch: Callable[[int, int], None] | None = None
    should_leave: Callable[[], bool] | None = None
    precision: Callable[[], AbstractContextManager[None]] = nullcontext
    limit: BatchLimit = field(default_factory=BatchLimit)
    split: Split | None = None
    ranks: Ranks = Ranks()
    clock: Callable[[], float] = time.monotonic

    def run(self, batches: Iterable[LoadedBatch]) -> GenerationOutput:
        """Generate for all rows.

        Args:
            batches: this rank's batches, equally many on every rank.

        Raises:
            EvaluationLeft: a stop was asked for.
            ValueError: see ``generate_batch``.
        """
        start, positions = self.clock(), [np.zeros(0, np.int64)]
        with ExitStack() as on_error, self.precision():
            if self.collector is not None:
                on_error.callback(self.collector.close)
            done = run_with_backoff(
                self._until_left(batches),
                self._run_batch,
                self.limit,
                split=self.split,
                agree=self.ranks.any if self.ranks.size > 1 else None,
            )
            for batch, found in done:
                self._keep(batch, found)
                positions.append(batch.positions[batch.real])
            on_error.pop_all()
        return self._finish(np.concatenate(positions), start)

    def _until_left(self, batches: Iterable[LoadedBatch]) -> Iterator[LoadedBatch]:
        for count, batch in enumerate(batches):
            if self.should_leave is not None and self.should_leave():
                raise EvaluationLeft(f"left after {count} batches of generation")
            yield batch

    def _run_batch(self, batch: LoadedBatch) -> GeneratedBatch:
        found = generate_batch(self.model, batch.inputs, self.settings, batch.positions.tolist())
        return found if self.input_name is None else found._replace(prompts=batch.inputs.get(self.input_name))

    def _keep(self, batch: LoadedBatch, found: GeneratedBatch) -> None:
        positions = batch.positions[batch.real]
        if self.metrics is not None:
            self.metrics.add(positions, batch.real, found.scored, found.references)
        if self.collector is not None:
            self.collector.add(positions, tuple(found), batch.real)
        if self.on_batch is not None:
            real = torch.as_tensor(batch.real, device=found.generated.device)
            self.on_batch(len(positions), int(found.generated[real].sum()))

    def _finish(self, positions: npt.NDArray[np.int64], start: float) -> GenerationOutput:
        kept = self.collector.finish(self.ranks) if self.collector is not None else None
        return GenerationOutput(
            index=np.sort(np.concatenate(self.ranks.gather(positions))),
            batch=None if kept is None else GeneratedBatch(*kept),
            columns=self.metrics.columns(self.ranks) if self.metrics is not None else None,
            seconds=self.clock() - start,
        )

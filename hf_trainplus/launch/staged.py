"""Runs a plan as a chain of launches: every stage with its own number of processes, from the last boundary on."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hf_trainplus.budget.stages import StagePlan
from hf_trainplus.launch.command import stage_command
from hf_trainplus.training.checkpoints.search import newest_whole
from hf_trainplus.training.checkpoints.staging import recover
from hf_trainplus.training.stages.contradictions import differences
from hf_trainplus.training.stages.environment import PLAN, STAGE
from hf_trainplus.training.stages.record import read_record
from hf_trainplus.training.stages.start import find_start

Run = Callable[[Sequence[str], Mapping[str, str]], int]


@dataclass(frozen=True)
class Launch:
    """One launch: the stage, what was started, and how it ended."""

    stage: str
    command: tuple[str, ...]
    exit_code: int


@dataclass(frozen=True)
class Place:
    """Where the newest whole checkpoint says that a run is.

    Args:
        stage: stage that is due, None when the plan is over.
        step: global step of the checkpoint, None without one.
        reason: why the plan is over, a ``StopReason`` value; None while it is not.
    """

    stage: str | None
    step: int | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Outcome:
    """How a chain of launches ended.

    Args:
        state: ``finished``; ``stopped``, a child ended its stage early and cleanly, or a signal came; ``failed``.
        place: where the run is.
        launches: in order; none for a plan that was over already.
    """

    state: str
    place: Place
    launches: tuple[Launch, ...]

    @property
    def exit_code(self) -> int:
        """Exit code of the last child, 0 without one."""
        return self.launches[-1].exit_code if self.launches else 0


def find_place(plan: StagePlan, output_dir: str | Path) -> Place:
    """Read from the newest whole checkpoint which stage is due; the first one without a checkpoint.

    Args:
        plan: the plan.
        output_dir: folder of the run.

    Raises:
        ValueError: the plan has no place for the checkpoint.
    """
    return _look(plan, output_dir)[0]


def _look(plan: StagePlan, output_dir: str | Path) -> tuple[Place, bool]:
    """Return the place, and whether the run was over under another plan: what that means is the child's business."""
    recover(str(output_dir))
    checkpoint = newest_whole(str(output_dir)).folder
    record = None if checkpoint is None else read_record(checkpoint)
    # so is a plan that has changed: the child refuses it, or replaces the old one
    start = find_start(plan, checkpoint, record, lambda stage: record.options if record else {}, replace=True)
    step = None if checkpoint is None else int(checkpoint.rpartition("-")[2])
    if start.finished and record is not None:
        return Place(None, step, record.reason), bool(differences(record.plan, plan.to_dict()))
    return Place(plan.stages[start.stage].name, step), False


def run_stages(
    plan: StagePlan,
    plan_file: str | Path,
    command: Sequence[str],
    output_dir: str | Path,
    run: Run,
    *,
    tell: Callable[[str], None] = lambda line: None,
    stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Start one stage after another until the plan is over, or until a child does not end its stage.

    It reads checkpoints between launches and nothing else of the children, and it never starts a stage a second time
    without a boundary in between.

    Args:
        plan: the plan.
        plan_file: its file; children read it through ``TRAINPLUS_PLAN``, and their stage in ``TRAINPLUS_STAGE``.
        command: launcher, script and options.
        output_dir: folder of the run, where its checkpoints are.
        run: starts a command with further environment variables and returns its exit code.
        tell: is given a line before each launch.
        stop: says whether somebody wants the chain to end.

    Raises:
        ValueError: a stage needs several processes and the command starts one, or the checkpoint fits no stage.
    """
    for stage in plan:
        stage_command(command, stage.num_processes)
    launches: list[Launch] = []
    while True:
        place, differs = _look(plan, output_dir)
        if place.stage is None and (launches or not differs):
            return Outcome("finished", place, tuple(launches))
        if stop() or (launches and launches[-1].stage == place.stage):
            return Outcome("stopped", place, tuple(launches))
        stage = plan.stages[-1 if place.stage is None else plan.index(place.stage)]
        words = stage_command(command, stage.num_processes)
        tell(f"stage {stage.name}: {shlex.join(words)}")
        code = run(words, {PLAN: os.path.abspath(plan_file), STAGE: stage.name})
        launches.append(Launch(stage.name, tuple(words), code))
        if code:
            return Outcome("failed", find_place(plan, output_dir), tuple(launches))

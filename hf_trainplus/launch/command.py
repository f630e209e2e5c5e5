"""The command that starts a stage, with its number of processes put in."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

# launcher -> the option with the number of processes, as it is spelled with and without dashes
_OPTIONS = {
    "accelerate": ("--num_processes", "--num-processes"),
    "torchrun": ("--nproc_per_node", "--nproc-per-node"),
}
_MODULES = {
    "accelerate.commands.launch": "accelerate",
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
}


def stage_command(command: Sequence[str], processes: int | None) -> list[str]:
    """Return a command with the number of processes of a stage.

    The launcher's own options end at the script (a word that ends with ``.py``) or at ``-m``.

    Args:
        command: ``accelerate launch ...``, ``torchrun ...``, either as ``python -m ...``, or a script of one process.
        processes: of the stage, None for what the command says itself.

    Raises:
        ValueError: several processes, and a command that starts one.

    Example:
        >>> stage_command(["accelerate", "launch", "--num_processes", "8", "train.py", "--bf16"], 2)
        ['accelerate', 'launch', '--num_processes', '2', 'train.py', '--bf16']
        >>> stage_command(["python", "train.py"], 1)
        ['python', 'train.py']
    """
    words = list(command)
    if processes is None:
        return words
    launcher, begin = _launcher(words)
    if launcher is None:
        if processes == 1:
            return words
        raise ValueError(
            f"a stage asks for {processes} processes, and `{shlex.join(words)}` starts one. Write `accelerate launch "
            f"{words[-1] if words else 'train.py'} ...` or `torchrun ...` after the dashes."
        )
    end = _script(words, begin)
    kept = _without(words[begin:end], _OPTIONS[launcher])
    return [*words[:begin], _OPTIONS[launcher][0], str(processes), *kept, *words[end:]]


def starts_others(command: Sequence[str]) -> bool:
    """Say whether a command starts the processes that train, and does not train itself.

    Example:
        >>> starts_others(["torchrun", "train.py"]), starts_others(["python", "train.py"])
        (True, False)
    """
    return _launcher(list(command))[0] is not None


def _launcher(words: Sequence[str]) -> tuple[str | None, int]:
    """Return the kind of launcher and the place where its options begin."""
    for place, word in enumerate(words):
        name = word.rpartition("/")[2]
        if name == "accelerate" and list(words[place + 1 : place + 2]) == ["launch"]:
            return "accelerate", place + 2
        if name in ("accelerate-launch", "torchrun"):
            return "accelerate" if name.startswith("accelerate") else "torchrun", place + 1
        if word in _MODULES and place and words[place - 1] == "-m":
            return _MODULES[word], place + 1
        if word.endswith(".py"):
            break
    return None, 0


def _script(words: Sequence[str], begin: int) -> int:
    ends = (place for place in range(begin, len(words)) if words[place].endswith(".py") or words[place] == "-m")
    return next(ends, len(words))


def _without(words: Sequence[str], options: Sequence[str]) -> list[str]:
    kept, skip = [], False
    for word in words:
        given = word in options
        if not (skip or given or word.startswith(tuple(f"{one}=" for one in options))):
            kept.append(word)
        skip = given
    return kept


def output_dir_of(command: Sequence[str]) -> str | None:
    """Return what the command gives as ``--output_dir``, None when it gives none.

    Example:
        >>> output_dir_of(["torchrun", "train.py", "--output_dir=runs/a"]), output_dir_of(["train.py"])
        ('runs/a', None)
    """
    for place, word in enumerate(command):
        name, equals, value = word.partition("=")
        if name in ("--output_dir", "--output-dir"):
            following = command[place + 1] if place + 1 < len(command) else None
            return value if equals else following
    return None

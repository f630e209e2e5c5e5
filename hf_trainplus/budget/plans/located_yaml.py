"""YAML (and with it JSON) as plain values, with the line of every key and entry, and keys given twice."""

from __future__ import annotations

from typing import Any

import yaml

from hf_trainplus.budget.plans.problems import Path, Problems

_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_PLAIN_TAGS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


def load_located(text: str, problems: Problems) -> Any:
    r"""Read YAML text.

    It runs no code: only plain values are made. Anchors and merge keys (``<<``) work. A number with colons stays text:
    YAML 1.1 counts ``2:30`` in sixties, as 150, where a person means a time.

    Args:
        text: the file's text.
        problems: syntax errors and keys given twice are noted here; its ``lines`` are filled.

    Returns:
        Mappings, lists, texts, numbers, booleans and None; None when the text does not parse.

    Example:
        >>> problems = Problems()
        >>> load_located("a: 1\nb: [x, y]\na: 2", problems)
        {'a': 2, 'b': ['x', 'y']}
        >>> [(problem.line, problem.message) for problem in problems.found]
        [(3, "'a' is given twice, first on line 1; give it once.")]
    """
    lines: dict[Path, int] = {}
    problems.lines = lines
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        lines[()] = text.count("\n", 0, error.position) + 1
        problems.add((), f"holds the character {chr(error.character)!r}, which YAML does not allow. Take it out.")
        return None
    try:
        node = loader.get_single_node()
        return _value(loader, node, (), lines, problems) if node is not None else None
    except yaml.MarkedYAMLError as error:
        lines[()] = error.problem_mark.line + 1 if error.problem_mark else 1
        problems.add((), f"is no YAML: {error.problem or error.context}. Check indentation and quotes on this line.")
        return None
    except RecursionError:
        problems.add((), "is too deep to be a plan, or an anchor stands inside of itself. Write its values out.")
        return None
    finally:
        loader.dispose()


def _value(loader: yaml.SafeLoader, node: yaml.Node, path: Path, lines: dict[Path, int], problems: Problems) -> Any:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.CollectionNode) and node.tag not in _PLAIN_TAGS:
        problems.add(path, f"has the tag {node.tag!r}; allowed are plain mappings and lists. Leave the tag out.")
    if isinstance(node, yaml.SequenceNode):
        return [_value(loader, child, (*path, place), lines, problems) for place, child in enumerate(node.value)]
    if not isinstance(node, yaml.MappingNode):
        sixties = node.tag in _NUMBERS and ":" in node.value
        return node.value if sixties else loader.construct_object(node)
    _note_twice(node, path, lines, problems)
    loader.flatten_mapping(node)
    values: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node)
        key = key if isinstance(key, (str, int, float, bool)) else str(key)
        place = (*path, str(key))
        lines[place] = key_node.start_mark.line + 1
        values[key] = _value(loader, value_node, place, lines, problems)
    return values


def _note_twice(node: yaml.MappingNode, path: Path, lines: dict[Path, int], problems: Problems) -> None:
    first: dict[str, int] = {}
    for key_node, _ in node.value:
        key, line = str(key_node.value), key_node.start_mark.line + 1
        if key in first and key != "<<":
            lines[(*path, key)] = line
            problems.add((*path, key), f"{key!r} is given twice, first on line {first[key]}; give it once.")
        first.setdefault(key, line)

"""Which columns hold the ends of an edge and its weight: by name, or by a guess that is told.

A guess must never make a wrong graph. What is known by its name is taken; a pandas index and
columns of times or measures are never ends; where two readings are possible, the user is asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from figrl.errors import BadInputError
from figrl.ingestion.options import IngestOptions

_ENDS = (("source", "target"), ("src", "dst"), ("src", "dest"), ("from", "to"), ("u", "v"))
_INDEX = re.compile(r"|index|level_\d+|unnamed: \d+(_level_\d+)?|__index_level_\d+__")
_WEIGHTS = frozenset(
    {"w", "wt", "wgt", "weight", "weights", "value", "val", "count", "counts", "cnt"}
    | {"freq", "frequency", "strength", "multiplicity"}
)
_TIMES = frozenset(
    {"year", "month", "week", "day", "hour", "date", "datetime", "time", "timestamp"}
    | {"ts", "at", "epoch"}
)
_MEASURES = frozenset(
    {"rating", "amount", "score", "price", "cost", "distance", "length", "duration"}
    | {"quantity", "qty", "similarity", "probability", "confidence", "sign"}
)


@dataclass(frozen=True)
class Column:
    """A column: its name, and what its type, or its first values, are.

    `nothing`: no value was seen. `other`: a type that ids cannot have. `numeric`: whether it holds
    numbers; of text, whether one of its values is a number.
    """

    name: str
    holds: Literal["int", "float", "string", "other", "nothing"]
    numeric: bool


@dataclass(frozen=True)
class Chosen:
    """Names of the columns of source, target and perhaps weight, and what the user is told."""

    source: str
    target: str
    weight: str | None
    notes: tuple[str, ...] = ()

    @property
    def ends(self) -> tuple[str, str]:
        """Columns of ids."""
        return self.source, self.target

    def names(self, options: IngestOptions) -> tuple[str, ...]:
        """Columns that are read, in the order of their roles."""
        others = (self.weight, options.time)
        return (*self.ends, *(name for name in others if name is not None))


@dataclass(frozen=True)
class Table:
    """The columns of a file, from which those of an edge are chosen.

    `named`: whether the file itself names them; otherwise the names are numbers, from 1. `index`:
    columns that pandas says are the index. `distinct`: whether the first values of a column all
    differ, which is asked only where it matters.
    """

    path: str
    columns: Sequence[Column]
    options: IngestOptions
    named: bool
    distinct: Callable[[str], bool]
    index: Sequence[str] = ()

    @property
    def names(self) -> list[str]:
        """Names of all columns."""
        return [column.name for column in self.columns]

    @property
    def shown(self) -> str:
        """The columns, for a message."""
        return ", ".join(name or "(no name)" for name in self.names) or "none"

    def choose(self) -> Chosen:
        """Choose the columns, or ask."""
        self._check_given()
        source, target = self._ends()
        weight, notes = self._weight(source, target)
        chosen = Chosen(source, target, weight, (*self._left_out(source, target), *notes))
        used = chosen.names(self.options)
        for name in used:
            if used.count(name) > 1 or self.names.count(name) > 1:
                raise BadInputError(
                    f"{self.path}: column '{name}' would be used twice. Its columns are: "
                    f"{self.shown}. Name different ones with --source, --target, --weight and "
                    "--time."
                )
        return chosen

    def _given(self) -> dict[str, str]:
        """Names that were given, by option."""
        given = {name: getattr(self.options, name) for name in ("source", "target", "time")}
        given["weight"] = self.options.weight_column
        return {option: name for option, name in given.items() if name is not None}

    def _check_given(self) -> None:
        for option, name in self._given().items():
            if name not in self.names:
                numbers = "" if self.named else "It has no header, so that they are numbers. "
                raise BadInputError(
                    f"{self.path}: there is no column '{name}' (given with --{option}). {numbers}"
                    f"Its columns are: {self.shown}."
                )

    def _ends(self) -> tuple[str, str]:
        options = self.options
        if options.source is not None and options.target is not None:
            return options.source, options.target
        free = [column for column in self.columns if column.name not in self._given().values()]
        by_name = self._ends_by_name(free) if self.named else None
        if by_name is not None:
            return options.source or by_name[0], options.target or by_name[1]
        wanted = [options.source, options.target].count(None)
        possible = [column for column in free if self._may_be_end(column)]
        if len(possible) < wanted:
            # A named index of pandas stands last in Parquet, and first in a frame.
            index = [c for c in free if c.name in self.index and not _is_index(c.name)]
            possible = [*index, *possible]
        if len(possible) < wanted:
            raise BadInputError(
                f"{self.path}: an edge has two ends, each in a column of its own; this file has "
                f"the columns {self.shown}. Give a file with more, or name others of its columns "
                "with --source and --target (an index, times and weights are not taken by "
                "themselves)."
            )
        ids = [column for column in possible if column.holds in ("int", "string", "nothing")]
        ends = ids if len(ids) >= wanted else possible
        if wanted == 2:
            self._ask_if_first_may_be_index(ends)
            return ends[0].name, ends[1].name
        return options.source or ends[0].name, options.target or ends[0].name

    def _ends_by_name(self, free: Sequence[Column]) -> tuple[str, str] | None:
        """Columns whose names are those of the ends of an edge, such as source and target."""
        options = self.options
        for pair in _ENDS:
            found = []
            for word, given in zip(pair, (options.source, options.target), strict=True):
                hits = [column.name for column in free if _stem(column.name) == word]
                found.append([given] if given is not None else hits)
            if all(len(hits) == 1 for hits in found):
                return found[0][0], found[1][0]
        return None

    def _may_be_end(self, column: Column) -> bool:
        if not self.named:
            return True
        name = column.name
        kept = _is_index(name) or name in self.index
        return not (kept or is_weight(name) or is_time(name) or _words(name) & _MEASURES)

    def _ask_if_first_may_be_index(self, ends: Sequence[Column]) -> None:
        """Ask where the first of three possible ends may be an index or a key of the rows."""
        if len(ends) < 3 or ends[1].holds != ends[2].holds:
            return
        first, second, third = (column.name for column in ends[:3])
        if len({first, second, third}) < 3:
            return
        if not self.named and (ends[2].numeric or self.options.weight is not None):
            # Asked with the weight, or answered by it.
            return
        if self.distinct(first) or ends[0].holds != ends[1].holds:
            remedy = "Name two with --source and --target."
            if not self.named:
                remedy = (
                    "Give --weight none to take the first two or, in CSV and TSV, name others by "
                    "their numbers, such as --source 2 --target 3."
                )
            raise BadInputError(
                f"{self.path}: three columns may hold the ends of edges, '{first}', '{second}' "
                f"and '{third}', and no value of '{first}' is there twice, or it differs from the "
                f"others: it may be an index. {remedy}"
            )

    def _left_out(self, source: str, target: str) -> Sequence[str]:
        """Tell of an index that was passed over in a guess."""
        if self.options.source is not None or not self.named:
            return ()
        used = (source, target)
        names = [n for n in self.names if (_is_index(n) or n in self.index) and n not in used]
        shown = ", ".join(f"'{name}'" if name else "without a name" for name in names)
        return (f"Column {shown} was taken for an index of pandas and left out.",) if names else ()

    def _weight(self, source: str, target: str) -> tuple[str | None, Sequence[str]]:
        """Column of weights: given, or with the name of one; and notes of what was not taken."""
        options = self.options
        if options.weight is not None:
            return options.weight_column, ()
        rest = [
            column
            for column in self.columns
            if column.numeric
            and column.name not in (source, target, options.time)
            and not (self.named and (_is_index(column.name) or column.name in self.index))
        ]
        if not self.named:
            if rest and options.source is None and options.target is None:
                name = rest[0].name
                raise BadInputError(
                    f"{self.path}: column {name} holds numbers and has no name, so that they may "
                    "be weights, times or, where the first column is an index, ids. Give --weight "
                    f"{name} to take them as weights, --weight none to leave them out or, in CSV "
                    "and TSV, name the ends by their numbers, such as --source 2 --target 3."
                )
            return None, ()
        likely = [column.name for column in rest if is_weight(column.name)]
        if options.source is not None or options.target is not None:
            return None, [_not_taken(name) for name in likely]
        if len(likely) > 1:
            raise BadInputError(
                f"{self.path}: {' and '.join(map(repr, likely))} may all be weights. Name one with "
                "--weight, or give --weight none."
            )
        if not likely:
            self._refuse_text_weights(source, target)
        others = [c.name for c in rest if c.name not in likely and not is_time(c.name)]
        return (likely[0] if likely else None), [
            _not_taken(name) for name in others[:3] if not likely
        ]

    def _refuse_text_weights(self, source: str, target: str) -> None:
        """Refuse a column with the name of weights that holds text, such as decimal commas."""
        for column in self.columns:
            is_text = column.holds == "string" and column.name not in (source, target)
            if is_text and is_weight(column.name):
                raise BadInputError(
                    f"{self.path}: column '{column.name}' has the name of weights, and holds text. "
                    "Write numbers with a decimal point (0.5, not 0,5), or give --weight none to "
                    "leave the column out."
                )


def _not_taken(name: str) -> str:
    return (
        f"Column '{name}' holds numbers and was not taken for weights: --weight '{name}' takes "
        "it, --weight none says that it is none."
    )


def are_ends(names: Sequence[str]) -> bool:
    """Whether two names are those of the ends of an edge, such as source and target."""
    return tuple(map(_stem, names)) in _ENDS


def is_known(name: str) -> bool:
    """Whether a name is one that columns of edges have, and ids hardly."""
    ends = {stem for pair in _ENDS for stem in pair}
    index = bool(name.strip()) and _is_index(name)
    return _stem(name) in ends or is_weight(name) or index or is_time(name)


def is_weight(name: str) -> bool:
    """Whether a name is that of weights: weight, w, value, count, edge_weight, ..."""
    return name.strip().lower() in _WEIGHTS or bool(_words(name) & {"weight", "weights"})


def is_time(name: str) -> bool:
    """Whether a name is that of times: year, timestamp, created_at, ..."""
    return bool(_words(name) & _TIMES)


def _is_index(name: str) -> bool:
    return _INDEX.fullmatch(name.strip().lower()) is not None


def _words(name: str) -> set[str]:
    """Words of a name, in lower case: created_at, createdAt and "created at" have two."""
    return set(re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower()))


def _stem(name: str) -> str:
    """Name of an end without what says that it is an id: FromNodeId is from."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    return plain.removesuffix("id").removesuffix("node")

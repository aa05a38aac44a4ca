"""A check over the syntax tree: which state does a module keep that changes while it runs?

Constants are fine, also those in a list or a dict that nothing changes. What is found: ``global``
and ``globals()``, containers of the module or of a class that are changed somewhere, attributes set
on a module, a class or a function from elsewhere, instances of classes that are not known to be
immutable, and caches that grow with their arguments.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

CHANGING_METHODS = re.compile(
    "add|append(left)?|clear|discard|extend|fill|insert|pop(item|left)?|remove|resize|reverse"
    "|setdefault|sort|update"
)
CONTAINERS = re.compile(
    "Counter|OrderedDict|bytearray|(collections[.])?(defaultdict|deque)|dict([.]fromkeys)?|list|set|sorted"
    "|np[.](arange|array|asarray|empty|full|linspace|ones|zeros)"
)
IMMUTABLE = re.compile(
    "Field|ParamSpec|Path|TypeVar|bool|bytes|float|frozenset|get_args|getattr|int|len|max|metadata[.]version|min"
    "|map|range|zip|[A-Z_]+[.](split(lines)?|strip)|re[.]compile|str|sum|tuple|click[.](Choice|FloatRange|IntRange|Path|option)"
    "|(functools[.])?partial|BloscCodec|ZstdCodec|math[.][a-z]+|np[.](dtype|finfo|iinfo|u?int[0-9]+|float[0-9]+)"
    "|pa[.][a-z0-9_]+|types[.]MappingProxyType"
)
LITERALS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
CACHES = re.compile("(functools[.])?(lru_)?cache")
FROZEN_BASES = {"Options", "Enum", "IntEnum", "StrEnum", "NamedTuple"}

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def frozen_classes(tree: ast.Module) -> set[str]:
    """Names of the classes of a module whose instances cannot change."""
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and (
            FROZEN_BASES & {dotted(base) for base in node.bases}
            or any("frozen=True" in ast.unparse(decorator) for decorator in node.decorator_list)
        )
    }


def dotted(node: ast.expr) -> str:
    """``a.b.c`` of a name or an attribute; empty for any other expression."""
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return node.id if isinstance(node, ast.Name) else ""


def find_state(tree: ast.Module, frozen: Collection[str] = ()) -> list[str]:
    """State that a module keeps, as ``line N: what``; `frozen` are immutable classes elsewhere."""
    module = _Module(frozenset(frozen) | frozen_classes(tree))
    module.collect(tree.body)
    module.visit(tree, set())
    return [f"line {line}: {what}" for line, what in sorted(module.found)]


@dataclass
class _Module:
    """What a module binds, and what was found in it."""

    frozen: frozenset[str]
    containers: set[str] = field(default_factory=set)
    class_containers: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)
    found: set[tuple[int, str]] = field(default_factory=set)

    def collect(self, body: list[ast.stmt], *, of_class: bool = False) -> None:
        """Names that the module, or a class of it, binds, and the instances among them."""
        for node in body:
            if isinstance(node, ast.ClassDef):
                self.bound.add(node.name)
                self.collect(node.body, of_class=True)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.bound.add(node.name)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                self._imported(node)
            elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                self._assigned(node, node.value, of_class=of_class)
            else:
                inner = ast.iter_child_nodes(node)
                self.collect([c for c in inner if isinstance(c, ast.stmt)], of_class=of_class)

    def _imported(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            name = (alias.asname or alias.name).partition(".")[0]
            self.bound.add(name)
            if isinstance(node, ast.ImportFrom) and name.isupper():
                self.containers.add(name)

    def _assigned(
        self, node: ast.Assign | ast.AnnAssign, value: ast.expr, *, of_class: bool
    ) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = {part.id for t in targets for part in ast.walk(t) if isinstance(part, ast.Name)}
        if isinstance(value, LITERALS) or (
            isinstance(value, ast.Call) and CONTAINERS.fullmatch(dotted(value.func))
        ):
            (self.class_containers if of_class else self.containers).update(names)
        if of_class:
            return  # of a dataclass or a model: defaults of its fields
        self.bound |= names
        for call in _calls(value):
            name = dotted(call.func)
            if isinstance(call.func, ast.Attribute) and not name:
                continue  # a method of a literal or of what a call returned: "a b".split()
            if name not in self.frozen and not (
                IMMUTABLE.fullmatch(name) or CONTAINERS.fullmatch(name)
            ):
                self.found.add((node.lineno, f"an instance or result of {name or 'a call'}"))

    def visit(self, node: ast.AST, hidden: set[str]) -> None:
        """Find what changes something; `hidden` are names that a function binds for itself."""
        if isinstance(node, Function):
            hidden = hidden | _local_names(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._check_cache(node)
        if isinstance(node, ast.Global):
            self.found.add((node.lineno, f"global {', '.join(node.names)}"))
        if isinstance(node, ast.Call) and dotted(node.func) == "globals":
            self.found.add((node.lineno, "globals()"))
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            self._check_attribute(node, hidden)
        for target in _changed(node):
            self._check_change(target, hidden)
        for child in ast.iter_child_nodes(node):
            self.visit(child, hidden)

    def _check_cache(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for decorator in node.decorator_list:
            name = dotted(decorator.func if isinstance(decorator, ast.Call) else decorator)
            if CACHES.fullmatch(name) and ast.unparse(node.args):
                self.found.add((node.lineno, f"a cache of {node.name}({ast.unparse(node.args)})"))

    def _check_attribute(self, node: ast.Attribute, hidden: set[str]) -> None:
        owner = dotted(node.value)
        if owner == "cls" or owner in self.bound - hidden:
            self.found.add((node.lineno, f"{owner}.{node.attr} is set"))

    def _check_change(self, target: ast.expr, hidden: set[str]) -> None:
        name = dotted(target)
        if name in self.containers - hidden:
            self.found.add((target.lineno, f"{name} is changed"))
        elif "." in name:
            owner, _, attribute = name.rpartition(".")
            if attribute in self.class_containers and owner in {"self", "cls", *self.bound}:
                self.found.add((target.lineno, f"{name} of a class is changed"))


def _calls(node: ast.expr) -> Iterator[ast.Call]:
    """Calls that an expression makes when it is evaluated, but not those of its lambdas."""
    if isinstance(node, ast.Lambda):
        return
    if isinstance(node, ast.Call):
        yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr | ast.keyword | ast.comprehension):
            yield from _calls(child)  # type: ignore[arg-type]


def _local_names(function: Function) -> set[str]:
    """Names that a function binds: its parameters, and what it assigns."""
    names = {arg.arg for arg in ast.walk(function.args) if isinstance(arg, ast.arg)}
    body = function.body if isinstance(function.body, list) else [function.body]
    for node in (part for statement in body for part in ast.walk(statement)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names - {
        name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names
    }


def _changed(node: ast.AST) -> Iterator[ast.expr]:
    """What a node changes in place: the object whose item, slice, attribute or content it sets."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        yield node.value
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name | ast.Attribute):
        yield node.target
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and CHANGING_METHODS.fullmatch(node.func.attr)
    ):
        yield node.func.value

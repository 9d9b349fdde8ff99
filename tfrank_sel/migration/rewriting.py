"""Rewriting of one module of Python code."""

import ast
from collections.abc import Iterator, Sequence
from typing import cast

import libcst as cst
from libcst.metadata import MetadataWrapper, QualifiedNameProvider

from tfrank_sel.migration import names

MARK = "# tfrank-sel-migrate: "
PACKAGE = "tensorflow_ranking"
HOMES = {
    "tfr": "tfrank_sel.presets",
    "lambdas": "tfrank_sel.losses",
    "ranking": "tfrank_sel.ops",
}


def rewrite(code: str) -> str:
    """Rewrites a module that uses tensorflow-ranking so that it uses this package.

    Losses and metrics become those of `presets.tfr`, which have the same numbers. A name that the
    tables in `names` do not cover stays as it is; a comment above it says what to do.

    Args:
        code: The text of a module.

    Returns:
        The text of the rewritten module, otherwise formatted as before; `code` itself if it does
        not import tensorflow-ranking.

    Raises:
        SyntaxError: If `code` is not valid Python.
    """
    taken = {*_names_of(ast.parse(code))}
    rewriter = _Rewriter({x: f"tfrank_sel_{x}" if x in taken else x for x in HOMES})
    rewritten = MetadataWrapper(cst.parse_module(code)).visit(rewriter)
    return rewritten.code if rewriter.found else code


def _names_of(tree: ast.AST) -> Iterator[str]:
    """Yields the names that a module defines, but those of tensorflow-ranking."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Import):
            yield from (x.asname or x.name for x in node.names if not x.name.startswith(PACKAGE))
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith(PACKAGE):
            yield from (x.asname or x.name for x in node.names)


class _Rewriter(cst.CSTTransformer):
    """Rewrites names, calls and imports, and marks what a person must change.

    Args:
        aliases: The names under which the new modules are imported.
    """

    METADATA_DEPENDENCIES = (QualifiedNameProvider,)

    def __init__(self, aliases: dict[str, str]) -> None:
        super().__init__()
        self.found = False  # whether the module imports tensorflow-ranking
        self._aliases = aliases
        self._used: set[str] = set()
        self._notes: list[list[str]] = [[]]

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, _STATEMENTS):
            self._notes.append([])
        return super().on_visit(node)

    def on_leave(
        self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT
    ) -> cst.CSTNodeT | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNodeT]:
        left = super().on_leave(original_node, updated_node)
        if not isinstance(original_node, _STATEMENTS):
            return left
        notes = dict.fromkeys(self._notes.pop())
        lines = [cst.EmptyLine(comment=cst.Comment(MARK + note)) for note in notes]
        statement = cast(cst.CSTNodeT, left)  # this class removes and splits no statement here
        before = getattr(statement, "leading_lines", ())
        return statement.with_changes(leading_lines=[*before, *lines]) if notes else left

    def visit_Import(self, node: cst.Import) -> bool:
        self._meets(node, any(_code(x.name).startswith(PACKAGE) for x in node.names))
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        self._meets(node, _is_ours(node))
        return False

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        return self._name(node) is None

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        return self._renamed(original_node, updated_node)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        return self._renamed(original_node, updated_node)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        name = self._name(original_node.func)
        if name is None or not name.startswith(f"{PACKAGE}."):
            return updated_node
        own = name.removeprefix(f"{PACKAGE}.")
        if own == "keras.losses.ListMLELambdaWeight" and len(updated_node.args) == 1:
            return updated_node.args[0].value
        if counterpart(own) is None:
            return updated_node
        positional = [x for x in updated_node.args if not (x.keyword or x.star)]
        if len(positional) > _places(own):
            self._note(f"`{own}`", "Give its arguments by name: their order is another.")
        return updated_node.with_changes(args=self._arguments(own, updated_node.args))

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        body: list[cst.BaseStatement] = []
        new = [f"from {HOMES[x]} import {_as(x, self._aliases[x])}" for x in sorted(self._used)]
        for statement in cast(Sequence[cst.BaseStatement], updated_node.body):
            kept = _without_imports(statement)
            if kept is not statement:
                lines = [
                    cst.ensure_type(cst.parse_statement(x), cst.SimpleStatementLine) for x in new
                ]
                leading = cst.ensure_type(statement, cst.SimpleStatementLine).leading_lines
                body += [x.with_changes(leading_lines=leading) for x in lines[:1]] + lines[1:]
                new = []
            if kept is not None:
                body.append(kept)
        return updated_node.with_changes(body=body)

    def _meets(self, node: cst.CSTNode, is_ours: bool) -> None:
        self.found |= is_ours
        if is_ours and len(self._notes) > 2:
            self._note(f"`{PACKAGE}`", "Import it at the top of the module, then rewrite again.")

    def _note(self, about: str, text: str) -> None:
        self._notes[-1].append(f"{about}: {text}")

    def _name(self, node: cst.CSTNode) -> str | None:
        """Returns the dotted name of an expression with an import at its root."""
        if isinstance(node, cst.Attribute):
            root = self._name(node.value)
            return None if root is None else f"{root}.{node.attr.value}"
        found = self.get_metadata(QualifiedNameProvider, node, set())
        imported = [x.name for x in found if x.source.name == "IMPORT"]
        if not (isinstance(node, cst.Name) and imported):
            return None
        return imported[0].replace(f"{PACKAGE}.python", PACKAGE)  # where the modules really are

    def _renamed(self, node: cst.CSTNode, updated: cst.BaseExpression) -> cst.BaseExpression:
        name = self._name(node) or ""
        module, _, own = name.rpartition(".")
        if module in _REDUCTIONS and own in names.REDUCTIONS:
            return cst.SimpleString(f'"{names.REDUCTIONS[own]}"')
        if module == "tensorflow.keras.layers.experimental.preprocessing":
            return cst.parse_expression(_code(node).replace(".experimental.preprocessing", ""))
        if not name.startswith(f"{PACKAGE}."):
            return updated
        if module.endswith(("RankingLossKey", "RankingMetricKey")):
            return cst.SimpleString(f'"{own.lower()}"')
        name = name.removeprefix(f"{PACKAGE}.")
        found = counterpart(name)
        if found is None:
            if own != "ListMLELambdaWeight":
                self._note(f"`{name}`", by_hand(name))
            return updated
        self._used.add(found[0])
        return cst.parse_expression(f"{self._aliases[found[0]]}.{found[1]}")

    def _arguments(self, name: str, given: Sequence[cst.Arg]) -> list[cst.Arg]:
        """Returns the arguments of a call without needless ones, under our names."""
        needless = names.NEEDLESS | ({"seed"} if name == "utils.sort_by_scores" else set())
        kept = [x for x in given if not (x.keyword and x.keyword.value in needless)]
        if kept and kept[-1] is not given[-1]:
            last = given[-1]
            end = {"comma": last.comma, "whitespace_after_arg": last.whitespace_after_arg}
            kept[-1] = kept[-1].with_changes(**end)
        if name.rpartition(".")[2] not in names.LAMBDA_WEIGHTS:
            return kept
        return [
            x.with_changes(keyword=cst.Name(names.ARGUMENTS[x.keyword.value]))
            if x.keyword and x.keyword.value in names.ARGUMENTS
            else x
            for x in kept
        ]


def counterpart(name: str) -> tuple[str, str] | None:
    """Returns the module and the name that replace a name of tensorflow-ranking.

    Args:
        name: A dotted name without the package, such as `keras.losses.SoftmaxLoss`.
    """
    module, _, own = name.rpartition(".")
    if module == "keras.losses" and own in names.LOSSES:
        return "tfr", f"losses.{names.LOSSES[own]}"
    if module == "keras.losses" and own in names.LAMBDA_WEIGHTS:
        return "lambdas", own
    if module == "keras.metrics" and own in names.METRICS:
        return "tfr", f"metrics.{names.METRICS[own]}"
    if module in ("utils", "keras.utils") and own in names.FUNCTIONS:
        return "ranking", names.FUNCTIONS[own]
    return ("tfr", own) if name == "utils.sort_by_scores" else None


def by_hand(name: str) -> str:
    """Returns advice for a dotted name of tensorflow-ranking without a counterpart."""
    found = [key for key in names.BY_HAND if name == key or name.startswith(f"{key}.")]
    return names.BY_HAND[max(found, key=len)] if found else names.OTHERWISE


_STATEMENTS = (cst.SimpleStatementLine, cst.BaseCompoundStatement)
_REDUCTIONS = {
    f"{module}.Reduction" for module in ("tensorflow.losses", "tensorflow.keras.losses")
} | {"keras.losses.Reduction"}


def _places(name: str) -> int:
    """Returns how many arguments may be given by place: those that both have in one order."""
    own = name.rpartition(".")[2]
    if own in (*names.LAMBDA_WEIGHTS, *names.FUNCTIONS, "sort_by_scores"):
        return 3
    return 1 if own == "get" else 0


def _code(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)


def _as(name: str, alias: str) -> str:
    return name if name == alias else f"{name} as {alias}"


def _is_ours(node: cst.ImportFrom) -> bool:
    return node.module is not None and _code(node.module).startswith(PACKAGE)


def _without_imports(statement: cst.BaseStatement) -> cst.BaseStatement | None:
    """Returns a statement without its imports of tensorflow-ranking; None if nothing is left."""
    if not isinstance(statement, cst.SimpleStatementLine):
        return statement
    kept: list[cst.BaseSmallStatement] = []
    for small in statement.body:
        if isinstance(small, cst.ImportFrom) and _is_ours(small):
            continue
        if isinstance(small, cst.Import):
            others = [x for x in small.names if not _code(x.name).startswith(PACKAGE)]
            if not others:
                continue
            if len(others) < len(small.names):
                others[-1] = others[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
                small = small.with_changes(names=others)
        kept.append(small)
    if len(kept) == len(statement.body) and all(map(lambda a, b: a is b, kept, statement.body)):
        return statement
    return statement.with_changes(body=kept, leading_lines=()) if kept else None

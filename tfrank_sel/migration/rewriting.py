"""Rewriting of code that uses tensorflow-ranking or TensorFlow Recommenders, also in notebooks."""

import ast
import collections
import io
import itertools
import json
import re
import tokenize
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import libcst as cst
from libcst import matchers
from libcst.metadata import (
    ExpressionContext,
    ExpressionContextProvider,
    GlobalScope,
    ImportAssignment,
    MetadataWrapper,
    ParentNodeProvider,
    QualifiedNameProvider,
    Scope,
    ScopeProvider,
)

from tfrank_sel.migration import names

MARK = "# tfrank-sel-migrate: "
RANKING, RECOMMENDERS = "tensorflow_ranking", "tensorflow_recommenders"
HOMES = {
    "tfr": "tfrank_sel.presets",
    "tfrs": "tfrank_sel.presets",
    "lambdas": "tfrank_sel.losses",
    "ranking": "tfrank_sel.ops",
}


def rewrite(code: str) -> str:
    """Rewrites a module that uses tensorflow-ranking or TensorFlow Recommenders.

    Losses and metrics become those of `presets.tfr`, and names of TensorFlow Recommenders those of
    `presets.tfrs`, which have the same numbers. A name that the tables in `names` do not cover
    stays as it is, and so does a class of tensorflow-ranking that is not called where it is named;
    a comment above it says what to do. A module that imports one of them elsewhere than among the
    statements of the module, or of a function, stays as it is but for such comments.

    Args:
        code: The text of a module.

    Returns:
        The text of the rewritten module, otherwise formatted as before; `code` itself if it does
        not import any of the two.

    Raises:
        SyntaxError: If `code` is not valid Python.
    """
    taken = {*_names_of(ast.parse(code))}
    aliases = {x: f"tfrank_sel_{x}" if x in taken else x for x in HOMES}
    wrapper = MetadataWrapper(cst.parse_module(code))
    rewriter = _Rewriter(aliases, {*_replaceable(wrapper.module)})
    rewritten = wrapper.visit(rewriter)
    return rewritten.code if rewriter.found else code


def _names_of(tree: ast.AST) -> Iterator[str]:
    """Yields the names that a module defines, but those of the packages that are replaced."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.ExceptHandler):
            yield node.name or ""
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Import):
            yield from (x.asname or x.name for x in node.names if not _is_of_package(x.name))
        elif isinstance(node, ast.ImportFrom) and not _is_of_package(node.module or ""):
            yield from (x.asname or x.name for x in node.names)


class _Rewriter(cst.CSTTransformer):
    """Rewrites names, calls and imports, and marks what a person must change.

    Args:
        aliases: The names under which the new modules are imported.
        replaceable: The imports that can be replaced.
    """

    METADATA_DEPENDENCIES = (
        QualifiedNameProvider,
        ExpressionContextProvider,
        ParentNodeProvider,
        ScopeProvider,
    )

    def __init__(self, aliases: dict[str, str], replaceable: set[cst.CSTNode]) -> None:
        super().__init__()
        self.found = False  # whether the module uses a package that is replaced
        self._aliases = aliases
        self._replaceable = replaceable
        self._is_left = False  # whether only comments are added
        self._quotes: list[str] = []  # of the formatted strings around a node
        # the new modules that the imports of a scope provide
        self._used: dict[Scope | None, set[str]] = collections.defaultdict(set)
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

    def visit_Module(self, node: cst.Module) -> None:
        imports = matchers.findall(node, matchers.Import() | matchers.ImportFrom())
        self._is_left = any(_is_ours(x) and x not in self._replaceable for x in imports)

    def visit_Import(self, node: cst.Import) -> bool:
        self._meets(node)
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        self._meets(node)
        return False

    def visit_FormattedString(self, node: cst.FormattedString) -> None:
        self._quotes.append(node.end[-1])

    def leave_FormattedString(
        self, original_node: cst.FormattedString, updated_node: cst.FormattedString
    ) -> cst.BaseExpression:
        self._quotes.pop()
        return updated_node

    def visit_SimpleString(self, node: cst.SimpleString) -> None:
        is_alone = isinstance(self.get_metadata(ParentNodeProvider, node), cst.Expr)
        value = node.evaluated_value
        if not is_alone and isinstance(value, str) and _is_of_package(value):
            self.found = True
            self._note(f"`{value}`", "A name in a string is not rewritten: import the module.")

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        return self._name(node) is None

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        return self._rename(original_node, updated_node)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        return self._rename(original_node, updated_node)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        name = self._name(original_node.func)
        if self._is_left or name is None:
            return updated_node
        if name.startswith(_LEGACY):
            return updated_node.with_changes(args=self._of_optimizer(updated_node.args))
        if not name.startswith(f"{RANKING}."):
            return updated_node
        own = name.removeprefix(f"{RANKING}.")
        if own == "keras.losses.ListMLELambdaWeight" and len(updated_node.args) == 1:
            return updated_node.args[0].value
        if counterpart(own) is None:
            return updated_node
        positional = [x for x in updated_node.args if not (x.keyword or x.star)]
        if len(positional) > _places(own):
            self._note(f"`{own}`", "Give its arguments by name: their order is another.")
        if any(x.star for x in updated_node.args):
            self._note(f"`{own}`", "Its arguments have other names: see docs/migrate.md.")
        return updated_node.with_changes(args=self._arguments(own, updated_node.args))

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        block = updated_node.body
        if self._is_left or not isinstance(block, cst.IndentedBlock):
            return updated_node
        scope = self.get_metadata(ScopeProvider, original_node.body, None)
        body, carried = self._with_new_imports(block.body, self._used[scope])
        footer = (*carried, *block.footer)
        kept = body or [cst.parse_statement("pass")]
        return updated_node.with_changes(body=block.with_changes(body=kept, footer=footer))

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        if self._is_left:
            return updated_node
        body, carried = self._with_new_imports(updated_node.body, self._used[None])
        return updated_node.with_changes(body=body, footer=(*carried, *updated_node.footer))

    def _with_new_imports(
        self, statements: Sequence[cst.BaseStatement], used: set[str]
    ) -> tuple[list[cst.BaseStatement], list[cst.EmptyLine]]:
        """Replaces the imports among statements; also returns the comments that stood above them,
        if no statement follows.
        """
        body: list[cst.BaseStatement] = []
        carried: list[cst.EmptyLine] = []  # comments above imports that are removed
        new = [f"from {HOMES[x]} import {_as(x, self._aliases[x])}" for x in sorted(used)]
        for statement in statements:
            kept = _without_imports(statement)
            if kept is not statement:
                lines = [
                    cst.ensure_type(cst.parse_statement(x), cst.SimpleStatementLine) for x in new
                ]
                carried += cst.ensure_type(statement, cst.SimpleStatementLine).leading_lines
                body += [x.with_changes(leading_lines=carried) for x in lines[:1]] + lines[1:]
                carried = [] if new else carried
                new = []
            if kept is not None:
                if carried:
                    leading = (*carried, *getattr(kept, "leading_lines", ()))
                    kept, carried = kept.with_changes(leading_lines=leading), []
                body.append(kept)
        return body, carried

    def _meets(self, node: cst.Import | cst.ImportFrom) -> None:
        if not _is_ours(node):
            return
        self.found = True
        if isinstance(node, cst.ImportFrom) and isinstance(node.names, cst.ImportStar):
            self._note(f"`{_package(node)}`", "Import the names that you use, then rewrite again.")
        elif node not in self._replaceable:
            self._note(
                f"`{_package(node)}`",
                "Import it at the top of the module or of a function, then rewrite again.",
            )

    def _note(self, about: str, text: str) -> None:
        self._notes[-1].append(f"{about}: {text}")

    def _name(self, node: cst.CSTNode) -> str | None:
        """Returns the dotted name of an expression with an import at its root."""
        if isinstance(node, cst.Attribute):
            root = self._name(node.value)
            return None if root is None else f"{root}.{node.attr.value}"
        qualified = self.get_metadata(QualifiedNameProvider, node, set())
        imported = [x.name for x in qualified if x.source.name == "IMPORT"]
        if not (isinstance(node, cst.Name) and imported):
            return None
        return imported[0].replace(f"{RANKING}.python", RANKING)  # where the modules really are

    def _rename(
        self, node: cst.Attribute | cst.Name, updated: cst.BaseExpression
    ) -> cst.BaseExpression:
        name = self._name(node) or ""
        if self._is_left or not name:
            return updated
        module, _, last_name = name.rpartition(".")
        parent = self.get_metadata(ParentNodeProvider, node)
        written = (ExpressionContext.STORE, ExpressionContext.DEL)
        is_read = self.get_metadata(ExpressionContextProvider, node, None) not in written
        is_read &= not isinstance(parent, cst.MatchClass)
        if is_read and module in _REDUCTIONS and last_name in names.REDUCTIONS:
            return self._string(names.REDUCTIONS[last_name], node, updated)
        if module == "tensorflow.keras.layers.experimental.preprocessing":
            return cst.parse_expression(_code(node).replace(".experimental.preprocessing", ""))
        if name.startswith(_LEGACY):
            return cst.parse_expression(_code(node).replace(".legacy.", "."))
        if name in (RANKING, RECOMMENDERS):
            self._note(f"`{_code(node)}`", "The module itself is not rewritten: name what you use.")
        if not _is_of_package(name):
            return updated
        name = name.removeprefix(f"{RANKING}.")
        keys = names.KEYS.get(module.rpartition(".")[2], ())
        if is_read and last_name in keys:
            return self._string(last_name.lower(), node, updated)
        replacement = counterpart(name)
        is_called = isinstance(parent, cst.Call) and parent.func is node
        if replacement is None:
            weighs = last_name == "ListMLELambdaWeight" and is_called
            if not (weighs and isinstance(parent, cst.Call) and len(parent.args) == 1):
                self._note(f"`{name}`", by_hand(name))
            return updated
        is_class = replacement[0] == "tfrs"  # of the same name: it can be a base, too
        if not (is_read and (is_called or is_class or last_name in names.FUNCTIONS)):
            self._note(f"`{name}`", names.NOT_CALLED)
            return updated
        for scope in self._scopes_of_import(node):
            self._used[scope].add(replacement[0])
        return cst.parse_expression(f"{self._aliases[replacement[0]]}.{replacement[1]}")

    def _scopes_of_import(self, node: cst.BaseExpression) -> set[Scope | None]:
        """The scopes of the imports that a dotted name may be of; None is the module."""
        while isinstance(node, cst.Attribute):
            node = node.value
        scope = self.get_metadata(ScopeProvider, node, None)
        named = scope[_code(node)] if scope else ()
        imports = (x for x in named if isinstance(x, ImportAssignment))
        return {None if isinstance(x.scope, GlobalScope) else x.scope for x in imports}

    def _string(
        self, value: str, node: cst.CSTNode, updated: cst.BaseExpression
    ) -> cst.BaseExpression:
        """Returns a string, in quotes that no formatted string around it has."""
        quotes = [x for x in "\"'" if x not in self._quotes]
        if not quotes:
            self._note(f"`{_code(node)}`", f"Write the string {value}.")
            return updated
        return cst.SimpleString(f"{quotes[0]}{value}{quotes[0]}")

    def _of_optimizer(self, arguments: Sequence[cst.Arg]) -> list[cst.Arg]:
        """Returns the arguments of an optimizer of Keras 2 under the names of Keras 3."""
        if any(x.keyword and x.keyword.value == "decay" for x in arguments):
            self._note("`decay`", "Give a schedule as `learning_rate`.")
        return [
            x.with_changes(keyword=cst.Name("learning_rate"))
            if x.keyword and x.keyword.value == "lr"
            else x
            for x in arguments
        ]

    def _arguments(self, name: str, arguments: Sequence[cst.Arg]) -> list[cst.Arg]:
        """Returns the arguments of a call without needless ones, under our names."""
        needless = names.NEEDLESS | ({"seed"} if name in names.SEEDED else set())
        kept = [
            x
            for x in arguments
            if not x.keyword or not (x.keyword.value in needless or _is_no_weight(x))
        ]
        last_name = name.rpartition(".")[2]
        for x in kept:
            if last_name in names.UNWEIGHTED and x.keyword and x.keyword.value == "lambda_weight":
                self._note(f"`{last_name}`", "Remove `lambda_weight`: this loss cannot use one.")
        if kept and kept[-1] is not arguments[-1]:
            last = arguments[-1]
            end = {"comma": last.comma, "whitespace_after_arg": last.whitespace_after_arg}
            kept[-1] = kept[-1].with_changes(**end)
        if last_name not in names.LAMBDA_WEIGHTS:
            return kept
        return [
            x.with_changes(keyword=cst.Name(names.ARGUMENTS[x.keyword.value]))
            if x.keyword and x.keyword.value in names.ARGUMENTS
            else x
            for x in kept
        ]


def counterpart(name: str) -> tuple[str, str] | None:
    """Returns the module and the name that replace a name.

    Args:
        name: A dotted name, of tensorflow-ranking without the package, such as
            `keras.losses.SoftmaxLoss`.
    """
    if name.startswith(f"{RECOMMENDERS}."):
        name = name.removeprefix(f"{RECOMMENDERS}.")
        return ("tfrs", name) if name in names.RECOMMENDERS else None
    module, _, last_name = name.rpartition(".")
    if module == "keras.losses" and last_name in names.LOSSES:
        return "tfr", f"losses.{names.LOSSES[last_name]}"
    if module == "keras.losses" and last_name in names.LAMBDA_WEIGHTS:
        return "lambdas", last_name
    if module == "keras.metrics" and last_name in names.METRICS:
        return "tfr", f"metrics.{names.METRICS[last_name]}"
    if module in ("utils", "keras.utils") and last_name in names.FUNCTIONS:
        return "ranking", names.FUNCTIONS[last_name]
    return ("tfr", last_name) if name == "utils.sort_by_scores" else None


def by_hand(name: str) -> str:
    """Returns advice for a dotted name, as in `counterpart`, that has none."""
    keys = [key for key in names.BY_HAND if name == key or name.startswith(f"{key}.")]
    return names.BY_HAND[max(keys, key=len)] if keys else names.OTHERWISE


_STATEMENTS = (cst.SimpleStatementLine, cst.BaseCompoundStatement)
_REDUCTIONS = {
    f"{module}.Reduction" for module in ("tensorflow.losses", "tensorflow.keras.losses")
} | {"keras.losses.Reduction"}
_LEGACY = ("tensorflow.keras.optimizers.legacy.", "keras.optimizers.legacy.")


def _places(name: str) -> int:
    """Returns how many arguments may be given by place: those that both have in one order."""
    last_name = name.rpartition(".")[2]
    if last_name in (*names.LAMBDA_WEIGHTS, *names.FUNCTIONS, "sort_by_scores"):
        return 3
    return 1 if last_name == "get" else 0


def _code(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)


def _as(name: str, alias: str) -> str:
    return name if name == alias else f"{name} as {alias}"


def _replaceable(module: cst.Module) -> Iterator[cst.CSTNode]:
    """Yields the imports of names among the statements of a module, and of its functions."""
    bodies: list[Sequence[cst.CSTNode]] = [module.body]
    for function in matchers.findall(module, matchers.FunctionDef(body=matchers.IndentedBlock())):
        # the names that a function gives the module are those that it declares
        if not matchers.findall(function, matchers.Global() | matchers.Nonlocal()):
            bodies.append(cst.ensure_type(function, cst.FunctionDef).body.body)
    for statement in itertools.chain(*bodies):
        if isinstance(statement, cst.SimpleStatementLine):
            for small in statement.body:
                is_star = isinstance(getattr(small, "names", None), cst.ImportStar)
                if isinstance(small, cst.Import | cst.ImportFrom) and not is_star:
                    yield small


def _is_ours(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.ImportFrom):
        return node.module is not None and not node.relative and _is_in(node.module)
    return isinstance(node, cst.Import) and any(_is_in(x.name) for x in node.names)


def _is_in(name: cst.BaseExpression) -> bool:
    return _is_of_package(_code(name).strip())


def _is_of_package(name: str) -> bool:
    return name.partition(".")[0].strip() in (RANKING, RECOMMENDERS)


def _package(node: cst.Import | cst.ImportFrom) -> str:
    return RECOMMENDERS if RECOMMENDERS in _code(node) else RANKING


def _is_no_weight(argument: cst.Arg) -> bool:
    keyword = argument.keyword
    return bool(keyword and keyword.value == "lambda_weight" and _code(argument.value) == "None")


def _without_imports(statement: cst.BaseStatement) -> cst.BaseStatement | None:
    """Returns a statement without its imports of such packages; None if nothing is left."""
    if not isinstance(statement, cst.SimpleStatementLine):
        return statement
    kept: list[cst.BaseSmallStatement] = []
    for small in statement.body:
        if isinstance(small, cst.ImportFrom) and _is_ours(small):
            continue
        if isinstance(small, cst.Import):
            others = [x for x in small.names if not _is_in(x.name)]
            if not others:
                continue
            if len(others) < len(small.names):
                others[-1] = others[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
                small = small.with_changes(names=others)
        kept.append(small)
    if len(kept) == len(statement.body) and all(map(lambda a, b: a is b, kept, statement.body)):
        return statement
    return statement.with_changes(body=kept, leading_lines=()) if kept else None


_BORDER = "# tfrank-sel-migrate: cell border"
_MAGIC = re.compile(
    r"^([ \t]*)((?:[%!?]|[^#'\"\n]*=[ \t]*[%!])(?:.*\\\n)*.*|[\w.]+\?{1,2}[ \t]*)$", re.MULTILINE
)
_HIDDEN = "tfrank_sel_migrate_magic_"
_WRITES = re.compile(r"\s*%%(?:write)?file\b.*\n")  # a magic, of a cell that is a file
_OF_HTML = str.maketrans({x: f"\\u{ord(x):04x}" for x in "<>"})


def rewrite_file(name: str, content: bytes) -> bytes:
    """Rewrites a file that uses tensorflow-ranking or TensorFlow Recommenders.

    Encoding, byte order mark and ends of lines stay as they are, and so does all of a notebook but
    its cells of Python code, and those that write a module.

    Args:
        name: Its name; a notebook ends with `.ipynb`.
        content: Its bytes.

    Raises:
        SyntaxError: If its code is not valid Python, or it has an unknown encoding.
        ValueError: If it is not text in its encoding, or not a notebook.
    """
    if name.endswith(".ipynb"):
        return _notebook(content)
    encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    return rewrite(content.decode(encoding)).encode(encoding)


def _notebook(content: bytes) -> bytes:
    text = content.decode("utf-8-sig")
    book = json.loads(text)
    if not isinstance(book, dict) or not isinstance(book.get("cells"), list):
        raise ValueError("a notebook must have a list of `cells`. Received: none")
    written = _as_written(book, text)
    cells = [x for x in book["cells"] if x.get("cell_type") == "code"]
    sources = ["".join(cell["source"]) for cell in cells]
    of_module = [i for i, source in enumerate(sources) if not source.lstrip().startswith("%%")]
    changed = [*map(_in_file, sources)]
    rewritten = _in_cells([sources[i] for i in of_module])
    for i, source in zip(of_module, rewritten, strict=True):
        changed[i] = source
    if changed == sources:
        return content
    for cell, source in zip(cells, changed, strict=True):
        is_list = isinstance(cell["source"], list)
        cell["source"] = source.splitlines(keepends=True) if is_list else source
    mark = b"\xef\xbb\xbf" if content.startswith(b"\xef\xbb\xbf") else b""
    return mark + written(book).encode()


def _in_file(source: str) -> str:
    """Rewrites a cell that writes a module; any other stays as it is."""
    head = _WRITES.match(source)
    code = source[head.end() :] if head else ""
    return head[0] + rewrite(code) if head and _is_python(code) else source


def _in_cells(sources: list[str]) -> list[str]:
    """Rewrites the cells of a notebook as one module, since names hold in all of them."""
    magics: list[str] = []

    def hide(match: re.Match[str]) -> str:
        magics.append(match[2])
        return f"{match[1]}{_HIDDEN}{len(magics) - 1}_"

    hidden = [source if _is_python(source) else _MAGIC.sub(hide, source) for source in sources]
    code = rewrite("".join(f"{_BORDER}\n{source}\n" for source in hidden))
    parts = re.split(rf"^{_BORDER}\n", code, flags=re.MULTILINE)[1:]
    if len(parts) != len(sources):
        raise ValueError("a cell must hold whole statements. Received: a part of one")
    shown = (re.sub(rf"{_HIDDEN}(\d+)_", lambda x: magics[int(x[1])], part) for part in parts)
    return [part.removesuffix("\n") for part in shown]


def _is_python(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def _as_written(book: Any, text: str) -> Callable[[Any], str]:
    """Returns the function that writes JSON as a text does."""
    for write in _writers(text):
        if write(book) == text:
            return write
    raise ValueError(
        "a notebook must be written as Jupyter does, so that the rest of it stays as it is. "
        "Received: another layout; save it in Jupyter first"
    )


def _writers(text: str) -> Iterator[Callable[[Any], str]]:
    end = text[len(text.rstrip()) :]
    is_windows = "\r\n" in text
    tables: tuple[dict[int, str], ...] = ({}, _OF_HTML)
    for indent, is_ascii, table in itertools.product((1, 2, 4, None), (False, True), tables):

        def write(
            book: Any,
            indent: int | None = indent,
            is_ascii: bool = is_ascii,
            table: dict[int, str] = table,
        ) -> str:
            lines = json.dumps(book, indent=indent, ensure_ascii=is_ascii).translate(table)
            return (lines.replace("\n", "\r\n") if is_windows else lines) + end

        yield write

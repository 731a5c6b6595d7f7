"""What the handlers of single node types ask of the binder around them."""

from __future__ import annotations

from typing import Protocol

from sqlglot import exp

from planner.analysis.outer import OuterNames
from planner.analysis.scope import Scope
from planner.ir.expressions import Expression


class Block(Protocol):
    """The query block that an expression stands in: it takes what is no scalar expression, and gives what stands for
    it."""

    def subquery(self, node: exp.Expr, binder: Binder) -> Expression:
        """A ScalarQuery, ExistsTest, InQuery or QuantifiedTest."""

    def rank(self, node: exp.Expr, binder: Binder) -> Expression:
        """An OverCall."""


class Binder(Protocol):
    """`aggregates_refused_in` names the place in errors about what cannot stand there. `outer`: the names of the query
    around, in a sub-query. `block` takes sub-queries and ranks; None: they cannot stand here."""

    @property
    def scope(self) -> Scope: ...

    @property
    def aggregates_refused_in(self) -> str: ...

    @property
    def outer(self) -> OuterNames | None: ...

    @property
    def block(self) -> Block | None: ...

    def bind(self, node: exp.Expr) -> Expression:
        """The typed expression of a node."""

    def condition(self, node: exp.Expr, where: str) -> Expression:
        """The same for a node that must be BOOLEAN; `where` names its clause."""

    def text_of(self, node: exp.Expr) -> str:
        """The node as written."""

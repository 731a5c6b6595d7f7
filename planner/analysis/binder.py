"""What the handlers of single node types ask of the binder around them."""

from __future__ import annotations

from typing import Protocol

from sqlglot import exp

from planner.analysis.scope import Scope
from planner.ir.expressions import Expression


class Binder(Protocol):
    """`aggregates_refused_in` names the place in errors about aggregates that cannot stand there."""

    @property
    def scope(self) -> Scope: ...

    @property
    def aggregates_refused_in(self) -> str: ...

    def bind(self, node: exp.Expr) -> Expression:
        """The typed expression of a node."""

    def condition(self, node: exp.Expr, where: str) -> Expression:
        """The same for a node that must be BOOLEAN; `where` names its clause."""

    def text_of(self, node: exp.Expr) -> str:
        """The node as written."""

"""`draftmill get`: runs in the columns that the CRD declares."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from draftmill_cli.cluster import connect


def run(args: Namespace) -> int:
    """Prints the runs of one namespace or of all."""
    cluster = connect(args)
    table = cluster.table(args.name, all_namespaces=args.all_namespaces and not args.name)
    rows = rows_of(table, wide=args.output == "wide", with_namespace=args.all_namespaces)
    if len(rows) == 1:
        print("No runs found" + ("." if args.all_namespaces else f" in namespace {cluster.namespace}."))
    else:
        print("\n".join(aligned(rows)))
    return 0


def rows_of(table: dict[str, Any], *, wide: bool, with_namespace: bool) -> list[list[str]]:
    """Header and rows of a Table; columns of a priority above 0 only when `wide`."""
    shown = [
        (index, column["name"].upper())
        for index, column in enumerate(table["columnDefinitions"])
        if wide or column.get("priority", 0) == 0
    ]
    rows = [[title for _, title in shown]]
    rows += [[_text(row["cells"][index]) for index, _ in shown] for row in table["rows"]]
    if with_namespace:
        namespaces = [row["object"]["metadata"]["namespace"] for row in table["rows"]]
        rows = [[first, *row] for first, row in zip(["NAMESPACE", *namespaces], rows, strict=True)]
    return rows


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines with columns three spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["   ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _text(cell: Any) -> str:
    return "" if cell is None else str(cell)

"""`draftmill get`: runs in the columns that the CRD declares."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from draftmill_api.v1alpha1.resources import Resource
from draftmill_cli.cluster import connect


def run(args: Namespace) -> int:
    """Prints the runs of one namespace or of all."""
    cluster = connect(args)
    everywhere = args.all_namespaces and not args.name
    if args.name is None:
        wanted: list[tuple[Resource, str | None]] = [(each, None) for each in cluster.kinds()]
    else:
        named = cluster.find(args.name)
        wanted = [(named.resource, named.name)]
    tables = [(each, cluster.table(each, name, all_namespaces=everywhere)) for each, name in wanted]
    filled = [(resource, table) for resource, table in tables if table["rows"]]
    if not filled:
        print("No runs found" + ("." if args.all_namespaces else f" in namespace {cluster.namespace}."))
    blocks = []
    for resource, table in filled:
        kind = resource.short_names[0] if len(filled) > 1 else ""
        rows = rows_of(table, wide=args.output == "wide", with_namespace=args.all_namespaces, kind=kind)
        blocks.append("\n".join(aligned(rows)))
    print("\n\n".join(blocks), end="\n" if blocks else "")
    return 0


def rows_of(table: dict[str, Any], *, wide: bool, with_namespace: bool, kind: str = "") -> list[list[str]]:
    """Header and rows of a Table; columns of a priority above 0 only when `wide`.

    With a kind's short name, runs are named as every command takes them: `er/k25`.
    """
    shown = [
        (index, column["name"].upper())
        for index, column in enumerate(table["columnDefinitions"])
        if wide or column.get("priority", 0) == 0
    ]
    rows = [[title for _, title in shown]]
    rows += [[_text(row["cells"][index]) for index, _ in shown] for row in table["rows"]]
    if kind:
        rows = [rows[0], *([f"{kind}/{row[0]}", *row[1:]] for row in rows[1:])]
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

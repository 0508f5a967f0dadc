"""Tables about a store of hidden states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from rich.table import Table

from draftmill_api.store import StoreBinding, StoreLine
from draftmill_jobs.store import Row, Store


def facts_table(store: Store) -> Table:
    """What a store is bound to, and its size."""
    binding, manifest = store.binding, store.manifest
    table = Table(box=None, show_header=False)
    tokens = [line.tokens for line in store.lines]
    error = manifest.float8_error if manifest else None
    facts = {
        "complete": "yes" if manifest else "no: there is no manifest.json",
        "model": manifest.model_name if manifest else "",
        "fingerprint": binding.model_fingerprint,
        "layers": f"{binding.layer_ids}, {binding.layer_convention}; the last before the final norm",
        "states": f"{binding.dtype}, width {binding.hidden_size}",
        "computed": _computed(store),
        "rows": f"{len(tokens):,}",
        "tokens": f"{sum(tokens):,}, longest row {max(tokens, default=0):,}",
        "size": f"{_bytes(store) / 1e9:,.3g} GB in {len({line.shard for line in store.lines}):,} shards",
        "float8 error": f"{error.mean:.2%} mean, {error.worst:.2%} worst" if error else "",
    }
    for name, value in facts.items():
        if value:
            table.add_row(name, value)
    return table


def kinds_table(lines: Sequence[StoreLine]) -> Table:
    """Rows and tokens by dataset, status, and whether the answer was greedy."""
    table = Table(box=None)
    for heading in ("DATASET", "STATUS", "SAMPLED"):
        table.add_column(heading)
    for heading in ("ROWS", "TOKENS", "PROMPT"):
        table.add_column(heading, justify="right")
    rows: Counter[tuple[str, str, str]] = Counter()
    tokens: Counter[tuple[str, str, str]] = Counter()
    prompts: Counter[tuple[str, str, str]] = Counter()
    for line in lines:
        kind = (line.dataset, line.status.value, _sampled(line))
        rows[kind] += 1
        tokens[kind] += line.tokens
        prompts[kind] += min(line.prompt_tokens, line.tokens)
    for kind in sorted(rows):
        table.add_row(*kind, f"{rows[kind]:,}", f"{tokens[kind]:,}", f"{prompts[kind]:,}")
    return table


def rows_table(rows: Iterable[Row], binding: StoreBinding) -> Table:
    """A line for each row: what it is, and the mean norm of its states by layer."""
    table = Table(box=None)
    table.add_column("ROW")
    for heading in ("TOKENS", "PROMPT", "LOSS", *(f"|LAYER {layer}|" for layer in binding.layer_ids)):
        table.add_column(heading, justify="right")
    table.add_column("FIRST IDS")
    for row in rows:
        norms = np.linalg.norm(row.values(), axis=-1).mean(axis=0)
        table.add_row(
            f"{row.line.dataset}/{row.line.id}",
            f"{row.line.tokens:,}",
            f"{row.line.prompt_tokens:,}",
            f"{int(row.loss_mask.sum()):,}",
            *(f"{norm:.4g}" for norm in norms),
            " ".join(map(str, row.token_ids[:6].tolist())),
        )
    return table


def _bytes(store: Store) -> int:
    return sum((store.folder / shard).stat().st_size for shard in {line.shard for line in store.lines})


def _computed(store: Store) -> str:
    backend = store.binding.backend
    counts = Counter(line.computed_in for line in store.lines if line.computed_in)
    by = [f"by {backend}"] if backend else []
    ways = [f"{dtype} {count:,} rows" for dtype, count in sorted(counts.items())]
    return "; ".join([*by, *([f"in {', '.join(ways)}"] if ways else [])])


def _sampled(line: StoreLine) -> str:
    if line.temperature is None:
        return "unknown"
    return "greedy" if line.temperature == 0 else f"at {line.temperature:g}"

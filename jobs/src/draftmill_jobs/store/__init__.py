"""The store of hidden states: written by extractors, read by the trainer. The writer needs no torch."""

from draftmill_jobs.store.audit import StoreAudit, audit_store, count_store
from draftmill_jobs.store.checks import RowFault, RowRefusedError
from draftmill_jobs.store.errors import StoreCorruptError, StoreDiffersError
from draftmill_jobs.store.index import write_index
from draftmill_jobs.store.reader import Check, Row, Store
from draftmill_jobs.store.rows import StoreRow
from draftmill_jobs.store.writer import StoreWriter

__all__ = [
    "Check",
    "Row",
    "RowFault",
    "RowRefusedError",
    "Store",
    "StoreAudit",
    "StoreCorruptError",
    "StoreDiffersError",
    "StoreRow",
    "StoreWriter",
    "audit_store",
    "count_store",
    "write_index",
]

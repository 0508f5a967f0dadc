"""What takes long to import, for processes that are forked from one that has it."""

import transformers
import uvloop

import draftmill_jobs.extract.worker
import draftmill_jobs.generate.worker
import draftmill_jobs.main

LOADED = (
    draftmill_jobs.main,
    draftmill_jobs.generate.worker,
    draftmill_jobs.extract.worker,
    uvloop,
    transformers.AutoTokenizer,
)

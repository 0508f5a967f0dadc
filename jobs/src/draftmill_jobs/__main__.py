"""`python -P -m draftmill_jobs`."""

import sys

from draftmill_jobs.main import main

sys.exit(main())

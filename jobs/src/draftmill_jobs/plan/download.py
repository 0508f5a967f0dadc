"""Bringing a model from the Hugging Face hub to the models volume, once."""

from __future__ import annotations

import logging
from pathlib import Path

from draftmill_api.v1alpha1.shared import HuggingFaceModel
from draftmill_jobs.errors import JobRefusedError

log = logging.getLogger(__name__)


def download_model(folder: Path, wanted: HuggingFaceModel) -> None:
    """Downloads what is not there yet; an interrupted download goes on. The token comes from `HF_TOKEN`.

    Raises:
        JobRefusedError: The hub does not have it, or does not give it to us, or the folder is not writable.
    """
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - heavy, and not always needed
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError  # noqa: PLC0415 - heavy, and not always needed

    log.info("downloading %s at %s to %s", wanted.repo, wanted.revision, folder)
    try:
        snapshot_download(repo_id=wanted.repo, revision=wanted.revision, local_dir=folder)
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise JobRefusedError(
            "ModelDownloadFailed", f"cannot download {wanted.repo} at {wanted.revision} to {folder}: {error}"
        ) from error

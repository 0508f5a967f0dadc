"""`demo`: a SynthRun from `kubectl apply` to a finished dataset."""

from __future__ import annotations

import argparse
from typing import Any

from draftmill_dev import cluster, prompts
from draftmill_dev.demo import current, local
from draftmill_dev.errors import DevError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags."""
    parser.add_argument("--cluster", help="'current': that of the kubeconfig's context; else one of its own")
    parser.add_argument("--name", help=f"name of its own cluster (default: {cluster.DEFAULT_NAME})")
    parser.add_argument(
        "--rows", type=int, help=f"prompts in each of its two datasets (default: {prompts.ROWS})"
    )
    parser.add_argument("--image-prefix", help="with --cluster: where it pulls the images from")
    parser.add_argument("--storage-class", help="with --cluster: class of the volumes")


def run(options: argparse.Namespace) -> None:
    """Runs it where it was asked for."""
    own: dict[str, Any] = {
        name: value for name in ("name", "rows") if (value := getattr(options, name)) is not None
    }
    if options.cluster is None:
        if options.image_prefix or options.storage_class:
            raise DevError("IMG_PREFIX and STORAGE_CLASS are for CLUSTER=current.")
        local.main(**own)
        return
    if options.cluster != "current":
        raise DevError(f"CLUSTER={options.cluster} is not known: leave it out, or say CLUSTER=current.")
    if own:
        raise DevError("--name and --rows are for a demo on a cluster of its own.")
    if not options.image_prefix or not options.storage_class:
        raise DevError(
            "CLUSTER=current needs IMG_PREFIX, from where the cluster pulls draftmill-operator, "
            "draftmill-jobs and draftmill-vllm-cpu, and STORAGE_CLASS, for two volumes of 2 GiB."
        )
    current.main(options.image_prefix, options.storage_class)

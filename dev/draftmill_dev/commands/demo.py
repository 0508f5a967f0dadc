"""`demo`: a SynthRun from `kubectl apply` to a finished dataset."""

from __future__ import annotations

import argparse

from draftmill_dev.demo import current, local
from draftmill_dev.errors import DevError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags."""
    parser.add_argument("--cluster", help="'current': that of the kubeconfig's context; else one of its own")
    parser.add_argument("--image-prefix", help="with it: where it pulls the images from")
    parser.add_argument("--storage-class", help="with it: class of the volumes")


def run(options: argparse.Namespace) -> None:
    """Runs it where it was asked for."""
    if options.cluster is None:
        if options.image_prefix or options.storage_class:
            raise DevError("IMG_PREFIX and STORAGE_CLASS are for CLUSTER=current.")
        local.main()
        return
    if options.cluster != "current":
        raise DevError(f"CLUSTER={options.cluster} is not known: leave it out, or say CLUSTER=current.")
    if not options.image_prefix or not options.storage_class:
        raise DevError(
            "CLUSTER=current needs IMG_PREFIX, from where the cluster pulls draftmill-operator, "
            "draftmill-jobs and draftmill-vllm-cpu, and STORAGE_CLASS, for two volumes of 2 GiB."
        )
    current.main(options.image_prefix, options.storage_class)

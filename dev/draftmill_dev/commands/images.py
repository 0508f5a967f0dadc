"""`images`: the container images, and where they are."""

from __future__ import annotations

import argparse

from draftmill_dev import console, images


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags."""
    parser.add_argument("--push", metavar="PREFIX", help="push them to this registry and path")


def run(options: argparse.Namespace) -> None:
    """Builds what changed; pushes when asked to."""
    for name in images.NAMES:
        with console.step(f"Image draftmill-{name}"):
            image = images.build(name)
            shown = (
                images.push(image, options.push) if options.push else f"{image.reference}  {image.archive}"
            )
        print(shown)

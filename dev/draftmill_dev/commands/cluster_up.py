"""`cluster-up`: a running, healthy cluster, whatever was there before."""

from __future__ import annotations

import argparse

from draftmill_dev import cluster, console
from draftmill_dev.commands import cluster_choice


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags."""
    cluster_choice.add_arguments(parser)
    parser.add_argument("--pod-cidr", help="addresses of pods (default: a free range)")
    parser.add_argument("--service-cidr", help="addresses of Services (default: a free range)")
    parser.add_argument("--host-cidr", help="link between host and node, a /30 (default: a free range)")
    parser.add_argument("--bridge", help="name of the pods' bridge (default: draftmill0)")


def run(options: argparse.Namespace) -> None:
    """Starts the cluster and says how to use it."""
    network = cluster.Network(options.pod_cidr, options.service_cidr, options.host_cidr, options.bridge)
    running = cluster.up(options.name, state=options.state_dir, network=network)
    console.say()
    console.say("The cluster runs. To use it:")
    console.say(f"    export KUBECONFIG={running.kubeconfig}")
    console.say(f"    export PATH={running.programs.bin}:$PATH")
    console.say("    kubectl get nodes,pods -A")

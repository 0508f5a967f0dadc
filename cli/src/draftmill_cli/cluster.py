"""Access to the cluster: runs, their pods and logs. Every failure becomes a sentence."""

from __future__ import annotations

import contextlib
import json
import os
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from kubernetes import client, config, watch
from urllib3.exceptions import HTTPError, MaxRetryError

from draftmill_api import names
from draftmill_api.v1alpha1.resources import RESOURCES, Resource
from draftmill_cli.errors import CliError
from draftmill_cli.kinds import AnyRun, RunName, parse_run, split

_AS_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_WATCH_SECONDS = 240
_CONNECT_SECONDS = 10
_LOST_SECONDS = 60
_SERVED_BESIDE = {"ExtractRun": "worker", "DrafterTrain": "evaluate-plain, evaluate-draft"}
"""Roles of the pods that have a server in them, for the kinds whose servers do not stand apart."""
_USUAL_KUBECONFIG = Path.home() / ".kube" / "config"
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True)
class Cluster:
    """One cluster and the namespace that commands are about."""

    namespace: str
    _api: Any

    def kinds(self) -> tuple[Resource, ...]:
        """The kinds of run that this cluster knows: an older chart has fewer.

        Raises:
            CliError: There are none, or the cluster does not answer.
        """
        with _in_sentences(None, self.namespace):
            served = self._objects().get_api_resources(names.GROUP, names.VERSION).resources
        plurals = {each.name for each in served}
        return tuple(resource for resource in RESOURCES if resource.plural in plurals)

    def table(self, resource: Resource, name: str | None, *, all_namespaces: bool) -> dict[str, Any]:
        """Runs of a kind as the API server's own Table, with the columns of the CRD."""
        tables: Any = client.CustomObjectsApi(
            client.ApiClient(self._api.configuration, header_name="Accept", header_value=_AS_TABLE)
        )
        with _in_sentences(name, self.namespace):
            if name is not None:
                return dict(tables.get_namespaced_custom_object(*self._runs(resource), name))
            if all_namespaces:
                return dict(tables.list_cluster_custom_object(names.GROUP, names.VERSION, resource.plural))
            return dict(tables.list_namespaced_custom_object(*self._runs(resource)))

    def find(self, text: str) -> RunName:
        """The run that is meant by `er/k25`, or by a bare name that only one kind has.

        Raises:
            CliError: There is no such run, or there are several, or the cluster does not answer.
        """
        given, name = split(text)
        if given is not None:
            return RunName(given, name)
        kinds = self.kinds()
        with _in_sentences(name, self.namespace):
            named = (RunName(each, name) for each in kinds)
            found = [run for run in named if self._uid(run) is not None]
        return the_one(found, name, self.namespace)

    def title(self, run: RunName) -> str:
        """A run for people: `ExtractRun team/k25`."""
        return f"{run.resource.kind} {self.namespace}/{run.name}"

    def manifest(self, run: RunName) -> dict[str, Any]:
        """A run as the API server holds it."""
        with _in_sentences(run.name, self.namespace):
            return dict(self._objects().get_namespaced_custom_object(*self._runs(run.resource), run.name))

    def run(self, name: RunName) -> AnyRun:
        """A run.

        Raises:
            CliError: There is none, or the cluster does not answer.
        """
        return parse_run(self.manifest(name))

    def follow(self, name: RunName) -> Iterator[AnyRun]:
        """The run now, and again after each change, until the caller stops or the run is deleted.

        A lost connection is taken up again; a state may be yielded twice.

        Raises:
            CliError: There is no such run (any more), or the cluster has been away for a minute.
        """
        last_heard = time.monotonic()
        while True:
            try:
                for run in self._watch(name):
                    last_heard = time.monotonic()
                    yield run
            except (HTTPError, client.ApiException) as error:
                if time.monotonic() - last_heard > _LOST_SECONDS:
                    raise CliError(f"the cluster has not answered for {_LOST_SECONDS} s: {error}") from error
                time.sleep(1)

    def _watch(self, name: RunName) -> Iterator[AnyRun]:
        yield self.run(name)
        events = watch.Watch().stream(
            self._objects().list_namespaced_custom_object,
            *self._runs(name.resource),
            field_selector=f"metadata.name={name.name}",
            timeout_seconds=_WATCH_SECONDS,
            _request_timeout=(_CONNECT_SECONDS, _WATCH_SECONDS + _CONNECT_SECONDS),
        )
        for event in events:
            if event["type"] == "DELETED":
                raise CliError(f"{self.title(name)} was deleted")
            yield parse_run(event["object"])

    def change(self, run: RunName, spec: dict[str, Any]) -> None:
        """Merges a change into a run's spec."""
        with _in_sentences(run.name, self.namespace):
            self._objects().patch_namespaced_custom_object(
                *self._runs(run.resource), run.name, {"spec": spec}
            )

    def replace(self, name: RunName, manifest: dict[str, Any], uid: str) -> None:
        """Deletes the run with that uid, waits until it is gone, and creates `manifest`.

        Where something else (Argo CD) has re-created it already, that is as good.
        """
        runs = self._objects()
        with _in_sentences(name.name, self.namespace):
            runs.delete_namespaced_custom_object(
                *self._runs(name.resource),
                name.name,
                body={
                    "apiVersion": "v1",
                    "kind": "DeleteOptions",
                    "propagationPolicy": "Foreground",
                    "preconditions": {"uid": uid},
                },
            )
            still_there = f"{self.title(name)} is still being deleted; try again later"
            _wait_until(lambda: self._uid(name) != uid, still_there)
            if self._uid(name) is None:
                runs.create_namespaced_custom_object(*self._runs(name.resource), body=manifest)

    def _uid(self, run: RunName) -> str | None:
        try:
            found = self._objects().get_namespaced_custom_object(*self._runs(run.resource), run.name)
        except client.ApiException as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise
        return str(found["metadata"]["uid"])

    def newest_pod(self, run: AnyRun, role: str) -> str | None:
        """Name of the youngest pod that plays a role in a run; None without one.

        Where servers do not stand apart, a server is part of a job's pod. Of ranks it is the first.
        """
        roles = _SERVED_BESIDE.get(run.kind, role) if role == "server" else role
        selector = f"{names.LABEL_RUN_UID}={run.metadata['uid']},{names.LABEL_ROLE} in ({roles})"
        with _in_sentences(run.metadata["name"], self.namespace):
            pods = self._core().list_namespaced_pod(self.namespace, label_selector=selector).items
        first = [
            pod for pod in pods if (pod.metadata.annotations or {}).get(names.ANNOTATION_RANK, "0") == "0"
        ]
        newest = max(first, key=lambda pod: pod.metadata.creation_timestamp, default=None)
        return None if newest is None else str(newest.metadata.name)

    def log(self, pod: str, role: str, *, follow: bool, tail: int | None) -> Iterator[str]:
        """The lines of the log of the container that plays the role in a pod."""
        with _in_sentences(pod, self.namespace):
            stream = self._core().read_namespaced_pod_log(
                pod,
                self.namespace,
                container=names.container_of(role),
                follow=follow,
                _preload_content=False,
                **({} if tail is None else {"tail_lines": tail}),
            )
            for line in stream:
                yield line.decode(errors="replace")

    def local_folder(self, claim: str) -> Path | None:
        """The folder of this machine that a claim is bound to; None when its volume is elsewhere."""
        core = self._core()
        with _in_sentences(claim, self.namespace):
            bound = core.read_namespaced_persistent_volume_claim(claim, self.namespace).spec.volume_name
            volume = core.read_persistent_volume(bound).spec if bound else None
        source = volume and (volume.host_path or volume.local)
        folder = Path(source.path) if source else None
        return folder if folder and folder.is_dir() else None

    def _core(self) -> Any:
        return client.CoreV1Api(self._api)

    def _objects(self) -> Any:
        return client.CustomObjectsApi(self._api)

    def _runs(self, resource: Resource) -> tuple[str, str, str, str]:
        return names.GROUP, names.VERSION, self.namespace, resource.plural


def connect(args: Namespace) -> Cluster:
    """The cluster that the kubeconfig names, or the one that this pod runs in.

    Raises:
        CliError: There is no usable kubeconfig.
    """
    settings = client.Configuration()
    chosen = str(args.kubeconfig) if args.kubeconfig else os.environ.get("KUBECONFIG")
    try:
        if chosen is None and not _USUAL_KUBECONFIG.exists() and _POD_NAMESPACE.exists():
            config.load_incluster_config(client_configuration=settings)
            namespace = _POD_NAMESPACE.read_text().strip()
        else:
            path = chosen or str(_USUAL_KUBECONFIG)
            config.load_kube_config(path, context=args.context, client_configuration=settings)
            namespace = _namespace_of_context(path, args.context)
    except config.ConfigException as error:
        raise CliError(f"no cluster to talk to: {error} Set KUBECONFIG or give --kubeconfig.") from error
    settings.retries = False
    return Cluster(args.namespace or namespace, client.ApiClient(settings))


def the_one(found: list[RunName], name: str, namespace: str) -> RunName:
    """The only run of that name.

    Raises:
        CliError: There is none, or there are several.
    """
    if not found:
        raise CliError(f"there is no {name} in namespace {namespace}; `draftmill get -A` lists all runs")
    if len(found) > 1:
        raise CliError(f"several runs are called {name}; say {' or '.join(run.short for run in found)}")
    return found[0]


def _namespace_of_context(path: str, context: str | None) -> str:
    contexts, current = config.list_kube_config_contexts(config_file=path)
    chosen = next((entry for entry in contexts if entry["name"] == context), current)
    return str(chosen["context"].get("namespace") or "default")


def _wait_until(done: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + 120
    while not done():
        if time.monotonic() > deadline:
            raise CliError(otherwise)
        time.sleep(0.2)


@contextlib.contextmanager
def _in_sentences(name: str | None, namespace: str) -> Iterator[None]:
    try:
        yield
    except client.ApiException as error:
        raise CliError(_sentence(error, name, namespace)) from error
    except MaxRetryError as error:
        raise CliError(f"the cluster does not answer: {error.reason}") from error
    except HTTPError as error:
        raise CliError(f"the cluster does not answer: {error}") from error


def _sentence(error: client.ApiException, name: str | None, namespace: str) -> str:
    try:
        status = json.loads(error.body or "")
    except ValueError:
        status = {}
    if error.status == HTTPStatus.NOT_FOUND and not status.get("details", {}).get("name"):
        return f"this cluster does not have this kind of run of {names.GROUP}: install or upgrade the chart"
    if error.status == HTTPStatus.NOT_FOUND:
        return f"there is no {name} in namespace {namespace}; `draftmill get -A` lists all runs"
    return str(status.get("message") or f"the API server answered {error.status} {error.reason}")

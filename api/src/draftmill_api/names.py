"""Names that operator, jobs and users share: labels, annotations, mount points, ports."""

from __future__ import annotations

from typing import Final

GROUP: Final = "draftmill.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
FIELD_MANAGER: Final = "draftmill"

LABEL_KIND: Final = f"{GROUP}/kind"
"""The run's kind, lower case: `synthrun`."""
LABEL_RUN: Final = f"{GROUP}/run"
"""The run's name, sanitised to a label value; the full name is in `ANNOTATION_RUN_NAME`."""
LABEL_RUN_UID: Final = f"{GROUP}/run-uid"
"""The run's uid: tells the children of a re-created run from those of the one before it."""
LABEL_ROLE: Final = f"{GROUP}/role"
"""`defaults`, `config`, `plan`, `server`, `worker`, `evaluate-plain`, `evaluate-draft` or `finish`."""
LABEL_WORKER: Final = f"{GROUP}/worker"
LABEL_ATTEMPT: Final = f"{GROUP}/attempt"

ANNOTATION_RUN_NAME: Final = f"{GROUP}/run-name"
ANNOTATION_CONFIG_HASH: Final = f"{GROUP}/config-hash"
ANNOTATION_TEMPLATE_HASH: Final = f"{GROUP}/template-hash"
"""On server pods: hash of the pod template that they were made from."""
ANNOTATION_WORKERS_HASH: Final = f"{GROUP}/workers-hash"
"""On worker Jobs: hash of what all workers of that time were started with."""
ANNOTATION_AVOIDED_NODES: Final = f"{GROUP}/avoided-nodes"
"""On Jobs: names of the nodes that their pods are kept away from, with commas between them."""
ANNOTATION_RANK: Final = "batch.kubernetes.io/job-completion-index"
"""Kubernetes' own: a pod's number among those of a Job that work as one."""
ANNOTATION_APPLIED_HASH: Final = f"{GROUP}/applied-hash"
"""On children: hash of the manifest that the operator applied last."""

MODELS_MOUNT: Final = "/models"
DATA_MOUNT: Final = "/data"
INPUT_MOUNT: Final = "/input"
"""The input, where it lies on another volume than the run's own data."""
STAGING_MOUNT: Final = "/staging"
"""Folder of a worker's pod in which its server leaves hidden states."""
CONFIG_MOUNT: Final = "/etc/draftmill"
CONFIG_FILE: Final = f"{CONFIG_MOUNT}/job.yaml"

JOB_CONTAINER: Final = "draftmill"
SERVER_CONTAINER: Final = "server"
INSTALLER_CONTAINER: Final = "connector"
"""Brings what the server's image lacks, before the server of a worker's pod starts."""
JOB_HTTP_PORT: Final = 9090
SERVER_PORT: Final = 8000

WORKER_VARIABLE: Final = "DRAFTMILL_WORKER"
"""`i/n`: this worker's index and the number of workers."""
ATTEMPT_VARIABLE: Final = "DRAFTMILL_ATTEMPT"
TERMINATION_MESSAGE_VARIABLE: Final = "DRAFTMILL_TERMINATION_MESSAGE"
"""Where a job writes its `TerminationMessage`; unset outside Kubernetes."""
TERMINATION_MESSAGE_PATH: Final = "/dev/termination-log"
TERMINATION_MESSAGE_LIMIT: Final = 4000
"""Bytes; the kubelet keeps 4,096 of a container."""
TERMINATION_MESSAGE_CUT: Final = "…"
"""Ends a text in it that was shortened."""


def container_of(role: str | None) -> str:
    """Name of the container that does a role's work; a pod may have others, which the cluster injected."""
    return SERVER_CONTAINER if role == "server" else JOB_CONTAINER

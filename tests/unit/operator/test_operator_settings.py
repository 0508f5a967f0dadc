from __future__ import annotations

import base64
from pathlib import Path

import pytest
import yaml

from draftmill_operator.kube.connection import CredentialsError, from_kubeconfig
from draftmill_operator.kube.errors import ApiError
from draftmill_operator.settings import ImagePullPolicy, SettingsError, load_settings


def test_settings_need_two_images_and_default_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("jobImage: jobs:1\ntrainerImage: jobs-train:1\n")
    settings = load_settings(path)
    assert settings.image_pull_policy is ImagePullPolicy.IF_NOT_PRESENT
    assert settings.host_path_prefixes == []
    assert settings.watch_namespaces == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "jobImage: 1: 2",
        "jobImage: a\n",
        "{jobImage: a, trainerImage: b, unknown: 1}",
        "{jobImage: a, trainerImage: b, hostPathPrefixes: [mnt]}",
    ],
)
def test_wrong_settings_are_refused_with_the_files_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=r"settings\.yaml"):
        load_settings(path)


def test_missing_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        load_settings(tmp_path / "none.yaml")


def kubeconfig(tmp_path: Path, **user: str) -> Path:
    path = tmp_path / "kubeconfig"
    cluster = {"server": "https://10.0.0.1:6443/", "certificate-authority": "ca.crt"}
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


def test_files_are_named_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("authority")
    connection = from_kubeconfig(kubeconfig(tmp_path, token="t"))
    assert connection.server == "https://10.0.0.1:6443"
    assert connection.ca_data == base64.b64encode(b"authority").decode()
    assert connection.bearer_token() == "t"


def test_a_kubeconfig_that_names_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match=r"ca\.crt"):
        from_kubeconfig(kubeconfig(tmp_path))


def test_an_error_of_the_api_server_has_its_words() -> None:
    body = b'{"kind":"Status","reason":"Forbidden","message":"exceeded quota","details":{"causes":[]}}'
    error = ApiError.from_answer(403, body, None)
    assert (error.code, error.reason, error.message) == (403, "Forbidden", "exceeded quota")


def test_an_error_of_something_before_the_api_server_is_shown_as_it_is() -> None:
    error = ApiError.from_answer(502, b"<html>bad gateway</html>", 3.0)
    assert "bad gateway" in error.message
    assert error.retry_after == 3.0

"""The object store is Django's storages API: a bucket of an S3-compatible server behaves as the folder does."""

import hashlib
import io
import os
from typing import Any

import pytest
from django.core.files.base import ContentFile, File
from django.core.files.storage import storages

from tests.conftest import BUCKET
from webapp.settings import object_store


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest) -> Any:
    """Either kind, with the settings that RIDGEPOINT_S3_BUCKET and AWS_* make."""
    if request.param == "folder":
        request.getfixturevalue("tmp_store")
        return storages["default"]
    endpoint = request.getfixturevalue("bucket").meta.endpoint_url
    settings = request.getfixturevalue("settings")
    default = object_store({"RIDGEPOINT_S3_BUCKET": BUCKET, "AWS_ENDPOINT_URL_S3": endpoint})
    settings.STORAGES = {**settings.STORAGES, "default": default}
    return storages["default"]


@pytest.mark.slow
def test_save_read_overwrite_list_delete(store: Any) -> None:
    key = "profiles/7/upload/trace.json.gz"
    assert store.save(key, ContentFile(b"first")) == key
    assert store.exists(key) and store.size(key) == 5
    assert store.save(key, ContentFile(b"second one")) == key       # an ingest that runs twice writes the same keys
    with store.open(key) as file:
        assert file.read() == b"second one"
    assert store.listdir("profiles/7/upload")[1] == ["trace.json.gz"]
    store.delete(key)
    assert not store.exists(key)


def test_a_large_file_streams_both_ways(store: Any, tmp_path: Any) -> None:
    path = tmp_path / "large"
    path.write_bytes(os.urandom(1 << 20) * 20)
    with path.open("rb") as source:
        store.save("profiles/8/slices.parquet", File(source))
    digest = hashlib.sha256()
    with store.open("profiles/8/slices.parquet") as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            digest.update(chunk)
    assert digest.digest() == hashlib.sha256(path.read_bytes()).digest()


@pytest.mark.django_db
def test_an_upload_goes_through_it(store: Any, alice: Any) -> None:
    from profiles.upload.services import profile_create

    file = File(io.BytesIO(b'{"traceEvents": []}'), name="trace.json")
    profile = profile_create(owner=alice, file=file, worker="test")
    with store.open(profile.upload_key) as stored:
        assert stored.read() == b'{"traceEvents": []}'

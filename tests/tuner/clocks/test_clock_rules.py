"""What owners let workers do with the clocks of GPUs: the wish, the page, the API, the command, who may."""

import json

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.urls import reverse

from profiles.base.refused import Refused
from tuner.clocks import selectors, services
from tuner.clocks.wish import ClockWish
from tuner.models import GpuClockRule
from webapp.models import AuditEntry
from webapp.roles import ENGINEER, OWNER, role_set

UUID = "GPU-11111111-2222-3333-4444-555555555555"
CARD = {"index": 0, "uuid": UUID, "name": "NVIDIA H200", "max_sm_clock_mhz": 1980, "sm_clock_mhz": 345, "persistence_now": False,
        "clocks": {"held": None, "last": None}}


@pytest.fixture
def workers(monkeypatch):
    """One living worker with one GPU, as it announces itself."""
    alive = [{"name": "gpu@a-1", "host": "a", "queues": ["gpu"], "gpus": [dict(CARD)]}]
    monkeypatch.setattr(selectors.jobs, "workers", lambda: alive)
    return alive


@pytest.fixture
def owner(client):
    person = get_user_model().objects.create_user("olga", password="x")
    role_set(person, OWNER)
    client.force_login(person)
    return client


@pytest.mark.parametrize(("given", "graphics"), [
    ("", "75%"), (None, "75%"), ("60 %", "60%"), ("1410", "1410"), ("1410 MHz", "1410"), ("100%", "100%")])
def test_a_graphics_clock_is_mhz_or_a_share(given, graphics):
    assert ClockWish.read(given).graphics == graphics


@pytest.mark.parametrize(("given", "words"), [
    ("fast", "no clock"), ("5%", "10 to 100 %"), ("101%", "10 to 100 %"), ("50", "100 to 10000 MHz"), ("123456", "no clock"),
    ("-1410", "no clock"), ("1410.5", "no clock"), (True, "no clock"), ("1410\n", ""), ("٣٠٠", "no clock"), ([1410], "no clock")])
def test_what_is_no_clock_is_refused_at_its_field(given, words):
    if not words:
        assert ClockWish.read(given).graphics == "1410"
        return
    with pytest.raises(Refused, match=words) as refused:
        ClockWish.read(given)
    assert list(refused.value.fields) == ["graphics"]


@pytest.mark.parametrize("given", ["x", "0", "12.5", "-3", "999999", True, "٣٠٠"])
def test_what_is_no_memory_clock_is_refused_at_its_field(given):
    with pytest.raises(Refused) as refused:
        ClockWish.read("", given)
    assert list(refused.value.fields) == ["memory_mhz"]


@pytest.mark.parametrize(("graphics", "highest", "supported", "mhz"), [
    ("75%", 1980, (), 1485), ("75%", 1980, (1980, 1500, 1470), 1470), ("1400", None, (), 1400), ("1400", 1980, (1410, 1395), 1395),
    ("10%", 1980, (1980, 345), 345)])
def test_a_share_is_the_highest_supported_clock_below_it(graphics, highest, supported, mhz):
    if graphics == "1400" and supported:
        assert ClockWish("1400").graphics_mhz(highest, supported) == mhz
        return
    assert ClockWish(graphics).graphics_mhz(highest, supported) == mhz


def test_a_share_of_a_clock_that_nobody_knows_is_refused():
    with pytest.raises(Refused, match="Name MHz"):
        ClockWish("75%").graphics_mhz(None)
    with pytest.raises(Refused, match="345 to 1980 MHz, not 2500"):
        ClockWish("2500").graphics_mhz(1980, (1980, 345))


@pytest.mark.django_db
def test_an_owner_allows_and_forbids_on_the_page(owner, workers):
    page = " ".join(owner.get(reverse("gpu-clocks")).content.decode().split())
    assert "NVIDIA H200" in page and "left alone" in page and "of <span class=\"num\">1980 MHz" in page and 'value="75%"' in page
    sent = owner.post(reverse("gpu-clocks-change"), {"uuid": UUID, "graphics": "1410", "memory_mhz": "", "required": "yes"})
    assert sent.status_code == 302
    rule = GpuClockRule.objects.get()
    assert (rule.graphics, rule.memory_mhz, rule.persistence, rule.required) == ("1410", None, False, True)
    assert (rule.by.username, rule.gpu, rule.host) == ("olga", "NVIDIA H200", "a")
    assert selectors.wish_of(UUID) == ClockWish("1410", None, False, True)
    workers.clear()
    page = owner.get(reverse("gpu-clocks")).content.decode()
    assert "no worker has it now" in page and 'value="1410"' in page
    owner.post(reverse("gpu-clocks-change"), {"uuid": UUID, "do": "forbid"})
    assert not GpuClockRule.objects.exists() and selectors.wish_of(UUID) is None
    told = AuditEntry.objects.filter(kind="gpu clock rule").order_by("pk")
    assert list(told.values_list("action", flat=True)) == ["made", "deleted"]


@pytest.mark.django_db
def test_what_is_wrong_stands_at_its_field_and_what_was_typed_stays(owner, workers):
    sent = owner.post(reverse("gpu-clocks-change"), {"uuid": UUID, "graphics": "2500", "memory_mhz": "1593", "persistence": "yes"})
    text = sent.content.decode()
    assert sent.status_code == 400 and "highest graphics clock is 1980 MHz, not 2500" in text and 'value="2500"' in text
    assert 'value="1593"' in text
    sent = owner.post(reverse("gpu-clocks-change"), {"uuid": "GPU-<b>", "graphics": ""})
    assert sent.status_code == 400 and "no worker that runs now has this GPU" in sent.content.decode()
    assert not GpuClockRule.objects.exists()


@pytest.mark.django_db
def test_the_page_of_workers_says_what_is_held_and_what_was_refused(owner, workers, monkeypatch):
    from webapp import pages

    monkeypatch.setattr(pages.jobs, "workers", lambda: workers)
    workers[0]["gpus"][0]["clocks"] = {"held": {"by": "tune job 7 on w", "since": "s", "changes": ["graphics clock"]}, "last": None}
    assert "clocks held by tune job 7 on w" in owner.get(reverse("workers")).content.decode()
    told = {"locked": False, "why": "graphics clock: no permission", "at": "2026"}
    workers[0]["gpus"][0]["clocks"] = {"held": None, "last": told}
    assert "graphics clock: no permission" in owner.get(reverse("workers")).content.decode()
    assert "not locked: graphics clock: no permission" in owner.get(reverse("gpu-clocks")).content.decode()


@pytest.mark.django_db
def test_the_api_does_the_same(owner, workers):
    address = reverse("api-gpu-clocks-rule", args=[UUID])
    made = owner.put(address, json.dumps({"graphics": "60%", "memory_mhz": 1593}), content_type="application/json")
    assert made.status_code == 200
    told = made.json()
    assert (told["allowed"], told["graphics"], told["memory_mhz"], told["persistence"]) == (True, "60%", 1593, True)
    assert told["by"] == "olga"
    assert owner.get(reverse("api-gpu-clocks")).json()["gpus"] == [told]
    wrong = owner.put(address, json.dumps({"graphics": "fast"}), content_type="application/json")
    assert wrong.status_code == 400 and "'fast' is no clock" in wrong.content.decode()
    assert owner.delete(address).status_code == 204 and not GpuClockRule.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("uuid", ["GPU-", "x" * 300, "%F0%9F%92%A9"])
def test_what_is_no_uuid_is_told_apart_from_a_fault(owner, workers, uuid):
    address = f"/api/workers/clocks/{uuid}/"
    assert owner.put(address, "{}", content_type="application/json").status_code == 400
    assert owner.delete(address).status_code == 204
    assert owner.post(reverse("gpu-clocks-change"), {"uuid": "a\0b", "graphics": "1410\0"}).status_code == 400
    assert owner.post(reverse("gpu-clocks-change"), {"uuid": "a\0b", "do": "forbid"}).status_code == 302


@pytest.mark.django_db
def test_only_owners_of_the_installation_may(client, workers):
    person = get_user_model().objects.create_user("eve", password="x")
    role_set(person, ENGINEER)
    client.force_login(person)
    assert client.get(reverse("gpu-clocks")).status_code == 200
    assert "Owners of the installation decide" in client.get(reverse("gpu-clocks")).content.decode()
    assert client.post(reverse("gpu-clocks-change"), {"uuid": UUID, "graphics": "1410"}).status_code == 403
    address = reverse("api-gpu-clocks-rule", args=[UUID])
    assert client.put(address, "{}", content_type="application/json").status_code == 403
    assert client.delete(address).status_code == 403 and not GpuClockRule.objects.exists()


@pytest.mark.django_db
def test_the_command_does_the_same(workers, capsys):
    call_command("clocks", "allow", UUID, "--graphics", "1410", "--required")
    assert "1410 MHz, persistence mode on, required" in capsys.readouterr().out
    call_command("clocks", "list", "--json")
    assert json.loads(capsys.readouterr().out)["gpus"][0]["allowed"] is True
    with pytest.raises(CommandError, match="graphics: 'fast' is no clock"):
        call_command("clocks", "allow", UUID, "--graphics", "fast")
    call_command("clocks", "forbid", UUID)
    assert "clocks left alone" in capsys.readouterr().out and not GpuClockRule.objects.exists()


@pytest.mark.django_db
def test_a_gpu_that_nobody_knows_is_refused(workers):
    with pytest.raises(Refused, match="start one on its host") as refused:
        services.rule_set("GPU-0", ClockWish(), by=None)
    assert list(refused.value.fields) == ["uuid"]

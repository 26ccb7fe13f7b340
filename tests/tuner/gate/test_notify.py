"""Who is told of verdicts: what may be sent to, what is signed, tried again and ended, and who may change it."""

import hashlib
import hmac
import json
import socket
import threading
import time
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import StreamRequestHandler, ThreadingTCPServer

import pytest
from django.core import mail
from django.core.management import CommandError, call_command
from django.urls import reverse
from django.utils import timezone

from profiles.base.refused import Refused
from tuner.gate.channels import selectors as notify_selectors
from tuner.gate.channels import sending_services
from tuner.gate.channels import services as notify_services
from tuner.gate.channels.kinds import KINDS
from tuner.gate.channels.kinds import webhook as notify_webhook
from tuner.gate.channels.kinds.mail import KEPT_IN_FILES
from tuner.gate.channels.kinds.webhook import NotSent
from tuner.gate.reports import message
from tuner.gate.verdicts.decide_services import notify_followers
from tuner.models import Build, Delivery, Gate, GateKernel, Notified, Regression, Suite, SuiteKernel
from workers.secret import unseal

KEY = "softmax R=8192 C=4096 fp16"


class Listener:
    """A real receiver on loopback: keeps what arrives, and answers as it is told."""

    def __init__(self):
        self.got, self.status, self.headers, self.hang_s = [], 204, {}, 0.0
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                listener.got.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
                time.sleep(listener.hang_s)
                self.send_response(listener.status)
                for name, value in listener.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(b"no such channel" if listener.status >= 400 else b"")

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def listener():
    made = Listener()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def inside(settings):
    settings.WEBHOOK_PRIVATE = True


@pytest.fixture
def woken(monkeypatch):
    """Entries that would wake a worker."""
    found = []
    monkeypatch.setattr(sending_services.jobs, "enqueue", lambda queue, task, pk: found.append((queue, task, pk)))
    monkeypatch.setattr(sending_services.jobs, "publish", lambda *args: None)
    return found


def tried(pk):
    """The message after a worker tried what is due; None where it was not."""
    return Delivery.objects.get(pk=pk) if pk in sending_services.send_deliveries() else None


def gate(verdict="SLOWER", suite="serving", ratio=1.081, **more):
    row, _ = Suite.objects.get_or_create(name=suite)
    kernel, _ = SuiteKernel.objects.get_or_create(suite=row, key=KEY, defaults={"op": "softmax", "family": "softmax"})
    build = Build.objects.create(name=f"b{Build.objects.count()}", at=timezone.now())
    made = Gate.objects.create(suite=row, build=build, status="done", verdict=verdict, reason="One kernel is 8.1 % slower.",
                               gpu="NVIDIA H200", recorded="recorded on NVIDIA H200", report={"alpha": 0.01}, **more)
    GateKernel.objects.create(gate=made, kernel=kernel, verdict=verdict or "NO DATA", reason="p50 +8.1 %", ratio_p50=ratio,
                              low=1.07, high=1.09, baseline_us=38.5, candidate_us=41.6, detectable=0.034)
    return made


# ---- addresses ----

@pytest.mark.parametrize("address", [
    "ftp://team.example/x", "https://", "http:///path", "javascript:alert(1)", "https://user:pass@team.example/", "https://team.example:0/",
    "https://team.example:99999/", "https://team.example/a b", "https://team.example/\r\nX: y", "file:///etc/passwd", "x" * 501, "",
    "https://[::1", "https://" + "a" * 64 + ".example/", "https://team.example/ä", "https://team.example/?a=\ud800"])
def test_what_is_no_web_address_is_refused(address):
    with pytest.raises(Refused):
        notify_webhook.parse_address(address)


@pytest.mark.parametrize("ip", [
    "127.0.0.1", "127.9.9.9", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "224.0.0.1",
    "255.255.255.255", "::1", "::", "fe80::1", "fd00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1",
    "::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b:1::a00:1", "fec0::1", "192.0.0.192", "168.63.129.16",
    "2002:7f00:1::", "2001:0:4136:e378:8000:63bf:80ff:fffe"])
def test_addresses_inside_are_not_public(ip):
    assert not notify_webhook.is_public(ip)
    with pytest.raises(Refused, match="inside this network"):
        notify_webhook.post("https://team.example/hook", b"{}", {}, resolve=lambda host, port: [ip])


@pytest.mark.parametrize("ip", ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "64:ff9b::5db8:d70e"])
def test_addresses_of_the_world_are_public(ip):
    assert notify_webhook.is_public(ip)


def test_one_inner_address_among_many_is_refused():
    with pytest.raises(Refused, match=r"10\.0\.0\.7"):
        notify_webhook.post("https://team.example/", b"{}", {}, resolve=lambda host, port: ["93.184.215.14", "10.0.0.7"])


def test_the_name_is_looked_up_once_and_the_checked_address_is_what_is_connected_to(listener):
    asked = []

    def resolve(host, port):
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["10.255.255.1"]

    port = listener.server.server_port
    arrived = notify_webhook.post(f"http://team.example:{port}/hook?a=1", b"{}", {}, private=True, resolve=resolve)
    assert (arrived.status, asked) == (204, ["team.example"])
    path, headers, _ = listener.got[0]
    assert (path, headers["host"]) == ("/hook?a=1", f"team.example:{port}")


# ---- what arrives ----

def test_a_message_is_signed_with_its_time(listener):
    notify_webhook.post(listener.url, b'{"a": 1}', {"X-Ridgepoint-Event": "test"}, secret="s3cret", private=True)
    _, headers, body = listener.got[0]
    signed = hmac.new(b"s3cret", headers["x-ridgepoint-timestamp"].encode() + b"." + body, hashlib.sha256).hexdigest()
    assert headers["x-ridgepoint-signature"] == f"sha256={signed}"
    assert abs(int(headers["x-ridgepoint-timestamp"]) - time.time()) < 60 and headers["content-type"] == "application/json"


@pytest.mark.parametrize(("status", "final"), [
    (400, True), (404, True), (410, True), (429, False), (408, False), (500, False), (503, False)])
def test_which_answers_are_tried_again(listener, status, final):
    listener.status = status
    with pytest.raises(NotSent, match=f"{status}: no such channel") as caught:
        notify_webhook.post(listener.url, b"{}", {}, private=True)
    assert caught.value.final is final


def test_a_redirect_is_not_followed(listener):
    listener.status, listener.headers = 302, {"Location": "http://169.254.169.254/latest/meta-data/"}
    with pytest.raises(NotSent, match=r"redirects to http://169\.254") as caught:
        notify_webhook.post(listener.url, b"{}", {}, private=True)
    assert caught.value.final and len(listener.got) == 1


def test_a_receiver_that_drips_is_cut_off():
    """Each byte begins a socket's timeout anew: the whole has a limit of its own."""
    server = socket.create_server(("127.0.0.1", 0))

    def drip():
        link, _ = server.accept()
        try:
            for byte in b"HTTP/1.1 200 OK\r\n" + b"X-A: " + b"a" * 1000:
                link.sendall(bytes([byte]))
                time.sleep(0.02)
        except OSError:
            pass

    threading.Thread(target=drip, daemon=True).start()
    began = time.monotonic()
    with pytest.raises(NotSent, match="no answer within"):
        notify_webhook.post(f"http://127.0.0.1:{server.getsockname()[1]}/", b"{}", {}, private=True, total_s=0.5)
    assert time.monotonic() - began < 15         # the whole answer would take 20 s
    server.close()


def test_an_address_that_leads_nowhere_is_passed_over(listener):
    arrived = notify_webhook.post(listener.url.replace("127.0.0.1", "two.example"), b"{}", {}, private=True,
                                  resolve=lambda host, port: ["127.0.0.9", "127.0.0.1"])
    assert arrived.status == 204 and len(listener.got) == 1


def test_nobody_there_is_said():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(NotSent, match="nobody listens") as caught:
        notify_webhook.post(f"http://127.0.0.1:{port}/", b"{}", {}, private=True)
    assert not caught.value.final


# ---- rows ----

@pytest.mark.django_db
def test_a_verdict_is_told_to_those_who_want_it_once(woken, django_capture_on_commit_callbacks):
    all_slower = notify_services.add_destination(kind="webhook", address="https://a.example/")
    notify_services.add_destination(kind="webhook", address="https://b.example/", verdicts=["PASS"])
    notify_services.add_destination(kind="email", address="c@team.example", suite=Suite.objects.create(name="other").name)
    off = notify_services.add_destination(kind="webhook", address="https://d.example/")
    notify_services.change_destination(off, enabled=False)
    found = gate()
    with django_capture_on_commit_callbacks(execute=True):
        assert notify_followers(found) == 1
    delivery = Delivery.objects.get()
    assert (delivery.to, delivery.event, delivery.status) == (all_slower, "SLOWER", "waiting")
    assert woken == [("messages", "notify", delivery.pk)]
    assert delivery.body["gate"]["kernels"][0]["key"] == KEY and "+8.1 %" in delivery.body["mail"]
    assert notify_followers(found) == 0 and Delivery.objects.count() == 1
    found.verdict = "AMBIGUOUS"
    assert notify_followers(found) == 1             # nobody asked for that, but who heard SLOWER hears what came of it
    assert set(Delivery.objects.values_list("to", "event")) == {(all_slower.pk, "SLOWER"), (all_slower.pk, "AMBIGUOUS")}
    assert notify_followers(gate("AMBIGUOUS")) == 0
    found.verdict = ""
    assert notify_followers(found) == 0             # it goes on


@pytest.mark.django_db
def test_a_message_reaches_the_receiver_with_everything_in_it(listener, inside, woken, settings):
    settings.PUBLIC_URL = "https://guard.example"
    place = notify_services.add_destination(kind="webhook", address=listener.url + "/hook")
    found = gate()
    notify_followers(found)
    sent = tried(Delivery.objects.get().pk)
    assert (sent.status, sent.tries, sent.error, sent.due) == ("sent", 1, "", None) and sent.answer.startswith("204 after")
    _, headers, body = listener.got[0]
    stamp = headers["x-ridgepoint-timestamp"]
    assert headers["x-ridgepoint-signature"] == notify_webhook.signature(unseal(place.secret), stamp, body)
    told = json.loads(body)
    assert (told["event"], told["verdict"], told["delivery"], "mail" in told) == ("gate", "SLOWER", sent.pk, False)
    assert told["gate"]["links"]["page"] == f"https://guard.example{reverse('gate', args=[found.pk])}"
    assert told["text"].startswith(f"SLOWER: {found.build.name} of serving, {KEY} +8.1 %")
    assert tried(sent.pk) is None and len(listener.got) == 1


@pytest.mark.django_db
def test_a_teams_channel_gets_a_card_with_a_button_and_no_secret(listener, inside, woken, settings):
    settings.PUBLIC_URL = "https://guard.example"
    place = notify_services.add_destination(kind="teams", address=listener.url + "/workflows/7")
    assert place.secret == "" and notify_selectors.visible_address(place, whole=False) == "http://127.0.0.1/…"
    found = gate()
    notify_followers(found)
    assert tried(Delivery.objects.get().pk).status == "sent"
    _, headers, body = listener.got[0]
    attachment, = json.loads(body)["attachments"]
    card = attachment["content"]
    assert "x-ridgepoint-signature" not in headers and attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    assert card["type"] == "AdaptiveCard" and f"{KEY} +8.1 %" in card["body"][1]["text"]
    assert card["actions"][0]["url"] == f"https://guard.example{reverse('gate', args=[found.pk])}"


def test_each_kind_of_channel_fits_its_row_and_refuses_what_it_cannot_send_to():
    longest = Notified._meta.get_field("kind").max_length
    for name, kind in KINDS.items():
        assert name == kind.name and len(name) <= longest and kind.label and kind.noun != kind.nouns
        with pytest.raises(Refused):
            kind.check("javascript:alert(1)")


@pytest.mark.django_db
def test_what_does_not_arrive_is_tried_later_and_later_and_then_given_up(listener, inside, woken):
    listener.status = 503
    notify_services.add_destination(kind="webhook", address=listener.url)
    notify_followers(gate())
    row = Delivery.objects.get()
    waits = []
    for _ in range(len(sending_services.WAITS) + 1):
        before = timezone.now()
        row = tried(row.pk)
        assert row.error == "503: no such channel"
        if row.due:
            assert tried(row.pk) is None       # not before it is due
            waits.append(row.due - before)
            Delivery.objects.update(due=timezone.now() - timedelta(minutes=1))
    assert [round(wait.total_seconds()) for wait in waits] == [30, 120, 600, 3600, 21600]
    assert (row.status, row.tries, len(listener.got)) == ("failed", 6, 6)
    listener.status = 200
    assert sending_services.retry_delivery(row) and tried(row.pk).status == "sent"


@pytest.mark.django_db
def test_an_inner_address_is_refused_for_good_unless_an_owner_allows_it(listener, woken, settings):
    settings.WEBHOOK_PRIVATE = False
    place = notify_services.add_destination(kind="webhook", address=listener.url)
    row = tried(notify_services.send_test(place, "olga").pk)
    assert row.status == "failed" and "RIDGEPOINT_WEBHOOK_PRIVATE" in row.error and listener.got == []


@pytest.mark.django_db
def test_a_worker_that_dies_leaves_a_message_that_is_due_again(woken, monkeypatch):
    place = notify_services.add_destination(kind="webhook", address="https://team.example/")
    row = notify_services.send_test(place, "olga")

    def die(*args, **named):
        raise SystemExit

    monkeypatch.setattr(notify_webhook, "post", die)
    with pytest.raises(SystemExit):
        tried(row.pk)
    woken.clear()
    assert sending_services.wake_due_deliveries() == []           # the dead worker's lease holds
    Delivery.objects.update(due=timezone.now() - timedelta(minutes=1))
    assert sending_services.wake_due_deliveries({row.pk}) == []   # an entry is there
    assert sending_services.wake_due_deliveries() == [row.pk] and woken == [("messages", "notify", row.pk)]


@pytest.mark.django_db
def test_a_receiver_that_hangs_holds_back_nobody_else(listener, inside, woken):
    listener.hang_s = 1.5
    slow = notify_services.add_destination(kind="webhook", address=listener.url)
    quick = [notify_services.send_test(notify_services.add_destination(kind="email", address=f"{name}@team.example"), "olga")
             for name in "ab"]
    hung = [notify_services.send_test(slow, "olga") for _ in range(2)]
    assert set(sending_services.send_deliveries()) == {row.pk for row in (*hung, *quick)}
    rows = {row.pk: row for row in Delivery.objects.filter(status="sent")}
    assert len(rows) == 4 and len(listener.got) == 2
    assert all(rows[row.pk].sent < rows[hung[0].pk].sent for row in quick)
    assert rows[hung[1].pk].sent - rows[hung[0].pk].sent > timedelta(seconds=1.4)       # one place, one message at a time


@pytest.mark.django_db
def test_a_dead_receiver_is_asked_once_however_much_waits_for_it(listener, inside, woken):
    listener.status = 503
    place = notify_services.add_destination(kind="webhook", address=listener.url)
    rows = [notify_services.send_test(place, "olga") for _ in range(40)]
    assert sending_services.send_deliveries() == [rows[0].pk] and len(listener.got) == 1
    assert sending_services.send_deliveries() == []
    later = Delivery.objects.filter(tries=0, status="waiting", due__gt=timezone.now() + timedelta(seconds=25))
    assert later.count() == 39
    listener.status = 204
    Delivery.objects.update(due=timezone.now() - timedelta(seconds=1))
    assert len(sending_services.send_deliveries()) == 40 and not Delivery.objects.exclude(status="sent").exists()


@pytest.mark.django_db
def test_a_fault_of_ours_ends_one_message_and_no_other(listener, inside, woken, monkeypatch):
    place = notify_services.add_destination(kind="webhook", address=listener.url)
    broken = notify_services.send_test(place, "olga")
    other = notify_services.send_test(notify_services.add_destination(kind="email", address="a@team.example"), "olga")
    monkeypatch.setattr(notify_webhook, "post", lambda *args, **named: 1 / 0)
    sending_services.send_deliveries()
    assert Delivery.objects.get(pk=other.pk).status == "sent"
    assert Delivery.objects.get(pk=broken.pk).error == "unexpected ZeroDivisionError: division by zero"


@pytest.mark.django_db
def test_a_place_that_is_removed_while_it_is_asked_ends_no_other_message(listener, inside, woken, monkeypatch):
    gone = notify_services.add_destination(kind="email", address="a@team.example")
    stays = notify_services.send_test(notify_services.add_destination(kind="webhook", address=listener.url), "olga")
    notify_services.send_test(gone, "olga")
    claimed = sending_services._claim

    def then_removed(*args):
        rows = claimed(*args)
        Notified.objects.filter(pk=gone.pk).delete()
        return rows

    monkeypatch.setattr(sending_services, "_claim", then_removed)
    sending_services.send_deliveries()
    assert Delivery.objects.get().pk == stays.pk and Delivery.objects.get().status == "sent"


@pytest.mark.django_db
def test_the_database_holds_no_secret_that_signs(listener, inside, woken, settings):
    place = notify_services.add_destination(kind="webhook", address=listener.url, secret="of the receiver's own")
    place.refresh_from_db()
    assert "receiver" not in place.secret and unseal(place.secret) == "of the receiver's own"
    old, settings.SECRET_KEY = settings.SECRET_KEY, "another key of this installation"
    row = tried(notify_services.send_test(place, "olga").pk)
    assert row.status == "failed" and "give web and workers the same RIDGEPOINT_SECRET_KEY" in row.error and listener.got == []
    settings.SECRET_KEY_FALLBACKS = [old]
    assert tried(notify_services.send_test(place, "olga").pk).status == "sent"


@pytest.mark.django_db
def test_old_messages_are_forgotten(listener, inside, woken):
    place = notify_services.add_destination(kind="webhook", address=listener.url)
    old = notify_services.send_test(place, "olga")
    tried(old.pk)
    Delivery.objects.update(created=timezone.now() - sending_services.KEPT_FOR - timedelta(hours=1))
    new = notify_services.send_test(place, "olga")
    tried(new.pk)
    assert list(Delivery.objects.values_list("pk", flat=True)) == [new.pk]


@pytest.mark.django_db
def test_a_mail_says_the_verdict_and_a_file_is_no_mail(woken, settings, tmp_path):
    notify_services.add_destination(kind="email", address="kernels@team.example")
    notify_followers(gate())
    row = tried(Delivery.objects.get().pk)
    assert (row.status, row.answer) == ("sent", "taken by the mail server")      # Django's outbox of tests takes it
    message = mail.outbox[0]
    assert message.to == ["kernels@team.example"] and message.subject.startswith("SLOWER: ") and "\n" not in message.subject
    assert "| ▲ SLOWER |" in message.body and "recorded on NVIDIA H200" in message.body
    settings.EMAIL_BACKEND, settings.EMAIL_FILE_PATH = KEPT_IN_FILES, tmp_path / "mail"
    kept = tried(notify_services.send_test(Notified.objects.get(), "olga").pk)
    assert kept.status == "kept" and "Ridgepoint: a test message" in next((tmp_path / "mail").iterdir()).read_text()


@pytest.mark.django_db
def test_a_mail_server_takes_it_and_one_that_is_away_is_tried_later(woken, settings):
    settings.EMAIL_BACKEND, settings.EMAIL_HOST = "django.core.mail.backends.smtp.EmailBackend", "127.0.0.1"
    settings.EMAIL_USE_TLS = settings.EMAIL_USE_SSL = False
    place, said = notify_services.add_destination(kind="email", address="kernels@team.example"), []

    class Smtp(StreamRequestHandler):
        def handle(self):
            self.wfile.write(b"220 here\r\n")
            for line in self.rfile:
                said.append(line.decode().strip())
                answer = b"354 go on" if (word := line.upper()[:4]) == b"DATA" else b"250 ok"
                if word == b"DATA":
                    self.wfile.write(answer + b"\r\n")
                    while (line := self.rfile.readline()) not in (b".\r\n", b""):
                        said.append(line.decode().strip())
                    answer = b"250 taken"
                self.wfile.write(answer + b"\r\n")
                if word == b"QUIT":
                    return

    with ThreadingTCPServer(("127.0.0.1", 0), Smtp) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        settings.EMAIL_PORT = server.server_address[1]
        sent = tried(notify_services.send_test(place, "olga").pk)
        server.shutdown()
    assert (sent.status, sent.error) == ("sent", "") and "rcpt TO:<kernels@team.example>" in said
    assert "Subject: Ridgepoint: a test message" in said
    later = tried(notify_services.send_test(place, "olga").pk)
    assert later.status == "waiting" and later.due and "ConnectionRefused" in later.error


@pytest.mark.django_db
def test_a_regression_of_a_series_is_told_and_what_a_gate_found_is_not_told_twice(woken):
    notify_services.add_destination(kind="webhook", address="https://a.example/")
    every = notify_services.add_destination(kind="webhook", address="https://b.example/", verdicts=["REGRESSION"])
    suite = Suite.objects.create(name="nightly")
    build = Build.objects.create(name="bad", at=timezone.now())
    row = Regression.objects.create(suite=suite, family="softmax", build=build, ratio=1.05, low=1.04, high=1.06, found_by="series")
    assert notify_services.write_regression_messages(row) == 2 and notify_services.write_regression_messages(row) == 0
    assert Delivery.objects.first().body["subject"] == "softmax of nightly is slower since bad: +5.0 % (+4.0 … +6.0 %)"
    assert notify_services.write_regression_messages(row, "fixed") == 1
    assert Delivery.objects.get(event="regression fixed").to == every
    row.found_by = "gate"
    assert notify_services.write_regression_messages(row) == 0


@pytest.mark.django_db
@pytest.mark.parametrize(("given", "field"), [
    ({"kind": "pigeon", "address": "x"}, "kind"), ({"kind": "webhook", "address": "ftp://x.example"}, "address"),
    ({"kind": "email", "address": "a@b"}, "address"), ({"kind": "email", "address": "a@x.example\nBcc: all@x.example"}, "address"),
    ({"kind": "webhook", "address": "https://x.example", "verdicts": ["MAYBE"]}, "verdicts"),
    ({"kind": "webhook", "address": "https://x.example", "secret": "short"}, "secret"),
    ({"kind": "webhook", "address": "https://x.example", "suite": "nobody"}, "suite"),
    ({"kind": "webhook", "address": "https://x.example", "secret": "long enough\x07b"}, "secret")])
def test_what_cannot_be_told_is_refused(given, field):
    with pytest.raises(Refused) as refused:
        notify_services.add_destination(**given)
    assert list(refused.value.fields) == [field] and not Notified.objects.exists()


# ---- API and page ----

@pytest.mark.django_db
def test_owners_add_test_and_remove_and_others_see_no_passwords(api, olga, alice, bob, woken):
    asked = {"kind": "webhook", "address": "https://chat.example/T0/B0/password"}
    made = api(olga).post(reverse("api-notified"), asked, format="json")
    assert made.status_code == 201 and len(made.json()["secret"]) > 30
    pk = made.json()["id"]
    for person in (alice, bob):
        http = api(person)
        assert http.post(reverse("api-notified"), {"kind": "email", "address": "a@team.example"}, format="json").status_code == 403
        assert http.post(reverse("api-notified-test", args=[pk])).status_code == 403
        assert http.delete(reverse("api-notified-place", args=[pk])).status_code == 403
        text = http.get(reverse("api-notified")).content.decode()
        assert "password" not in text and "https://chat.example/…" in json.loads(text)["places"][0]["address"]
    assert made.json()["secret"] not in api(olga).get(reverse("api-notified")).content.decode()
    assert api(olga).post(reverse("api-notified-test", args=[pk])).json()["event"] == "test"
    asked = {"enabled": False, "verdicts": ["FASTER"]}
    Delivery.objects.update(error="404: no such channel B0/password")
    assert "B0/password" in api(olga).get(reverse("api-notified")).content.decode()
    assert "password" not in api(bob).get(reverse("api-notified-place", args=[pk])).content.decode()
    changed = api(olga).patch(reverse("api-notified-place", args=[pk]), asked, format="json").json()
    assert (changed["enabled"], changed["verdicts"]) == (False, ["FASTER"])
    assert api(olga).delete(reverse("api-notified-place", args=[pk])).status_code == 204 and not Delivery.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("body", [
    {}, [], {"address": None}, {"address": ["x"]}, {"kind": 5}, {"address": "https://x.example/\x00"},
    {"address": "https://x.example/\ud800"}, {"verdicts": "SLOWER"}, {"verdicts": [None]}, {"suite": "nobody"}, {"suite": 7},
    {"suite": {"a": 1}}, {"suite": "\x00"}, {"suite": "\ud800"}, {"secret": "\ud800"}])
def test_a_hostile_body_is_answered_with_its_field(api, olga, body):
    body = {"kind": "webhook", "address": "https://x.example", **body} if body else body
    answer = api(olga).post(reverse("api-notified"), json.dumps(body), content_type="application/json")
    assert answer.status_code == 400 and answer.json()["error"] and not Notified.objects.exists()


@pytest.mark.django_db
def test_the_page_says_who_is_told_and_what_stands_in_the_way(client, olga, bob, woken, settings):
    settings.EMAIL_BACKEND = KEPT_IN_FILES
    client.force_login(olga)
    assert "No channel yet" in client.get(reverse("notified")).content.decode()
    asked = {"kind": "webhook", "address": "https://chat.example/hook", "verdicts": ["SLOWER"]}
    page = client.post(reverse("notified-create"), asked)
    text = page.content.decode()
    assert unseal(Notified.objects.get().secret) in text and "SLOWER: 1 webhook" in text
    assert "no-store" in page["Cache-Control"]
    assert unseal(Notified.objects.get().secret) not in client.get(reverse("notified")).content.decode()
    client.post(reverse("notified-change", args=[Notified.objects.get().pk]), {"do": "test"})
    text = client.get(reverse("notified")).content.decode()
    assert "waits" in text and "Links have no host" in text and "mails become files" in text
    bad = client.post(reverse("notified-create"), {"kind": "email", "address": "nobody", "verdicts": ["SLOWER"]})
    assert bad.status_code == 400 and "write one mail address" in bad.content.decode()
    client.force_login(bob)
    text = client.get(reverse("notified")).content.decode()
    assert "/hook" not in text and "Add a webhook" not in text
    assert client.post(reverse("notified-create"), {"kind": "email", "address": "a@x.example"}).status_code == 403


@pytest.mark.django_db
def test_lists_stay_bounded_and_cost_a_few_queries(client, olga, woken, django_assert_max_num_queries):
    place = notify_services.add_destination(kind="webhook", address="https://a.example/")
    for _ in range(120):
        notify_services.send_test(place, "olga")
    client.force_login(olga)
    with django_assert_max_num_queries(14):
        text = client.get(reverse("notified")).content.decode()
    assert text.count("Ridgepoint: a test message") == notify_selectors.DELIVERIES


@pytest.mark.django_db
def test_the_command_does_what_the_page_does(woken, capsys):
    def notified(*argv):
        call_command("notified", *argv, "--json")
        return json.loads(capsys.readouterr().out)

    made = notified("add", "webhook", "https://chat.example/hook", "--verdicts", "SLOWER", "FAILED")
    assert (made["verdicts"], len(made["secret"]) > 30) == (["SLOWER", "FAILED"], True)
    assert notified("off", str(made["id"]))["enabled"] is False and notified("on", str(made["id"]))["enabled"] is True
    sent = notified("test", str(made["id"]), "--wait", "0")
    assert (sent["event"], sent["status"], sent["to"]) == ("test", "waiting", made["id"])
    assert notified("messages", "--to", str(made["id"]))[0]["id"] == sent["id"] and notified("again", str(sent["id"]))["tries"] == 0
    assert "secret" not in notified("list")[0]
    assert notified("remove", str(made["id"]))["removed"] and notified("list") == []
    with pytest.raises(CommandError, match="write one mail address"):
        call_command("notified", "add", "email", "nobody")
    with pytest.raises(CommandError, match="does not exist"):
        call_command("notified", "test", "7")


def test_words_of_others_call_nobody_in_a_chat():
    said = message.gate_message({"suite": "s", "build": "<!channel>", "verdict": "SLOWER", "kernels": [],
                            "reason": "<https://evil|open me> @all p < 0.01", "links": {"page": "https://h/gates/1/"}})["text"]
    assert "<!" not in said and "<https" not in said and "@all" not in said and "p < 0.01" in said
    assert said.endswith(" https://h/gates/1/")
    row = {"family": "<!here>", "suite": "s", "build": "b", "page": "/regressions/1/"}
    assert "<!" not in message.regression_message(row, "found")["text"]

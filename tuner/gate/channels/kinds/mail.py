"""A mailbox: the message as a mail of plain text, through Django's mail backend."""

from __future__ import annotations

from smtplib import SMTPException

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage
from django.core.validators import validate_email

from profiles.base.refused import Refused
from tuner.gate.channels.kinds.kind import ChannelKind, Message
from workers.outgoing import NotSent

KEPT_IN_FILES = "django.core.mail.backends.filebased.EmailBackend"
MOST_CHARACTERS = 254           # of an address: RFC 5321, 4.5.3.1.3


def check(address: str) -> None:
    try:
        validate_email(address)
    except ValidationError as error:
        raise Refused("write one mail address: name@team.example") from error
    if len(address) > MOST_CHARACTERS:
        raise Refused("write one mail address: name@team.example")


def visible(address: str) -> str:
    return f"…@{address.rpartition('@')[2]}"


def send(message: Message) -> tuple[str, str]:
    subject = " ".join(str(message.body.get("subject", "Ridgepoint")).split())[:200]        # one line: a mail's header
    mail = EmailMessage(subject, str(message.body.get("mail", "")), to=[message.address],
                        headers={"X-Ridgepoint-Delivery": str(message.delivery)})
    try:
        mail.send()
    except (SMTPException, OSError, ValueError) as error:
        raise NotSent(f"{type(error).__name__}: {error}"[:250]) from error
    if settings.EMAIL_BACKEND == KEPT_IN_FILES:
        return "kept", "written to a file: no mail server is set"
    return "sent", "taken by the mail server"


KIND = ChannelKind("email", "e-mail", "mailbox", "mailboxes", "name@team.example", check, visible, send)

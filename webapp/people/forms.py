"""Forms of signing in: each counts its tries (`webapp.sign_in`), and a code counts once."""

from __future__ import annotations

from typing import Any

from allauth.account.forms import ReauthenticateForm
from allauth.core import context
from allauth.mfa.base.forms import AuthenticateForm
from allauth.mfa.base.forms import ReauthenticateForm as ReauthenticateByCodeForm
from django.core.exceptions import ValidationError

from webapp.sign_in import REST_S, code_take, tries_forget, tries_take


class Limited:
    """Refuses after too many failures of this person from this address, without looking at what was typed."""

    user: Any
    cleaned_data: dict[str, Any]

    def check(self, look: Any) -> str:
        """Return what `look` accepts; it raises ValidationError for what is wrong, and the try stays counted."""
        if not tries_take(f"second\0{self.user.pk}", context.request):
            raise ValidationError(f"Too many failures: try again in {REST_S // 60} minutes.", code="throttled")
        accepted: str = look()
        tries_forget(f"second\0{self.user.pk}", context.request)
        return accepted


class CodeForm(Limited, AuthenticateForm):
    def clean_code(self) -> str:
        return self.check(self._look)

    def _look(self) -> str:
        code: str = super().clean_code()
        if not code_take(self.user.pk, code):
            raise ValidationError("This code was used already: wait for the next one.", code="used")
        return code


class CodeAgainForm(Limited, ReauthenticateByCodeForm):
    def clean_code(self) -> str:
        return self.check(super().clean_code)


class PasswordAgainForm(Limited, ReauthenticateForm):
    def clean_password(self) -> str:
        return self.check(super().clean_password)

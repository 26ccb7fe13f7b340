"""People and tokens in the admin: a person has one role, chosen in one field."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.forms import AdminUserCreationForm, UserChangeForm
from django.contrib.auth.models import Group
from django.db.models import QuerySet
from django.http import HttpRequest

from webapp.models import ApiToken
from webapp.roles import ROLES, VIEWER, role_of, role_set
from webapp.sign_in import AdminSignInForm

User = get_user_model()
admin.site.site_header = admin.site.site_title = "Ridgepoint"
admin.site.login_form = AdminSignInForm
admin.site.unregister(Group)        # the roles are code: webapp.roles
admin.site.unregister(User)


class RoleMixin(forms.ModelForm):
    role = forms.ChoiceField(
        choices=[(role, role) for role in ROLES], initial=VIEWER,
        help_text="viewer reads; engineer uploads, tunes and captures; owner manages people and what may be executed.")


class PersonCreationForm(RoleMixin, AdminUserCreationForm):
    pass


class PersonChangeForm(RoleMixin, UserChangeForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["role"].initial = role_of(self.instance) or VIEWER


@admin.register(User)
class PersonAdmin(UserAdmin):
    form, add_form = PersonChangeForm, PersonCreationForm
    list_display = ("username", "email", "role", "is_active", "last_login")
    list_filter = ("is_active", "groups")
    filter_horizontal = ()
    fieldsets = (
        (None, {"fields": ("username", "password", "role", "is_active")}),
        ("About", {"fields": ("first_name", "last_name", "email", "last_login", "date_joined")}),
    )
    add_fieldsets = ((None, {"fields": ("username", "role", "usable_password", "password1", "password2")}),)
    readonly_fields = ("last_login", "date_joined")

    @admin.display(description="role")
    def role(self, person: Any) -> str:
        return "superuser" if person.is_superuser else role_of(person)

    def get_queryset(self, request: HttpRequest) -> QuerySet:
        return super().get_queryset(request).prefetch_related("groups")

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        role_set(form.instance, form.cleaned_data["role"])

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """An owner must not become a superuser by setting a superuser's password."""
        return super().has_change_permission(request, obj) and (obj is None or not obj.is_superuser or request.user.is_superuser)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and (obj is None or not obj.is_superuser or request.user.is_superuser)


@admin.register(ApiToken)
class ApiTokenAdmin(admin.ModelAdmin):
    """Seen and revoked here; made on the person's own page, where the token is shown once."""

    list_display = ("name", "user", "scope", "token_key", "created", "expiry")
    fields = readonly_fields = ("name", "user", "scope", "token_key", "created", "expiry")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

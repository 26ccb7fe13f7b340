"""Addresses below /accounts/: signing in and out, one's password, second factor and tokens."""

from django.conf import settings
from django.contrib.auth import views as auth_views
from django.urls import path, reverse_lazy

from webapp import accounts
from webapp.people import sign_in_pages
from webapp.sign_in import ResetForm

urlpatterns = [
    *sign_in_pages.urlpatterns,
    path("logout/", auth_views.LogoutView.as_view(), name="logout"),
    path("password/", accounts.PasswordView.as_view(), name="password"),
    path("reset/", auth_views.PasswordResetView.as_view(
        form_class=ResetForm, template_name="accounts/reset.html", email_template_name="accounts/reset_mail.txt",
        subject_template_name="accounts/reset_subject.txt", extra_email_context={"public_url": settings.PUBLIC_URL},
        success_url=reverse_lazy("reset-sent")), name="reset"),
    path("reset/sent/", auth_views.PasswordResetDoneView.as_view(template_name="accounts/reset_sent.html"), name="reset-sent"),
    path("reset/<uidb64>/<token>/", auth_views.PasswordResetConfirmView.as_view(
        template_name="accounts/reset_confirm.html", success_url=reverse_lazy("login")), name="password_reset_confirm"),
    path("tokens/", accounts.tokens, name="tokens"),
    path("tokens/create/", accounts.token_create, name="token-create"),                       # POST
    path("tokens/<str:digest>/revoke/", accounts.token_revoke, name="token-revoke"),          # POST
]

from django.apps import AppConfig, apps
from django.conf import settings
from django.contrib.auth.signals import user_logged_out
from django.core.exceptions import ImproperlyConfigured
from django.db.models.signals import post_migrate


class WebappConfig(AppConfig):
    name = "webapp"

    def ready(self) -> None:
        from allauth.mfa.signals import authenticator_added  # models are loaded now

        from webapp import changes
        from webapp.audit import services as audit
        from webapp.changes import connections_close
        from webapp.forges import signals as forges
        from webapp.operate.rates import limits_parse
        from webapp.people import two_factor
        from webapp.projects.services import first_project_ensure
        from webapp.roles import groups_update
        from webapp.threads import signals as thread_signals
        from webapp.threads import tasks as thread_tasks
        from workers import disk

        try:
            disk.rest_parse(settings.DISK_REST)
            limits_parse(settings.LIMITS)
            if settings.TWO_FACTOR not in two_factor.WHO:
                raise ValueError(f"RIDGEPOINT_TWO_FACTOR: “owners” or “all”, not {settings.TWO_FACTOR!r}")
        except ValueError as error:
            raise ImproperlyConfigured(str(error)) from error
        # Sent for every app that has models, in order: after the last one all permissions exist.
        last = [config for config in apps.get_app_configs() if config.models_module][-1]
        changes.connect()
        audit.connect()
        authenticator_added.connect(two_factor.note_done, dispatch_uid="ridgepoint second factor")
        thread_signals.connect()
        forges.connect()
        thread_tasks.connect()
        user_logged_out.connect(connections_close, dispatch_uid="ridgepoint connections")
        post_migrate.connect(first_project_ensure, sender=self, dispatch_uid="ridgepoint first project")
        post_migrate.connect(groups_update, sender=last, dispatch_uid="ridgepoint roles")

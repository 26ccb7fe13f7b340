"""A gate that is asked for twice by the same request is one."""

from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("tuner", "0010_cached_winners"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(model_name="gate", name="request_key", field=models.CharField(blank=True, max_length=80)),
        migrations.AddConstraint(model_name="gate", constraint=models.UniqueConstraint(
            condition=models.Q(("request_key", ""), _negated=True), fields=("owner", "request_key"), name="gate_request_once")),
    ]

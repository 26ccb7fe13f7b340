"""The key by which an upload that is sent again finds the profile that it made."""

from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("profiles", "0030_fleet_receipts"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField("profile", "request_key", models.CharField(blank=True, db_default="", default="", max_length=80)),
        migrations.AddConstraint("profile", models.UniqueConstraint(
            condition=models.Q(("request_key", ""), _negated=True), fields=("project", "owner", "request_key"),
            name="profile_request_key_once")),
    ]

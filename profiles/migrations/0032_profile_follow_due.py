"""From when on what follows on a ready profile is to be taken up by another worker; nothing is due of those that stand already."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("profiles", "0031_profile_request_key"),
    ]

    operations = [
        migrations.AddField("profile", "follow_due", models.DateTimeField(null=True)),
        migrations.AddIndex("profile", models.Index(
            condition=models.Q(("follow_due__isnull", False)), fields=["follow_due"], name="profile_follow_due")),
    ]

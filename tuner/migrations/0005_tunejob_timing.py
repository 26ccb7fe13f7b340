from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tuner", "0004_served_and_teams")]

    operations = [migrations.AddField("tunejob", "timing", models.CharField(default="cold", max_length=8))]

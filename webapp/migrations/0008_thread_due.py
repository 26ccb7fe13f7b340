"""When a thread's subject is to be ended."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("webapp", "0007_agents")]

    operations = [migrations.AddField("thread", "due", models.DateField(null=True))]

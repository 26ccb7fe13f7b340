"""A suite may ask for counters of both builds by itself where a verdict is SLOWER."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("tuner", "0011_gate_request_key")]

    operations = [migrations.AddField(model_name="suite", name="capture_slower", field=models.BooleanField(default=False))]

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("profiles", "0023_running"),
    ]

    operations = [
        migrations.AddField(
            model_name="capture",
            name="dumps_asked",
            field=models.IntegerField(default=0),
        ),
    ]

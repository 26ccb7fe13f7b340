from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("tuner", "0013_sealed_secrets")]

    operations = [
        migrations.RemoveIndex(model_name="kernelrun", name="kernelrun_baseline"),
        migrations.AddIndex(model_name="kernelrun", index=models.Index(
            fields=["kernel", "gpu", "toolkit", "driver", "recorded", "build"], name="kernelrun_place",
            include=["id", "created", "p50_us"], condition=models.Q(rejected=""))),
    ]

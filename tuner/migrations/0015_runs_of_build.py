from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("tuner", "0014_run_places")]

    operations = [
        migrations.AddIndex(model_name="kernelrun", index=models.Index(
            fields=["build"], name="kernelrun_of_build", condition=models.Q(rejected=""))),
    ]

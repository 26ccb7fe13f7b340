from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('tuner', '0032_gone_refs'),
    ]

    operations = [
        migrations.AddField(
            model_name='tunejob',
            name='ceiling_pct',
            field=models.FloatField(blank=True, null=True),
        ),
        migrations.AddConstraint(
            model_name='tunejob',
            constraint=models.CheckConstraint(
                condition=models.Q(('ceiling_pct', None), models.Q(('ceiling_pct__gt', 0), ('ceiling_pct__lte', 100)), _connector='OR'),
                name='tunejob_ceiling_pct_range'),
        ),
    ]

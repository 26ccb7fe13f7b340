"""Receipts of fleet batches by content, whose an agent's name is, and what was refused of it."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('profiles', '0029_kernel_shape_flop'),
        ('webapp', '0007_agents'),
        migrations.swappable_dependency(settings.KNOX_TOKEN_MODEL),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='fleetagent',
            name='fleetagent_once',
        ),
        migrations.AddField(
            model_name='fleetagent',
            name='conflict',
            field=models.CharField(blank=True, db_default='', default='', max_length=300),
        ),
        migrations.AddField(
            model_name='fleetagent',
            name='conflicted',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='fleetagent',
            name='conflicts',
            field=models.BigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='fleetagent',
            name='machine',
            field=models.CharField(blank=True, db_default='', default='', max_length=64),
        ),
        migrations.AddField(
            model_name='fleetagent',
            name='refused',
            field=models.BigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='fleetagent',
            name='refused_why',
            field=models.CharField(blank=True, db_default='', default='', max_length=300),
        ),
        migrations.AddField(
            model_name='fleetagent',
            name='token',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+',
                                    to=settings.KNOX_TOKEN_MODEL),
        ),
        migrations.AddField(
            model_name='fleetbatch',
            name='sha256',
            field=models.CharField(blank=True, db_default='', default='', max_length=64),
        ),
        migrations.AddConstraint(
            model_name='fleetagent',
            constraint=models.UniqueConstraint(fields=('project', 'name', 'machine'), name='fleetagent_machine_once'),
        ),
    ]

"""All steps up to 0005 in one, for a database without tables; one that has any of them goes on by the steps.

What is no state of a model comes from the steps: the first project, and the audit log that is only added to.
"""

from importlib import import_module

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from webapp.migrations._at_once import CreateAtOnce


def step(name):
    return import_module(f"webapp.migrations.{name}")


class Migration(migrations.Migration):

    replaces = [
        ('webapp', '0001_api_token'), ('webapp', '0002_projects'), ('webapp', '0003_audit'), ('webapp', '0004_people'),
        ('webapp', '0005_threads'),
    ]

    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        CreateAtOnce([
            migrations.CreateModel(
                name='Project',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('slug', models.SlugField(max_length=40, unique=True)),
                    ('name', models.CharField(max_length=80, unique=True)),
                    ('created', models.DateTimeField(auto_now_add=True)),
                ],
                options={
                    'ordering': ['name'],
                },
            ),
            migrations.CreateModel(
                name='Comment',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('author_name', models.CharField(blank=True, max_length=150)),
                    ('text', models.TextField(blank=True)),
                    ('event', models.CharField(blank=True, max_length=300)),
                    ('edits', models.JSONField(default=list)),
                    ('created', models.DateTimeField(auto_now_add=True)),
                    ('deleted', models.DateTimeField(null=True)),
                    ('author', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ],
                options={
                    'ordering': ['created', 'id'],
                },
            ),
            migrations.CreateModel(
                name='Forge',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('kind', models.CharField(max_length=8)),
                    ('name', models.CharField(max_length=80)),
                    ('api', models.CharField(max_length=300)),
                    ('place', models.CharField(max_length=200)),
                    ('account', models.CharField(blank=True, max_length=200)),
                    ('key', models.TextField(blank=True)),
                    ('hook_secret', models.CharField(blank=True, max_length=500)),
                    ('checks', models.BooleanField(default=True)),
                    ('comments', models.BooleanField(default=True)),
                    ('resolves', models.BooleanField(default=True)),
                    ('enabled', models.BooleanField(default=True)),
                    ('created', models.DateTimeField(auto_now_add=True)),
                    ('author', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('project', models.ForeignKey(db_default=1, default=1, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='webapp.project')),
                ],
                options={
                    'ordering': ['name', 'id'],
                },
            ),
            migrations.CreateModel(
                name='Invitation',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('digest', models.CharField(max_length=64, unique=True)),
                    ('email', models.EmailField(blank=True, max_length=254)),
                    ('role', models.CharField(choices=[('viewer', 'viewer'), ('engineer', 'engineer'), ('owner', 'owner')], max_length=12)),
                    ('created', models.DateTimeField(auto_now_add=True)),
                    ('expires', models.DateTimeField()),
                    ('used', models.DateTimeField(null=True)),
                    ('made_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('used_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('invited_to', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='invitations', to='webapp.project')),
                ],
                options={
                    'ordering': ['-created'],
                },
            ),
            migrations.CreateModel(
                name='Follow',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('kind', models.CharField(choices=[('thread', 'Thread'), ('kernel', 'Kernel'), ('suite', 'Suite'), ('project', 'Project')], max_length=8)),
                    ('key', models.CharField(blank=True, max_length=200)),
                    ('on', models.BooleanField(default=True)),
                    ('created', models.DateTimeField(auto_now_add=True)),
                    ('user', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='follows', to=settings.AUTH_USER_MODEL)),
                    ('project', models.ForeignKey(db_default=1, default=1, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='webapp.project')),
                ],
            ),
            migrations.CreateModel(
                name='DigestSent',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('week', models.CharField(max_length=8)),
                    ('told', models.IntegerField(default=0)),
                    ('created', models.DateTimeField(auto_now_add=True)),
                    ('project', models.ForeignKey(db_default=1, default=1, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='webapp.project')),
                ],
            ),
            migrations.CreateModel(
                name='AuditEntry',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('at', models.DateTimeField(auto_now_add=True, db_index=True)),
                    ('actor_name', models.CharField(blank=True, max_length=150)),
                    ('token', models.CharField(blank=True, max_length=80)),
                    ('address', models.GenericIPAddressField(null=True)),
                    ('action', models.CharField(max_length=20)),
                    ('kind', models.CharField(max_length=60)),
                    ('target', models.CharField(max_length=200)),
                    ('target_id', models.CharField(blank=True, max_length=80)),
                    ('changes', models.JSONField(default=dict)),
                    ('actor', models.ForeignKey(db_constraint=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('project', models.ForeignKey(db_default=1, default=1, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='webapp.project')),
                ],
                options={
                    'verbose_name_plural': 'audit entries',
                    'ordering': ['-at', '-id'],
                },
            ),
            migrations.CreateModel(
                name='ApiToken',
                fields=[
                    ('digest', models.CharField(max_length=128, primary_key=True, serialize=False)),
                    ('token_key', models.CharField(db_index=True, max_length=25)),
                    ('created', models.DateTimeField(auto_now_add=True)),
                    ('expiry', models.DateTimeField(blank=True, null=True)),
                    ('name', models.CharField(max_length=80)),
                    ('scope', models.CharField(choices=[('read', 'Read'), ('write', 'Write')], default='write', max_length=8)),
                    ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='auth_token_set', to=settings.AUTH_USER_MODEL)),
                    ('project', models.ForeignKey(db_default=1, default=1, on_delete=django.db.models.deletion.CASCADE, related_name='tokens', to='webapp.project')),
                ],
                options={
                    'ordering': ['-created'],
                },
            ),
            migrations.CreateModel(
                name='TalkPreference',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('mail', models.CharField(choices=[('none', 'nothing'), ('mine', 'mentions and what is assigned to me'), ('all', 'everything in my inbox')], default='mine', max_length=4)),
                    ('digest', models.BooleanField(default=False)),
                    ('user', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='talk_preference', to=settings.AUTH_USER_MODEL)),
                ],
            ),
            migrations.CreateModel(
                name='Thread',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('kind', models.CharField(max_length=12)),
                    ('key', models.CharField(max_length=200)),
                    ('title', models.CharField(max_length=300)),
                    ('path', models.CharField(max_length=500)),
                    ('kernel', models.CharField(blank=True, max_length=200)),
                    ('suite', models.CharField(blank=True, max_length=60)),
                    ('status', models.CharField(default='open', max_length=16)),
                    ('is_open', models.BooleanField(default=True)),
                    ('created', models.DateTimeField(auto_now_add=True)),
                    ('changed', models.DateTimeField(auto_now_add=True)),
                    ('assignee', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='threads_assigned', to=settings.AUTH_USER_MODEL)),
                    ('project', models.ForeignKey(db_default=1, default=1, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='webapp.project')),
                ],
                options={
                    'ordering': ['-changed', '-id'],
                },
            ),
            migrations.CreateModel(
                name='Notice',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('why', models.CharField(choices=[('mention', 'mentioned you'), ('assigned', 'assigned to you'), ('comment', 'comment'), ('change', 'change'), ('found', 'new')], max_length=8)),
                    ('created', models.DateTimeField(auto_now_add=True)),
                    ('read', models.DateTimeField(null=True)),
                    ('mail', models.CharField(blank=True, max_length=8)),
                    ('tries', models.IntegerField(default=0)),
                    ('due', models.DateTimeField(null=True)),
                    ('error', models.CharField(blank=True, max_length=300)),
                    ('comment', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='notices', to='webapp.comment')),
                    ('user', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='notices', to=settings.AUTH_USER_MODEL)),
                    ('thread', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='notices', to='webapp.thread')),
                ],
                options={
                    'ordering': ['-created', '-id'],
                },
            ),
            migrations.CreateModel(
                name='IssueLink',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('address', models.CharField(max_length=500)),
                    ('number', models.CharField(blank=True, max_length=60)),
                    ('state', models.CharField(blank=True, max_length=12)),
                    ('created', models.DateTimeField(auto_now_add=True)),
                    ('author', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('forge', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='issues', to='webapp.forge')),
                    ('thread', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='issues', to='webapp.thread')),
                ],
                options={
                    'ordering': ['created', 'id'],
                },
            ),
            migrations.AddField(
                model_name='comment',
                name='thread',
                field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='comments', to='webapp.thread'),
            ),
            migrations.CreateModel(
                name='ForgeArrival',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('key', models.CharField(max_length=80)),
                    ('event', models.CharField(blank=True, max_length=60)),
                    ('created', models.DateTimeField(auto_now_add=True)),
                    ('forge', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='arrivals', to='webapp.forge')),
                ],
                options={
                    'constraints': [models.UniqueConstraint(fields=('forge', 'key'), name='forgearrival_once')],
                },
            ),
            migrations.CreateModel(
                name='ForgePost',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('what', models.CharField(max_length=12)),
                    ('key', models.CharField(max_length=200)),
                    ('body', models.JSONField(default=dict)),
                    ('remote_id', models.CharField(blank=True, max_length=80)),
                    ('status', models.CharField(default='waiting', max_length=8)),
                    ('tries', models.IntegerField(default=0)),
                    ('due', models.DateTimeField(null=True)),
                    ('error', models.CharField(blank=True, max_length=300)),
                    ('created', models.DateTimeField(auto_now_add=True)),
                    ('sent', models.DateTimeField(null=True)),
                    ('forge', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='posts', to='webapp.forge')),
                    ('link', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='posts', to='webapp.issuelink')),
                ],
                options={
                    'ordering': ['-created', '-id'],
                    'indexes': [models.Index(fields=['status', 'due'], name='forgepost_due')],
                    'constraints': [models.UniqueConstraint(fields=('forge', 'what', 'key'), name='forgepost_once')],
                },
            ),
            migrations.CreateModel(
                name='Membership',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('role', models.CharField(choices=[('viewer', 'viewer'), ('engineer', 'engineer'), ('owner', 'owner')], max_length=12)),
                    ('created', models.DateTimeField(auto_now_add=True)),
                    ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to=settings.AUTH_USER_MODEL)),
                    ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to='webapp.project')),
                ],
                options={
                    'ordering': ['user__username'],
                    'constraints': [models.UniqueConstraint(fields=('project', 'user'), name='membership_once')],
                },
            ),
            migrations.AddConstraint(
                model_name='forge',
                constraint=models.UniqueConstraint(fields=('project', 'name'), name='forge_once'),
            ),
            migrations.AddIndex(
                model_name='follow',
                index=models.Index(fields=['kind', 'key'], name='follow_of'),
            ),
            migrations.AddConstraint(
                model_name='follow',
                constraint=models.UniqueConstraint(fields=('project', 'user', 'kind', 'key'), name='follow_once'),
            ),
            migrations.AddConstraint(
                model_name='digestsent',
                constraint=models.UniqueConstraint(fields=('project', 'week'), name='digest_once'),
            ),
            migrations.AddConstraint(
                model_name='thread',
                constraint=models.UniqueConstraint(fields=('project', 'kind', 'key'), name='thread_once'),
            ),
            migrations.AddIndex(
                model_name='notice',
                index=models.Index(condition=models.Q(('read', None)), fields=['user'], name='notice_unread'),
            ),
            migrations.AddIndex(
                model_name='notice',
                index=models.Index(condition=models.Q(('mail', 'waiting')), fields=['due'], name='notice_due'),
            ),
            migrations.AddConstraint(
                model_name='notice',
                constraint=models.UniqueConstraint(fields=('user', 'comment'), name='notice_once'),
            ),
            migrations.AddIndex(
                model_name='issuelink',
                index=models.Index(fields=['forge', 'number'], name='issue_of_forge'),
            ),
        ]),
        migrations.RunPython(step("0002_projects").first_project_make, migrations.RunPython.noop),
        migrations.RunSQL(step("0003_audit").APPEND_ONLY, step("0003_audit").ANY),
    ]
